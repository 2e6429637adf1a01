package engine

import (
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// A plan that was made before the index knew everything says nothing of the owner,
// though the index knows by the time that the pass ends.
func TestWasUnsynced(t *testing.T) {
	inv := NewInventory(nil, nil)
	inv.Put(appsv1.InventoryEntry{ID: "ns_a__ConfigMap", State: appsv1.EntryApplied})
	wait := func(id string, r Reason) Action {
		return Action{Verb: Wait, Reason: r, Entry: appsv1.InventoryEntry{ID: id}, Message: "not synced"}
	}
	for name, c := range map[string]struct {
		waits []Action
		want  bool
	}{
		"nothing is waited for":          {nil, false},
		"something else is":              {[]Action{wait("ns_a__ConfigMap", NotServed)}, false},
		"the index, for what it has":     {[]Action{wait("ns_b__ConfigMap", Unsynced), wait("ns_a__ConfigMap", Unsynced)}, true},
		"the index, for what it has not": {[]Action{wait("ns_b__ConfigMap", Unsynced)}, false},
	} {
		if got := wasUnsynced(&Plan{Waits: c.waits}, inv) != nil; got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
