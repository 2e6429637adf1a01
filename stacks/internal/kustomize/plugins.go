package kustomize

import (
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/problem"
)

// inlineDocuments returns the documents of an entry that is inline YAML, and nil if it is a path.
func inlineDocuments(text string) []map[string]any {
	if !strings.ContainsAny(text, ":\n") {
		return nil
	}
	docs, err := document.Parse("", []byte(text))
	if err != nil {
		return nil
	}
	var out []map[string]any
	for _, doc := range docs {
		if doc.Root.Kind != yaml.MappingNode {
			return nil
		}
		m, err := document.Map("", doc.Root)
		if err != nil || m["kind"] == nil {
			return nil
		}
		out = append(out, m)
	}
	return out
}

// scanPluginFile checks the plugins that a file configures.
func (s *scanner) scanPluginFile(file string) {
	data, err := s.tree.Read(file, source.MaxFile)
	var docs []document.Document
	if err == nil {
		docs, err = document.Parse(file, data)
	}
	for _, doc := range docs {
		var m map[string]any
		if m, err = document.Map(file, doc.Root); err != nil {
			break
		}
		s.checkPlugin(file, doc.Line, m)
	}
	s.errs.Add(err)
}

// functionAnnotations mark a plugin as a KRM function, which runs a container or a program.
var functionAnnotations = []string{"config.kubernetes.io/function", "config.k8s.io/function"}

// checkPlugin rejects plugins that are not built into kustomize, and plugins with remote paths.
func (s *scanner) checkPlugin(file string, line int, m map[string]any) {
	kind, _ := m["kind"].(string)
	fail := func(format string, args ...any) {
		s.errs = append(s.errs, problem.Errorf(file, line, format, args...))
	}
	if kind == "HelmChartInflationGenerator" {
		fail("the plugin %s is not supported here; use the field helmCharts of the kustomization", kind)
		return
	}
	if m["apiVersion"] != "builtin" {
		fail("the plugin %s of apiVersion %v is not built into kustomize; external plugins are not supported", kind,
			m["apiVersion"])
		return
	}
	meta, _ := m["metadata"].(map[string]any)
	marks, _ := meta["annotations"].(map[string]any)
	for _, annotation := range functionAnnotations {
		if _, there := marks[annotation]; there {
			fail("the plugin %s is a function (%s); functions are not supported", kind, annotation)
		}
	}
	for _, name := range pathsIn(m) {
		if remotePattern.MatchString(name) {
			fail("the plugin %s names %q, which is remote, and nothing is fetched while rendering; copy it into "+
				"the source", kind, name)
		}
	}
}

// pathsIn returns the strings that a built-in plugin treats as paths.
func pathsIn(v any) []string {
	var out []string
	switch v := v.(type) {
	case map[string]any:
		for key, item := range v {
			switch key {
			case "path", "paths", "files", "envs", "env":
				out = append(out, stringsIn(item)...)
			default:
				out = append(out, pathsIn(item)...)
			}
		}
	case []any:
		for _, item := range v {
			out = append(out, pathsIn(item)...)
		}
	}
	return out
}

func stringsIn(v any) []string {
	switch v := v.(type) {
	case string:
		if _, after, ok := strings.Cut(v, "="); ok {
			return []string{v, after}
		}
		return []string{v}
	case []any:
		var out []string
		for _, item := range v {
			out = append(out, stringsIn(item)...)
		}
		return out
	}
	return nil
}
