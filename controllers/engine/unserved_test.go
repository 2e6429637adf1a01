package engine

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// holder is an owner that has an inventory and no more.
type holder struct {
	keyOnly
	inv *Inventory
}

func (h *holder) Inventory() *Inventory { return h.inv }

// widgetsOf is an owner with so many widgets and a ConfigMap.
func widgetsOf(n int) *holder {
	h := &holder{inv: NewInventory(nil, nil)}
	h.inv.Put(entry("cm", appsv1.EntryApplied))
	for i := range n {
		id := stacks.Ref{Group: "g.io", Kind: "Widget", Namespace: "ns", Name: fmt.Sprint(i)}.ID()
		h.inv.Put(appsv1.InventoryEntry{ID: id, Version: "v1", State: appsv1.EntryApplied, UID: "uid"})
	}
	return h
}

// What is of a kind that is gone went with it. It is asked once for each kind,
// however many objects there were.
func TestDropUnserved(t *testing.T) {
	s, d := newAPIServer()
	h := widgetsOf(1000)
	wanted := map[string]bool{"ns_7_g.io_Widget": true}
	if err := New(Options{}).dropUnserved(t.Context(), &Target{Discovery: d}, h, wanted); err != nil {
		t.Fatal(err)
	}
	if _, ok := h.inv.Get("ns_7_g.io_Widget"); !ok || h.inv.Len() != 2 {
		t.Errorf("%d entries are left, want the ConfigMap and what is wanted", h.inv.Len())
	}
	if s.asked > 2 {
		t.Errorf("asked %d times", s.asked)
	}
}

func TestDropUnservedKeepsWhatMayBeThere(t *testing.T) {
	for name, change := range map[string]func(*apiServer){
		"served": func(s *apiServer) { s.lists = append(s.lists, widgets) },
		"served in another version": func(s *apiServer) {
			s.lists = append(s.lists, serves("g.io/v2", resource("widgets", "Widget", true, "get", "list")))
		},
		"a group that does not answer": func(s *apiServer) {
			s.failed = map[schema.GroupVersion]error{{Group: "h.io", Version: "v1"}: errors.New("down")}
		},
		"no answer at all": func(s *apiServer) { s.down = errors.New("down") },
	} {
		t.Run(name, func(t *testing.T) {
			s, d := newAPIServer()
			change(s)
			h := widgetsOf(3)
			err := New(Options{}).dropUnserved(t.Context(), &Target{Discovery: d}, h, nil)
			if err != nil && s.down == nil {
				t.Error(err)
			}
			if h.inv.Len() != 4 {
				t.Errorf("%d entries are left", h.inv.Len())
			}
		})
	}
}
