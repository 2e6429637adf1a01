package live

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The status of a terminating namespace contains what remains in it. A change of it is relevant for
// the owner.
func TestNamespaceDeletionMessage(t *testing.T) {
	terminating := func(apiVersion, message string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": "Namespace",
			"metadata": map[string]any{"name": "x", "uid": uid1, "resourceVersion": "1",
				"deletionTimestamp": "2026-01-01T00:00:00Z"},
			"status": map[string]any{"conditions": []any{
				map[string]any{"type": "NamespaceDeletionDiscoveryFailure", "status": "False",
					"message": "All resources successfully discovered"},
				map[string]any{"type": "NamespaceContentRemaining", "status": "True",
					"message": "Some resources are remaining: x"},
				map[string]any{"type": "NamespaceFinalizersRemaining", "status": "True", "message": message},
			}}}}
	}
	packed := func(u *unstructured.Unstructured) (*entry, Object) {
		o, err := Project(u)
		if err != nil {
			t.Fatal(err)
		}
		e := pack(&o, &interner{})
		return e, e.unpack(o.Ref.GroupKind(), objectKey{name: "x"})
	}
	a, o := packed(terminating("v1", "example.com/a in 2 resource instances"))
	if o.DeletionMessage != "example.com/a in 2 resource instances" {
		t.Errorf("deletion message %q", o.DeletionMessage)
	}
	if b, _ := packed(terminating("v1", "example.com/a in 1 resource instances")); !a.differsForOwner(b) ||
		a.differsForOwner(a) {
		t.Error("differsForOwner is false for a changed message, or true for an unchanged one")
	}
	if _, o := packed(terminating("v1", strings.Repeat("x", 10_000))); len(o.DeletionMessage) > maxMessageBytes {
		t.Errorf("%d bytes", len(o.DeletionMessage))
	}
	if _, o := packed(terminating("v1", "")); o.DeletionMessage != "Some resources are remaining: x" {
		t.Errorf("deletion message %q", o.DeletionMessage)
	}
	if _, o := packed(terminating("example.com/v1", "x")); o.DeletionMessage != "" {
		t.Errorf("deletion message of another kind: %q", o.DeletionMessage)
	}
}
