package engine

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/stacks"
)

// inventoryOwner is an owner that has only a key and an inventory.
type inventoryOwner struct {
	keyOnly
	inv *plan.Inventory
}

func (h *inventoryOwner) Inventory() *plan.Inventory { return h.inv }

// ownerOfWidgets returns an owner of n widgets and a ConfigMap.
func ownerOfWidgets(n int) *inventoryOwner {
	h := &inventoryOwner{inv: plan.NewInventory(nil, nil)}
	h.inv.Put(entry("cm", appsv1.EntryApplied))
	for i := range n {
		id := stacks.Ref{Group: "g.io", Kind: "Widget", Namespace: "ns", Name: fmt.Sprint(i)}.ID()
		h.inv.Put(appsv1.InventoryEntry{ID: id, Version: "v1", State: appsv1.EntryApplied, UID: "uid"})
	}
	return h
}

// The entries of a kind that is gone are removed. The server is asked once for each kind,
// independent of the number of objects.
func TestDropImpossibleRemovesEntriesOfAbsentKinds(t *testing.T) {
	s, d := newAPIServer()
	h := ownerOfWidgets(1000)
	wanted := map[string]bool{"ns_7_g.io_Widget": true}
	if err := New(Options{}).newExecutor(Pass{Owner: h, Target: &Target{Discovery: d}}).
		dropImpossible(t.Context(), wanted); err != nil {
		t.Fatal(err)
	}
	if _, ok := h.inv.Get("ns_7_g.io_Widget"); !ok || h.inv.Len() != 2 {
		t.Errorf("%d entries are left, want the ConfigMap and the desired one", h.inv.Len())
	}
	if s.requests > 2 {
		t.Errorf("%d requests", s.requests)
	}
}

// Entries that earlier versions recorded for objects that cannot exist are removed, also while
// their objects are desired.
func TestDropImpossibleRemovesEntriesThatNeverHadAnObject(t *testing.T) {
	d := completeAPIServer()
	h := &inventoryOwner{inv: plan.NewInventory(nil, nil)}
	probe := appsv1.InventoryEntry{ID: stacks.Ref{Group: "h.io", Kind: "Probe", Namespace: "ns", Name: "x"}.ID(),
		Version: "v1", State: appsv1.EntryIntended}
	keep := map[string]bool{probe.ID: true}
	for _, e := range []appsv1.InventoryEntry{probe, entry("a/b", appsv1.EntryIntended),
		entry("a", appsv1.EntryIntended), entry("b", appsv1.EntryApplied)} {
		keep[e.ID] = true
		h.inv.Put(e)
	}
	if err := New(Options{}).newExecutor(Pass{Owner: h, Target: &Target{Discovery: d}}).
		dropImpossible(t.Context(), keep); err != nil {
		t.Fatal(err)
	}
	if got := h.inv.Entries(); len(got) != 2 || got[0].ID != ref("a").ID() || got[1].ID != ref("b").ID() {
		t.Errorf("entries are left: %+v", got)
	}
}

func TestDropImpossibleKeepsEntriesOfUncertainKinds(t *testing.T) {
	for name, change := range map[string]func(*apiServer){
		"served": func(s *apiServer) { s.lists = append(s.lists, widgets) },
		"served in another version": func(s *apiServer) {
			s.lists = append(s.lists, resourceList("g.io/v2", resource("widgets", "Widget", true, "get", "list")))
		},
		"a group that does not answer": func(s *apiServer) {
			s.failed = map[schema.GroupVersion]error{{Group: "h.io", Version: "v1"}: errors.New("down")}
		},
		"discovery fails": func(s *apiServer) { s.down = errors.New("down") },
	} {
		t.Run(name, func(t *testing.T) {
			s, d := newAPIServer()
			change(s)
			h := ownerOfWidgets(3)
			err := New(Options{}).newExecutor(Pass{Owner: h, Target: &Target{Discovery: d}}).
				dropImpossible(t.Context(), nil)
			if err != nil && s.down == nil {
				t.Error(err)
			}
			if h.inv.Len() != 4 {
				t.Errorf("%d entries are left", h.inv.Len())
			}
		})
	}
}
