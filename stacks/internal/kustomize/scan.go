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

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/problem"
)

// Limits of one build.
const (
	maxDepth          = 32
	maxKustomizations = 1000
)

// refused fields and why.
var refused = map[string]string{
	"helmCharts":                  "charts are components of their own here: use helm in the stack",
	"helmChartInflationGenerator": "charts are components of their own here: use helm in the stack",
	"helmGlobals":                 "charts are components of their own here: use helm in the stack",
	"openapi":                     "its schema would leak into other builds",
}

// Scan reads a kustomization and all that it is built on, and refuses what would
// leave the source or run something, with its place. kustomize itself would fetch first.
func Scan(tree *source.Tree, dir string) error {
	s := &scanner{tree: tree}
	s.kustomization(dir, nil, false)
	return s.errs.Err()
}

type scanner struct {
	tree    *source.Tree
	errs    problem.Errors
	visited int
}

// target is one kustomization under scan.
type target struct {
	dir, file string
	stack     []string
	// plugins says that its resources configure plugins.
	plugins bool
}

func (s *scanner) fail(t *target, n *yaml.Node, field, format string, args ...any) {
	s.errs = append(s.errs, &problem.Error{File: t.file, Line: n.Line, Field: field, Message: fmt.Sprintf(format, args...)})
}

// FileOf finds the kustomization file of a folder.
func FileOf(tree *source.Tree, dir string) (string, error) {
	var found []string
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		if file := path.Join(dir, name); tree.IsFile(file) {
			found = append(found, file)
		}
	}
	switch len(found) {
	case 0:
		return "", &problem.Error{File: dir, Message: "there is no kustomization.yaml in this folder"}
	case 1:
		return found[0], nil
	}
	return "", &problem.Error{File: dir, Message: "there is more than one kustomization in this folder: " + strings.Join(found, ", ")}
}

func (s *scanner) kustomization(dir string, stack []string, plugins bool) {
	if s.visited++; s.visited > maxKustomizations {
		if s.visited == maxKustomizations+1 {
			s.errs = append(s.errs, &problem.Error{File: dir, Message: fmt.Sprintf("the build reads more than %d kustomizations", maxKustomizations)})
		}
		return
	}
	file, err := FileOf(s.tree, dir)
	if err != nil {
		s.errs = append(s.errs, problem.All(err)...)
		return
	}
	t := &target{dir: dir, file: file, stack: append(slices.Clone(stack), dir), plugins: plugins}
	data, err := s.tree.Read(file, 1<<20)
	if err != nil {
		s.errs = append(s.errs, problem.All(err)...)
		return
	}
	root, err := document.Single(file, data)
	if err == nil {
		// For duplicate keys, bombs and depth.
		_, err = document.Map(file, root)
	}
	if err != nil {
		s.errs = append(s.errs, problem.All(err)...)
		return
	}
	known := knownFields()
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], resolve(root.Content[i+1])
		if !slices.Contains(known, key.Value) {
			s.errs = append(s.errs, &problem.Error{
				File: file, Line: key.Line, Field: key.Value, Suggestion: problem.Nearest(key.Value, known),
				Message: fmt.Sprintf("field %q is not known in a kustomization", key.Value),
			})
			continue
		}
		if why, no := refused[key.Value]; no {
			s.fail(t, key, key.Value, "field %q is not allowed: %s", key.Value, why)
			continue
		}
		s.field(t, key.Value, value)
	}
}

func knownFields() []string {
	_, names := document.FieldsOf(reflect.TypeFor[types.Kustomization]())
	return names
}

func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func (s *scanner) field(t *target, field string, value *yaml.Node) {
	switch field {
	case "resources", "bases":
		s.each(value, func(n *yaml.Node) { s.resource(t, field, n, t.plugins) })
	case "components":
		s.each(value, func(n *yaml.Node) { s.resource(t, field, n, false) })
	case "generators", "transformers", "validators":
		s.each(value, func(n *yaml.Node) {
			if docs := inline(n.Value); docs != nil {
				for _, doc := range docs {
					s.plugin(t.file, n.Line, doc)
				}
				return
			}
			s.resource(t, field, n, true)
		})
	case "crds", "configurations":
		s.each(value, func(n *yaml.Node) { s.path(t, field, n, n.Value) })
	case "patchesStrategicMerge":
		s.each(value, func(n *yaml.Node) {
			if inline(n.Value) == nil {
				s.path(t, field, n, n.Value)
			}
		})
	case "patches", "patchesJson6902", "replacements":
		s.each(value, func(n *yaml.Node) { s.member(t, field, n, "path") })
	case "configMapGenerator", "secretGenerator":
		s.each(value, func(n *yaml.Node) {
			for _, key := range []string{"files", "envs", "env"} {
				s.member(t, field, n, key)
			}
		})
	}
}

func (s *scanner) each(list *yaml.Node, do func(*yaml.Node)) {
	if list.Kind != yaml.SequenceNode {
		return
	}
	for _, n := range list.Content {
		do(resolve(n))
	}
}

// member checks the paths under one key of a mapping: one, or a list. A file may
// be given as key=path.
func (s *scanner) member(t *target, field string, n *yaml.Node, key string) {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != key {
			continue
		}
		value := resolve(n.Content[i+1])
		check := func(n *yaml.Node) {
			name := n.Value
			if _, after, ok := strings.Cut(name, "="); ok && key == "files" {
				name = after
			}
			s.path(t, field+"."+key, n, name)
		}
		if value.Kind == yaml.ScalarNode && value.Value != "" {
			check(value)
		}
		s.each(value, check)
	}
}

// remotePattern matches all that kustomize takes for a URL or a Git repository, and more.
var remotePattern = regexp.MustCompile(`(?i)://|^[a-z][a-z0-9+.-]*:|^[a-z][a-z0-9-]*@|^github\.com[/:]`)

// local cleans a path, or says why it is not one.
func (s *scanner) local(t *target, field string, n *yaml.Node, name string) (string, bool) {
	if remotePattern.MatchString(name) {
		s.fail(t, n, field, "field %q: %q is remote, and nothing is fetched while rendering; copy it into the source", field, name)
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

// path checks a file that kustomize loads: it must be in or below the folder of its kustomization.
func (s *scanner) path(t *target, field string, n *yaml.Node, name string) {
	clean, ok := s.local(t, field, n, name)
	if ok && t.dir != "." && !strings.HasPrefix(clean, t.dir+"/") {
		s.fail(t, n, field, "field %q: %q is outside the folder of its kustomization", field, name)
	}
}

// resource checks an entry that is a file, or a folder with a kustomization.
func (s *scanner) resource(t *target, field string, n *yaml.Node, plugins bool) {
	clean, ok := s.local(t, field, n, n.Value)
	if !ok {
		return
	}
	if !s.tree.IsDir(clean) {
		s.path(t, field, n, n.Value)
		if plugins {
			s.pluginFile(clean)
		}
		return
	}
	for _, outer := range t.stack {
		if outer == clean || clean == "." || strings.HasPrefix(outer, clean+"/") {
			s.fail(t, n, field, "field %q makes a cycle: %s → %s", field, strings.Join(t.stack, " → "), clean)
			return
		}
	}
	if len(t.stack) >= maxDepth {
		s.fail(t, n, field, "field %q: kustomizations are nested deeper than %d", field, maxDepth)
		return
	}
	s.kustomization(clean, t.stack, plugins)
}
