package install

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/stacks"
)

func TestSharedDefinitionsAreThoseInUse(t *testing.T) {
	const crd = "widgets.example.com"
	id := definitionID(crd)
	ref, _ := stacks.ParseID(id)
	it := plan.Item{Object: stacks.Object{Ref: ref}, ID: id}
	action := plan.Action{Item: &it, Entry: appsv1.InventoryEntry{ID: id}}
	refused := action
	refused.Verb, refused.Reason = plan.VerbRefuse, plan.ReasonOwnedByOther
	unsynced := action
	unsynced.Verb, unsynced.Reason = plan.VerbWait, plan.ReasonIndexNotSynced
	entry := func(state appsv1.EntryState, uid types.UID) []appsv1.InventoryEntry {
		return []appsv1.InventoryEntry{{ID: id, Version: "v1", State: state, UID: uid}}
	}
	wanted := []plan.Component{{Name: "c", Items: []plan.Item{it}}}
	for name, tc := range map[string]struct {
		before     []string
		components []plan.Component
		plan       plan.Plan
		entries    []appsv1.InventoryEntry
		used       bool
	}{
		"it is shared":  {components: wanted, plan: plan.Plan{Shared: []plan.Action{action}}, used: true},
		"it is refused": {components: wanted, plan: plan.Plan{Waits: []plan.Action{refused}}},
		"it is no longer served": {before: []string{crd}, components: wanted,
			plan: plan.Plan{Waits: []plan.Action{refused}}},
		"the index is not synced": {before: []string{crd}, components: wanted,
			plan: plan.Plan{Waits: []plan.Action{unsynced}}, used: true},
		"the new one is not created": {before: []string{crd}, components: wanted,
			entries: entry(appsv1.EntryIntended, ""), used: true},
		"it was handed over": {before: []string{crd}, components: wanted,
			entries: entry(appsv1.EntryApplied, "uid")},
		"it left the stack":  {before: []string{crd}},
		"it was never there": {components: wanted},
	} {
		t.Run(name, func(t *testing.T) {
			inv := plan.NewInventory(&appsv1.Inventory{Entries: tc.entries}, nil)
			got := sharedDefinitions(tc.before, tc.components, &tc.plan, inv)
			if (len(got) == 1) != tc.used {
				t.Errorf("got %v, used: %t", got, tc.used)
			}
		})
	}
	if got := sharedDefinitions(nil, wanted, &plan.Plan{Shared: []plan.Action{action}},
		plan.NewInventory(nil, nil)); !slices.Equal(got, []string{crd}) {
		t.Errorf("got %v", got)
	}
}
