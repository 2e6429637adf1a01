package live

import (
	"encoding/json"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

func captured(b *testing.B, file string) *unstructured.Unstructured {
	b.Helper()
	text, err := os.ReadFile("testdata/drift/" + file)
	if err != nil {
		b.Fatal(err)
	}
	var c struct{ After json.RawMessage }
	if err := json.Unmarshal(text, &c); err != nil {
		b.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(c.After, &u.Object); err != nil {
		b.Fatal(err)
	}
	return u
}

// BenchmarkProject measures the cost of each watch event and each list item after decoding.
func BenchmarkProject(b *testing.B) {
	expr := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "x.io/v1", "kind": "Thing",
		"metadata": map[string]any{"name": "x", "annotations": map[string]any{
			ReadyExprAnnotation: "status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')"}},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
	}}
	for _, bc := range []struct {
		name string
		u    *unstructured.Unstructured
	}{
		{"Deployment", captured(b, "Deployment-it-is-scaled.json")},
		{"ignoring", captured(b, "Deployment-an-ignored-image-is-changed.json")},
		{"ConfigMap", captured(b, "ConfigMap-a-key-is-added.json")},
		{"expression", expr},
	} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Project(bc.u); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("decoding-a-Deployment", func(b *testing.B) {
		text, err := json.Marshal(captured(b, "Deployment-it-is-scaled.json").Object)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			var m map[string]any
			if err := utiljson.Unmarshal(text, &m); err != nil {
				b.Fatal(err)
			}
		}
	})
}
