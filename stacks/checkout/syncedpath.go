package checkout

import (
	"fmt"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/kustomize"
	"github.com/ksctl/gitops/stacks/internal/source"
)

// sync is a folder that Flux or Argo CD applies to a cluster.
type sync struct {
	// who is its name for people, file and line where it says so.
	who, file string
	line      int
	dir       string
	// recurse is true when folders below are applied, too.
	recurse bool
}

// syncsOf are the folders that an object of Flux or Argo CD has applied.
func syncsOf(file string, node *yaml.Node, kind, group string) []sync {
	var out []sync
	name := fmt.Sprintf("%s %q", kind, scalar(child(node, "metadata"), "name"))
	add := func(who string, at *yaml.Node, recurse bool) {
		if at == nil || at.Kind != yaml.ScalarNode || strings.Contains(at.Value, "{{") {
			return
		}
		if dir, err := source.Clean(".", strings.TrimPrefix(at.Value, "/")); err == nil {
			out = append(out, sync{who: who + " " + name, file: file, line: at.Line, dir: dir, recurse: recurse})
		}
	}
	spec := child(node, "spec")
	switch {
	case group == "kustomize.toolkit.fluxcd.io" && kind == "Kustomization":
		add("Flux", child(spec, "path"), true)
	case group == "argoproj.io" && kind == "ApplicationSet":
		spec = child(spec, "template", "spec")
		fallthrough
	case group == "argoproj.io" && kind == "Application":
		sources := []*yaml.Node{child(spec, "source")}
		if list := child(spec, "sources"); list != nil {
			sources = append(sources, list.Content...)
		}
		for _, s := range sources {
			add("Argo CD", child(s, "path"), scalar(child(s, "directory"), "recurse") == "true")
		}
	}
	return out
}

// checkSyncs refuses stack files that Flux or Argo CD would apply as if they were objects.
func (c *Checkout) checkSyncs() stacks.Errors {
	var errs stacks.Errors
	refused := map[string]bool{}
	for _, s := range c.syncs {
		applied := map[string]bool{}
		c.applied(s.dir, s.recurse, applied, map[string]bool{})
		for _, file := range c.Stacks {
			if applied[file] && !refused[file] {
				refused[file] = true
				errs = append(errs, &stacks.Error{File: file, Message: fmt.Sprintf(
					"%s (%s:%d) applies the folder %s, and would apply this file as an object; keep stacks beside what is synced", s.who, s.file, s.line, s.dir)})
			}
		}
	}
	return errs
}

// applied collects the files that a folder stands for: those that its kustomization
// lists, else those in it.
func (c *Checkout) applied(dir string, recurse bool, files, seen map[string]bool) {
	if seen[dir] || !c.tree.IsDir(dir) {
		return
	}
	seen[dir] = true
	if file, err := kustomize.FileOf(c.tree, dir); err == nil {
		c.listed(dir, file, files, seen)
		return
	}
	entries, err := c.tree.ReadDir(dir)
	if err != nil || c.tree.IsFile(path.Join(dir, "Chart.yaml")) {
		return
	}
	for _, entry := range entries {
		name := path.Join(dir, entry.Name())
		if c.tree.IsDir(name) {
			if recurse {
				c.applied(name, recurse, files, seen)
			}
			continue
		}
		files[name] = true
	}
}

func (c *Checkout) listed(dir, file string, files, seen map[string]bool) {
	data, err := c.tree.Read(file, 1<<20)
	if err != nil {
		return
	}
	root, err := document.Single(file, data)
	if err != nil {
		return
	}
	for _, field := range []string{"resources", "bases", "components"} {
		list := child(root, field)
		if list == nil {
			continue
		}
		for _, item := range list.Content {
			name, err := source.Clean(dir, item.Value)
			switch {
			case err != nil:
			case c.tree.IsDir(name):
				c.applied(name, false, files, seen)
			default:
				files[name] = true
			}
		}
	}
}
