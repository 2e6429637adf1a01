package convert

import (
	"encoding/json"
	"strings"

	"go.yaml.in/yaml/v3"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// manifestFile is an object in a file, without what only the API server sets.
type manifestFile struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   manifestObject `json:"metadata"`
	Spec       any            `json:"spec"`
}

type manifestObject struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

// stackYAML returns a stack file in the shortest form.
func (v *conversion) stackYAML(name string) ([]byte, error) {
	spec := stacks.Spec{Version: "1.0.0", CommonMetadata: v.metadata, Components: v.components}
	if len(v.variables) > 0 {
		properties := map[string]any{}
		for name := range v.variables {
			properties[name] = map[string]any{"type": "string"}
		}
		spec.Parameters = &stacks.StackParameters{Schema: map[string]any{"properties": properties}}
	}
	return shortYAML(manifestFile{APIVersion: stacks.APIVersion, Kind: stacks.Kind,
		Metadata: manifestObject{Name: name}, Spec: spec}, "spec", "spec.components", "spec.components[]")
}

// installYAML returns an install in the shortest form.
func installYAML(namespace, name string, spec *appsv1.KsctlInstallSpec) ([]byte, error) {
	return shortYAML(manifestFile{APIVersion: stacks.APIVersion, Kind: appsv1.KsctlInstallKind,
		Metadata: manifestObject{Name: name, Namespace: namespace}, Spec: spec}, "spec", "spec.components",
		"spec.components[]")
}

// maxFlow is the length up to which a mapping or a list is written in one line.
const maxFlow = 90

// shortYAML encodes a value with its fields in their order. Short mappings and lists are written in
// one line, except those at the given paths.
func shortYAML(v any, block ...string) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	isBlock := map[string]bool{"": true}
	for _, at := range block {
		isBlock[at] = true
	}
	restyle(doc.Content[0], "", isBlock)
	var b strings.Builder
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	enc.CompactSeqIndent()
	if err := enc.Encode(&doc); err != nil {
		return nil, err
	}
	return []byte(b.String()), enc.Close()
}

// durations are the fields that are written as people write them: 10m, not 10m0s.
var durations = map[string]bool{"spec.interval": true, "spec.retryInterval": true, "spec.timeout": true}

func restyle(n *yaml.Node, at string, isBlock map[string]bool) {
	n.Style = 0
	switch n.Kind {
	case yaml.ScalarNode:
		if strings.Contains(n.Value, "\n") {
			n.Style = yaml.LiteralStyle
		}
		if durations[at] {
			n.Value = shortDuration(n.Value)
		}
	case yaml.SequenceNode:
		for _, item := range n.Content {
			restyle(item, at+"[]", isBlock)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			n.Content[i].Style = 0
			restyle(n.Content[i+1], strings.TrimPrefix(at+"."+n.Content[i].Value, "."), isBlock)
		}
	}
	if n.Kind != yaml.ScalarNode && !isBlock[at] && flowLength(n) <= maxFlow {
		n.Style = yaml.FlowStyle
	}
}

// flowLength returns the length of a node in one line, or more than maxFlow if it has several.
func flowLength(n *yaml.Node) int {
	if n.Kind == yaml.ScalarNode {
		if strings.Contains(n.Value, "\n") {
			return maxFlow + 1
		}
		return len(n.Value) + 2
	}
	sum := 2
	for _, item := range n.Content {
		sum += flowLength(item)
	}
	return sum
}

func shortDuration(text string) string {
	if cut, ok := strings.CutSuffix(text, "m0s"); ok {
		text = cut + "m"
	}
	if cut, ok := strings.CutSuffix(text, "h0m"); ok {
		text = cut + "h"
	}
	return text
}
