package kustomize

import (
	"fmt"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/openapi"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/problem"
)

// Limits of one build.
const (
	maxDepth          = 32
	maxKustomizations = 1000
)

// Scan reads a kustomization and its bases. It rejects everything that would leave the source or
// execute something, with file and line. It runs before kustomize, which would fetch remote bases.
func Scan(tree *source.Tree, dir string) error {
	_, err := scan(tree, dir, nil)
	return err
}

func scan(tree *source.Tree, dir string, components []string) (*scanner, error) {
	s := &scanner{tree: tree, components: components}
	s.scanKustomization(dir, &scanTarget{}, false)
	return s, s.errs.Err()
}

type scanner struct {
	tree    *source.Tree
	errs    problem.Errors
	visited int
	// ownSchema is true if a kustomization has the field openapi. schemas are the files that it
	// names.
	ownSchema bool
	schemas   []string
	// charts of the kustomizations.
	charts []*chartSet
	// components are the paths of further Components of the first kustomization.
	components []string
}

// scanTarget is the kustomization that is scanned.
type scanTarget struct {
	dir, file string
	// ancestors are the folders of the kustomizations from the first one to this one.
	ancestors []string
	// namespace is that of the kustomization, or of the innermost overlay that sets one.
	namespace string
	// plugins is true if the resources configure plugins.
	plugins bool
}

// fail adds an error, and returns it so that the caller can set its suggestion.
func (s *scanner) fail(t *scanTarget, n *yaml.Node, field, format string, args ...any) *problem.Error {
	e := &problem.Error{File: t.file, Line: n.Line, Field: field, Message: fmt.Sprintf(format, args...)}
	s.errs = append(s.errs, e)
	return e
}

// FindFile returns the path of the kustomization file in a folder.
func FindFile(tree *source.Tree, dir string) (string, error) {
	var found []string
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		if file := path.Join(dir, name); tree.IsFile(file) {
			found = append(found, file)
		}
	}
	switch len(found) {
	case 0:
		return "", problem.Errorf(dir, 0, "there is no kustomization.yaml in this folder")
	case 1:
		return found[0], nil
	}
	return "", problem.Errorf(dir, 0, "there is more than one kustomization in this folder: %s",
		strings.Join(found, ", "))
}

// Read returns the path of the kustomization file in a folder, and its content.
func Read(tree *source.Tree, dir string) (file string, root *yaml.Node, err error) {
	if file, err = FindFile(tree, dir); err != nil {
		return "", nil, err
	}
	data, err := tree.Read(file, 1<<20)
	if err != nil {
		return file, nil, err
	}
	root, err = document.ParseSingle(file, data)
	return file, root, err
}

// scanKustomization scans the kustomization in a folder. overlay is the one that refers to it.
func (s *scanner) scanKustomization(dir string, overlay *scanTarget, plugins bool) {
	if s.visited++; s.visited > maxKustomizations {
		if s.visited == maxKustomizations+1 {
			s.errs = append(s.errs,
				problem.Errorf(dir, 0, "the build reads more than %d kustomizations", maxKustomizations))
		}
		return
	}
	file, root, err := Read(s.tree, dir)
	if err == nil {
		// Check for duplicate keys, alias bombs and depth.
		_, err = document.Map(file, root)
	}
	if err != nil {
		s.errs.Add(err)
		return
	}
	t := &scanTarget{dir: dir, file: file, ancestors: append(slices.Clone(overlay.ancestors), dir),
		namespace: overlay.namespace, plugins: plugins}
	if own := fieldOf(root, "namespace"); own != nil && own.ShortTag() == "!!str" && own.Value != "" {
		t.namespace = own.Value
	}
	_, known := document.FieldsOf(reflect.TypeFor[types.Kustomization]())
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], resolveAlias(root.Content[i+1])
		if !slices.Contains(known, key.Value) {
			s.fail(t, key, key.Value, "field %q is not known in a kustomization",
				key.Value).Suggestion = problem.Nearest(key.Value, known)
			continue
		}
		s.scanField(t, key.Value, value)
	}
	s.scanCharts(t, root)
	if len(overlay.ancestors) == 0 {
		for _, name := range s.components {
			s.scanResource(t, "kustomizeComponents", &yaml.Node{Value: name}, false)
		}
	}
}

func resolveAlias(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func (s *scanner) scanField(t *scanTarget, field string, value *yaml.Node) {
	switch field {
	case "resources", "bases", "components":
		s.forEach(value, func(n *yaml.Node) { s.scanResource(t, field, n, t.plugins) })
	case "generators", "transformers", "validators":
		s.forEach(value, func(n *yaml.Node) {
			if docs := inlineDocuments(n.Value); docs != nil {
				for _, doc := range docs {
					s.checkPlugin(t.file, n.Line, doc)
				}
				return
			}
			s.scanResource(t, field, n, true)
		})
	case "openapi":
		s.scanOpenAPI(t, value)
	case "crds", "configurations":
		s.forEach(value, func(n *yaml.Node) { s.checkPath(t, field, n, n.Value) })
	case "patchesStrategicMerge":
		s.forEach(value, func(n *yaml.Node) {
			if inlineDocuments(n.Value) == nil {
				s.checkPath(t, field, n, n.Value)
			}
		})
	case "patches", "patchesJson6902", "replacements":
		s.forEach(value, func(n *yaml.Node) { s.checkPathsOf(t, field, n, "path") })
	case "configMapGenerator", "secretGenerator":
		s.forEach(value, func(n *yaml.Node) {
			for _, key := range []string{"files", "envs", "env"} {
				s.checkPathsOf(t, field, n, key)
			}
		})
	}
}

// scanOpenAPI checks the schema that a kustomization names. kustomize ignores the versions of all
// kustomizations but the first.
func (s *scanner) scanOpenAPI(t *scanTarget, value *yaml.Node) {
	first := !s.ownSchema
	s.ownSchema = true
	if version := fieldOf(value, "version"); version != nil && first && version.Value != openapi.DefaultOpenAPI {
		s.fail(t, version, "openapi.version", "field %q: kustomize has no schema of %q; set %q, or a path to a schema "+
			"in the source", "openapi.version", version.Value, openapi.DefaultOpenAPI)
	}
	if file := fieldOf(value, "path"); file != nil && s.checkPath(t, "openapi.path", file, file.Value) {
		s.schemas = append(s.schemas, path.Join(t.dir, file.Value))
	}
}

// fieldOf returns the value of a key in a mapping, or nil.
func fieldOf(n *yaml.Node, key string) *yaml.Node {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return resolveAlias(n.Content[i+1])
		}
	}
	return nil
}

func (s *scanner) forEach(list *yaml.Node, do func(*yaml.Node)) {
	if list.Kind != yaml.SequenceNode {
		return
	}
	for _, n := range list.Content {
		do(resolveAlias(n))
	}
}

// checkPathsOf checks the paths at one key of a mapping: a path or a list of paths. A file may have
// the form key=path.
func (s *scanner) checkPathsOf(t *scanTarget, field string, n *yaml.Node, key string) {
	value := fieldOf(n, key)
	if value == nil {
		return
	}
	check := func(n *yaml.Node) {
		name := n.Value
		if _, after, ok := strings.Cut(name, "="); ok && key == "files" {
			name = after
		}
		s.checkPath(t, field+"."+key, n, name)
	}
	if value.Kind == yaml.ScalarNode && value.Value != "" {
		check(value)
	}
	s.forEach(value, check)
}

// remotePattern matches everything that kustomize treats as a URL or a Git repository, and more.
var remotePattern = regexp.MustCompile(`(?i)://|^[a-z][a-z0-9+.-]*:|^[a-z][a-z0-9-]*@|^github\.com[/:]`)

// resolveLocal cleans a path. It reports an error and returns false if the path is remote, leaves
// the source or does not exist.
func (s *scanner) resolveLocal(t *scanTarget, field string, n *yaml.Node, name string) (string, bool) {
	if remotePattern.MatchString(name) {
		s.fail(t, n, field, "field %q: %q is remote, and nothing is fetched while rendering; copy it into the source",
			field, name)
		return "", false
	}
	clean, err := source.Clean(t.dir, name)
	if err != nil {
		s.fail(t, n, field, "field %q: %s", field, err)
		return "", false
	}
	if _, err := s.tree.Stat(clean); err != nil || name == "" {
		s.fail(t, n, field, "field %q: there is no %q in the source", field, name)
		return "", false
	}
	return clean, true
}

// checkPath checks the path of a file that kustomize loads. The file must be in or below the folder
// of its kustomization.
func (s *scanner) checkPath(t *scanTarget, field string, n *yaml.Node, name string) bool {
	clean, ok := s.resolveLocal(t, field, n, name)
	if ok && t.dir != "." && !strings.HasPrefix(clean, t.dir+"/") {
		s.fail(t, n, field, "field %q: %q is outside the folder of its kustomization; move it there", field, name)
		return false
	}
	return ok
}

// scanResource checks an entry that is a file, or a folder with a kustomization.
func (s *scanner) scanResource(t *scanTarget, field string, n *yaml.Node, plugins bool) {
	clean, ok := s.resolveLocal(t, field, n, n.Value)
	if !ok {
		return
	}
	if !s.tree.IsDir(clean) {
		s.checkPath(t, field, n, n.Value)
		if plugins {
			s.scanPluginFile(clean)
		}
		return
	}
	for _, outer := range t.ancestors {
		if outer == clean || clean == "." || strings.HasPrefix(outer, clean+"/") {
			s.fail(t, n, field, "field %q makes a cycle: %s → %s", field, strings.Join(t.ancestors, " → "), clean)
			return
		}
	}
	if len(t.ancestors) >= maxDepth {
		s.fail(t, n, field, "field %q: kustomizations are nested deeper than %d", field, maxDepth)
		return
	}
	s.scanKustomization(clean, t, plugins)
}
