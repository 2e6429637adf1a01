package convert

import (
	"reflect"
	"testing"

	"sigs.k8s.io/yaml"
)

// What is written is read back by the API server's parser, which knows more words than YAML 1.2.
func TestShortYAMLReadsBackTheSame(t *testing.T) {
	for _, text := range []string{"y", "NO", "On", "off", "~", "1e3", "0x10", "012", "1_000", "2001-01-01", "12:30",
		"\ta\nb", " a\nb", "a\u0085b\nc", "a\u2028b", "a: b", "# a", "a\n\n", "\n", "", "- a", "\ufeffa", "=", "<<"} {
		want := map[string]any{"spec": map[string]any{"value": text, "list": []any{text, []any{text}},
			"map": map[string]any{text: "x", "b": map[string]any{text: text}}}}
		data, err := shortYAML(want, "spec")
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		var got map[string]any
		if err := yaml.Unmarshal(data, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %v, %v from\n%s", text, got, err, data)
		}
	}
}

// An object of a chart may have no metadata.
func TestCommonMetadataOfAnObjectWithoutMetadata(t *testing.T) {
	object := map[string]any{"kind": "List"}
	setCommonMetadata(object, &commonMetadata{Labels: map[string]string{"a": "b"}})
	if nested(object, "metadata", "labels", "a") != "b" {
		t.Errorf("got %v", object)
	}
}
