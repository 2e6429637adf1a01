package plan

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

func numbered(n int) appsv1.InventoryEntry {
	return appsv1.InventoryEntry{ID: ref(fmt.Sprintf("n%05d", n)).ID(), Version: "v1", Component: "c",
		State: appsv1.EntryIntended}
}

// persistedInventory returns an inventory of n entries, and its persisted state.
func persistedInventory(t *testing.T, n int) (*Inventory, *persistedState) {
	t.Helper()
	d := &persistedState{}
	inv := NewInventory(nil, nil)
	for i := range n {
		inv.Put(numbered(i))
	}
	if err := d.persist(inv, nil); err != nil {
		t.Fatal(err)
	}
	return inv, d
}

func TestInventoryWithoutChunks(t *testing.T) {
	inv := NewInventory(nil, nil)
	if inv.Status() != nil {
		t.Error("an empty inventory has a status")
	}
	for _, n := range []int{3, 1, 2} {
		inv.Put(numbered(n))
	}
	inv.Remove(numbered(2).ID)
	inv.Remove("unknown")
	want := &appsv1.Inventory{Entries: []appsv1.InventoryEntry{numbered(1), numbered(3)}}
	if got := inv.Status(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	again := NewInventory(inv.Status(), nil)
	if got := again.Entries(); !reflect.DeepEqual(got, want.Entries) || again.Len() != 2 {
		t.Errorf("loaded %+v", got)
	}
	if _, ok := again.Get(numbered(2).ID); ok {
		t.Error("the removed entry exists")
	}
	if e, ok := again.Get(numbered(3).ID); !ok || e != numbered(3) {
		t.Errorf("%+v, %t", e, ok)
	}
}

// The same inventory must have the same status, or each reconcile would write it.
func TestInventoryStatusIsStable(t *testing.T) {
	inv, _ := persistedInventory(t, 2500)
	for i := range 100 {
		e := numbered(i * 7)
		e.State = appsv1.EntryApplied
		inv.Put(e)
		inv.Remove(numbered(i*7 + 1).ID)
	}
	first := inv.Status()
	for range 10 {
		if !reflect.DeepEqual(first, inv.Status()) {
			t.Fatal("the status differs")
		}
	}
	if again := NewInventory(first, nil); again.Len() != 100 {
		t.Errorf("%d entries in the journal", again.Len())
	}
}

func TestNeedsChunks(t *testing.T) {
	for name, tc := range map[string]struct {
		chunked, put, remove int
		want                 bool
	}{
		"empty":                  {0, 0, 0, false},
		"a full status":          {0, MaxStatusEntries, 0, false},
		"one entry too many":     {0, MaxStatusEntries + 1, 0, true},
		"chunks without changes": {MaxStatusEntries + 1, 0, 0, false},
		"a full journal":         {MaxStatusEntries + 1, maxJournal, 0, false},
		"one change too many":    {MaxStatusEntries + 1, maxJournal + 1, 0, true},
		"one removal too many":   {MaxStatusEntries + 1, 0, maxJournal + 1, true},
		"changes and removals":   {MaxStatusEntries + 1, 300, 300, true},
		"everything removed":     {MaxStatusEntries + 1, 0, MaxStatusEntries + 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			inv, _ := persistedInventory(t, tc.chunked)
			for i := range tc.put {
				inv.Put(numbered(10_000 + i))
			}
			for i := range tc.remove {
				inv.Remove(numbered(i).ID)
			}
			if got := inv.NeedsChunks(); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestJournalOverChunks(t *testing.T) {
	inv, d := persistedInventory(t, 1500)
	if d.status == nil || len(d.status.Entries) != 0 || len(d.status.Chunks) != 2 {
		t.Fatalf("the status has %d entries, chunks %v", len(d.status.Entries), d.status.Chunks)
	}
	changed, added := numbered(7), numbered(9000)
	changed.State, added.State = appsv1.EntryApplied, appsv1.EntryApplied
	inv.Put(changed)
	inv.Put(added)
	inv.Put(numbered(8)) // no change
	inv.Remove(numbered(9).ID)
	inv.Remove(added.ID) // added and removed: no change
	chunks := d.chunkWrites
	if err := d.persist(inv, nil); err != nil {
		t.Fatal(err)
	}
	if d.chunkWrites != chunks {
		t.Error("chunks were written for a small change")
	}
	if want := []appsv1.InventoryEntry{changed}; !reflect.DeepEqual(d.status.Entries, want) {
		t.Errorf("journal %+v", d.status.Entries)
	}
	if want := []string{numbered(9).ID}; !slices.Equal(d.status.Removed, want) {
		t.Errorf("removed %v", d.status.Removed)
	}
	again := d.load()
	if !reflect.DeepEqual(again.Entries(), inv.Entries()) {
		t.Error("the loaded inventory differs")
	}
	// A new process continues the same journal.
	if !reflect.DeepEqual(again.Status(), d.status) {
		t.Errorf("a new process would write %+v", again.Status())
	}
}

// A change leads to the write of one chunk, wherever its entry is.
func TestLayoutKeepsEntriesInTheirChunks(t *testing.T) {
	for name, change := range map[string]func(*Inventory){
		"first entry changes": func(inv *Inventory) { e := numbered(0); e.State = appsv1.EntryApplied; inv.Put(e) },
		"first entry removed": func(inv *Inventory) { inv.Remove(numbered(0).ID) },
		"last entry removed":  func(inv *Inventory) { inv.Remove(numbered(4999).ID) },
		"new first entry": func(inv *Inventory) {
			e := numbered(0)
			e.ID = "a_first__ConfigMap"
			inv.Put(e)
		},
		"removed and added with a change": func(inv *Inventory) {
			inv.Remove(numbered(2500).ID)
			e := numbered(2500)
			e.State = appsv1.EntryApplied
			inv.Put(e)
		},
		"one removed and another added": func(inv *Inventory) {
			inv.Remove(numbered(1500).ID)
			inv.Put(numbered(8000))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inv, _ := persistedInventory(t, 5000)
			change(inv)
			dirty := 0
			for _, c := range inv.Layout(chunkName) {
				if inv.Dirty(c) {
					dirty++
				}
			}
			if dirty != 1 {
				t.Errorf("%d chunks would be written", dirty)
			}
		})
	}
	inv, _ := persistedInventory(t, 5000)
	for _, c := range inv.Layout(chunkName) {
		if inv.Dirty(c) {
			t.Errorf("unchanged chunk %s would be written", c.Name)
		}
	}
}

// Chunks that became empty are deleted, and their names are reused.
func TestEmptyChunksAreDeleted(t *testing.T) {
	inv, d := persistedInventory(t, 3000)
	for i := 1000; i < 2000; i++ {
		inv.Remove(numbered(i).ID)
	}
	if err := d.persist(inv, nil); err != nil {
		t.Fatal(err)
	}
	if want := []string{chunkName(0), chunkName(2)}; !slices.Equal(d.status.Chunks, want) || len(d.chunks) != 2 {
		t.Errorf("chunks %v", d.status.Chunks)
	}
	for i := range 1200 {
		inv.Put(numbered(20_000 + i))
	}
	if err := d.persist(inv, nil); err != nil {
		t.Fatal(err)
	}
	if len(d.chunks) != 4 || d.load().Len() != 3200 {
		t.Errorf("%d chunks, %d entries", len(d.chunks), d.load().Len())
	}
	for _, e := range inv.Entries() {
		inv.Remove(e.ID)
	}
	if err := d.persist(inv, nil); err != nil {
		t.Fatal(err)
	}
	if d.status != nil || len(d.chunks) != 0 {
		t.Errorf("remaining: status %+v, %d chunks", d.status, len(d.chunks))
	}
}
