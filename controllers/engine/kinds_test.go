package engine

import (
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
)

// A plan that was made before the index was synced is incomplete, even if the index is synced at
// the end of the pass.
func TestPlanSyncError(t *testing.T) {
	inv := plan.NewInventory(nil, nil)
	inv.Put(appsv1.InventoryEntry{ID: "ns_a__ConfigMap", State: appsv1.EntryApplied})
	wait := func(id string, r plan.Reason) plan.Action {
		return plan.Action{Verb: plan.VerbWait, Reason: r, Entry: appsv1.InventoryEntry{ID: id}, Message: "not synced"}
	}
	for name, c := range map[string]struct {
		waits []plan.Action
		want  bool
	}{
		"no waits":                {nil, false},
		"wait for another reason": {[]plan.Action{wait("ns_a__ConfigMap", plan.ReasonNotServed)}, false},
		"not synced for an entry": {[]plan.Action{wait("ns_b__ConfigMap", plan.ReasonIndexNotSynced),
			wait("ns_a__ConfigMap", plan.ReasonIndexNotSynced)}, true},
		"not synced for a new object": {[]plan.Action{wait("ns_b__ConfigMap", plan.ReasonIndexNotSynced)}, false},
	} {
		if got := planSyncError(&plan.Plan{Waits: c.waits}, inv) != nil; got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
