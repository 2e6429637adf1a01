package engine

import (
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// A plan that was made before the index was synced is incomplete, even if the index is synced at
// the end of the pass.
func TestPlanSyncError(t *testing.T) {
	inv := NewInventory(nil, nil)
	inv.Put(appsv1.InventoryEntry{ID: "ns_a__ConfigMap", State: appsv1.EntryApplied})
	wait := func(id string, r Reason) Action {
		return Action{Verb: VerbWait, Reason: r, Entry: appsv1.InventoryEntry{ID: id}, Message: "not synced"}
	}
	for name, c := range map[string]struct {
		waits []Action
		want  bool
	}{
		"no waits":                    {nil, false},
		"wait for another reason":     {[]Action{wait("ns_a__ConfigMap", ReasonNotServed)}, false},
		"not synced for an entry":     {[]Action{wait("ns_b__ConfigMap", ReasonIndexNotSynced), wait("ns_a__ConfigMap", ReasonIndexNotSynced)}, true},
		"not synced for a new object": {[]Action{wait("ns_b__ConfigMap", ReasonIndexNotSynced)}, false},
	} {
		if got := planSyncError(&Plan{Waits: c.waits}, inv) != nil; got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
