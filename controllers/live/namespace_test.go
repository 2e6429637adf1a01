package live

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A namespace says in its status what holds it, and its owner hears of a change of that.
func TestNamespaceRemains(t *testing.T) {
	terminating := func(apiVersion, message string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": "Namespace",
			"metadata": map[string]any{"name": "x", "uid": uid1, "resourceVersion": "1", "deletionTimestamp": "2026-01-01T00:00:00Z"},
			"status": map[string]any{"conditions": []any{
				map[string]any{"type": "NamespaceDeletionDiscoveryFailure", "status": "False", "message": "All resources successfully discovered"},
				map[string]any{"type": "NamespaceContentRemaining", "status": "True", "message": "Some resources are remaining: x"},
				map[string]any{"type": "NamespaceFinalizersRemaining", "status": "True", "message": message},
			}}}}
	}
	packed := func(u *unstructured.Unstructured) (*entry, Object) {
		o, err := Project(u)
		if err != nil {
			t.Fatal(err)
		}
		e := pack(&o, &interner{})
		return e, e.unpack(o.Ref.GroupKind(), name{name: "x"})
	}
	a, o := packed(terminating("v1", "example.com/a in 2 resource instances"))
	if o.Remains != "example.com/a in 2 resource instances" {
		t.Errorf("remains %q", o.Remains)
	}
	if b, _ := packed(terminating("v1", "example.com/a in 1 resource instances")); !a.matters(b) || a.matters(a) {
		t.Error("a change of what remains is not told, or none is")
	}
	if _, o := packed(terminating("v1", strings.Repeat("x", 10_000))); len(o.Remains) > maxMessage {
		t.Errorf("%d bytes", len(o.Remains))
	}
	if _, o := packed(terminating("v1", "")); o.Remains != "Some resources are remaining: x" {
		t.Errorf("remains %q", o.Remains)
	}
	if _, o := packed(terminating("example.com/v1", "x")); o.Remains != "" {
		t.Errorf("another kind remains %q", o.Remains)
	}
}
