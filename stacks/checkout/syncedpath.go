package checkout

import (
	"fmt"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/internal/kustomize"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/problem"
)

// syncedPath is a folder that Flux or Argo CD applies to a cluster.
type syncedPath struct {
	// owner describes the Flux or Argo CD object for messages. file and line are the place of its
	// path field.
	owner, file string
	line        int
	dir         string
	// recurse is true if subfolders are applied, too.
	recurse bool
}

// syncedPathsOf returns the folders that an object of Flux or Argo CD applies.
func syncedPathsOf(file string, node *yaml.Node, kind, group string) []syncedPath {
	var out []syncedPath
	name := fmt.Sprintf("%s %q", kind, scalarValue(childNode(node, "metadata"), "name"))
	add := func(owner string, at *yaml.Node, recurse bool) {
		if at == nil || at.Kind != yaml.ScalarNode || strings.Contains(at.Value, "{{") {
			return
		}
		if dir, err := source.Clean(".", strings.TrimPrefix(at.Value, "/")); err == nil {
			out = append(out,
				syncedPath{owner: owner + " " + name, file: file, line: at.Line, dir: dir, recurse: recurse})
		}
	}
	spec := childNode(node, "spec")
	switch {
	case group == "kustomize.toolkit.fluxcd.io" && kind == "Kustomization":
		add("Flux", childNode(spec, "path"), true)
	case group == "argoproj.io" && kind == "ApplicationSet":
		spec = childNode(spec, "template", "spec")
		fallthrough
	case group == "argoproj.io" && kind == "Application":
		sources := []*yaml.Node{childNode(spec, "source")}
		if list := childNode(spec, "sources"); list != nil {
			sources = append(sources, list.Content...)
		}
		for _, s := range sources {
			add("Argo CD", childNode(s, "path"), scalarValue(childNode(s, "directory"), "recurse") == "true")
		}
	}
	return out
}

// checkSyncedPaths reports stack files that Flux or Argo CD would apply as objects.
func (c *Checkout) checkSyncedPaths() stacks.Errors {
	var errs stacks.Errors
	refused := map[string]bool{}
	for _, s := range c.syncedPaths {
		applied := map[string]bool{}
		c.collectApplied(s.dir, s.recurse, applied, map[string]bool{})
		for _, file := range c.Stacks {
			if applied[file] && !refused[file] {
				refused[file] = true
				errs = append(errs, problem.Errorf(file, 0,
					"%s (%s:%d) applies the folder %s, and would apply this file as an object; move the stack out of "+
						"the folder", s.owner, s.file, s.line, s.dir))
			}
		}
	}
	return errs
}

// collectApplied adds the files to be applied from a folder to files: the files that its
// kustomization lists, or else all files in the folder.
func (c *Checkout) collectApplied(dir string, recurse bool, files, seen map[string]bool) {
	if seen[dir] || !c.tree.IsDir(dir) {
		return
	}
	seen[dir] = true
	file, root, err := kustomize.Read(c.tree, dir)
	if err == nil {
		c.collectListed(dir, root, files, seen)
	}
	if file != "" {
		return // also if the kustomization is invalid: validate reports that
	}
	entries, err := c.tree.ReadDir(dir)
	if err != nil || c.tree.IsFile(path.Join(dir, "Chart.yaml")) {
		return
	}
	for _, entry := range entries {
		name := path.Join(dir, entry.Name())
		if c.tree.IsDir(name) {
			if recurse {
				c.collectApplied(name, recurse, files, seen)
			}
			continue
		}
		files[name] = true
	}
}

// collectListed adds the files that the kustomization root in a folder lists.
func (c *Checkout) collectListed(dir string, root *yaml.Node, files, seen map[string]bool) {
	for _, field := range []string{"resources", "bases", "components"} {
		list := childNode(root, field)
		if list == nil {
			continue
		}
		for _, item := range list.Content {
			name, err := source.Clean(dir, item.Value)
			switch {
			case err != nil:
			case c.tree.IsDir(name):
				c.collectApplied(name, false, files, seen)
			default:
				files[name] = true
			}
		}
	}
}
