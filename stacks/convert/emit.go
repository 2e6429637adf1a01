package convert

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

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
	if err := yaml.Unmarshal([]byte(lineBreaks.Replace(string(raw))), &doc); err != nil {
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
	if err := errors.Join(enc.Encode(&doc), enc.Close()); err != nil {
		return nil, err
	}
	return []byte(b.String()), readsBack(raw, []byte(b.String()))
}

// lineBreaks escapes what YAML reads as a line break, or skips, in the strings of JSON.
var lineBreaks = strings.NewReplacer("\u0085", `\u0085`, "\u2028", `\u2028`, "\u2029", `\u2029`, "\ufeff", `\ufeff`)

// readsBack returns an error if written YAML is not read as the JSON that it was written from.
func readsBack(raw, written []byte) error {
	var want, got any
	if err := errors.Join(json.Unmarshal(raw, &want), sigsyaml.Unmarshal(written, &got)); err != nil {
		return err
	}
	spec, _ := nested(want, "spec").(map[string]any)
	for field := range durations {
		name := strings.TrimPrefix(field, "spec.")
		if text, ok := spec[name].(string); ok {
			spec[name] = shortDuration(text)
		}
	}
	if !reflect.DeepEqual(got, want) {
		return errors.New("it has values that YAML can't keep; write them in another way")
	}
	return nil
}

// styleOf returns the style in which a text is read back as it is. The API server's parser reads
// words like yes as something else.
func styleOf(n *yaml.Node, style yaml.Style) yaml.Style {
	list := yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{
		{Kind: yaml.ScalarNode, Tag: n.Tag, Value: n.Value, Style: style}}}
	data, err := yaml.Marshal(&list)
	var got []any
	if err == nil {
		err = sigsyaml.Unmarshal(data, &got)
	}
	if err != nil || len(got) != 1 || got[0] != n.Value {
		return yaml.DoubleQuotedStyle
	}
	return style
}

// durations are the fields that are written as people write them: 10m, not 10m0s.
var durations = map[string]bool{"spec.interval": true, "spec.retryInterval": true, "spec.timeout": true}

func restyle(n *yaml.Node, at string, isBlock map[string]bool) {
	n.Style = 0
	switch n.Kind {
	case yaml.ScalarNode:
		if n.Tag == "!!str" && strings.Contains(n.Value, "\n") {
			n.Style = styleOf(n, yaml.LiteralStyle)
		} else if n.Tag == "!!str" {
			n.Style = styleOf(n, 0)
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
			n.Content[i].Style = styleOf(n.Content[i], 0)
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
