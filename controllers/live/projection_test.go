package live

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The size of a projection is bounded, whatever the object contains.
func TestProjectBoundsSize(t *testing.T) {
	finalizers := make([]any, 2*maxFinalizers)
	for i := range finalizers {
		finalizers[i] = fmt.Sprintf("example.com/%d", i)
	}
	for _, c := range []struct {
		value    string
		withheld bool
	}{{strings.Repeat("x", maxKeptValueBytes-2), false}, {strings.Repeat("x", maxKeptValueBytes-1), true}} {
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Thing",
			"metadata": map[string]any{"name": "x", "finalizers": finalizers,
				"annotations": map[string]any{IgnoreAnnotation: `["/spec/text"]`}},
			"spec": map[string]any{"text": c.value},
			"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "False",
				"reason": "No", "message": strings.Repeat("é", 1<<20)}}},
		}}
		o, err := Project(u)
		if err != nil {
			t.Fatal(err)
		}
		if len(o.Finalizers) != maxFinalizers {
			t.Errorf("%d finalizers, want %d", len(o.Finalizers), maxFinalizers)
		}
		if len(o.KeptFields) != 1 || o.KeptFields[0].Withheld != c.withheld ||
			(len(o.KeptFields[0].Value) == 0) != c.withheld {
			t.Errorf("a value of %d bytes: withheld %v, want %v", len(c.value), o.KeptFields[0].Withheld, c.withheld)
		}
		if len(o.Message) > maxMessageBytes || o.Message == "" {
			t.Errorf("a message of %d bytes", len(o.Message))
		}
	}
}
