package engine

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

func numbered(n int) appsv1.InventoryEntry {
	return appsv1.InventoryEntry{ID: ref(fmt.Sprintf("n%05d", n)).ID(), Version: "v1", Component: "c", State: appsv1.EntryIntended}
}

// filled is an inventory of n entries that is on disk.
func filled(t *testing.T, n int) (*Inventory, *disk) {
	t.Helper()
	d := &disk{}
	inv := NewInventory(nil, nil)
	for i := range n {
		inv.Put(numbered(i))
	}
	if err := d.persist(inv, nil); err != nil {
		t.Fatal(err)
	}
	return inv, d
}

func TestInventoryInTheStatusAlone(t *testing.T) {
	inv := NewInventory(nil, nil)
	if inv.Status() != nil {
		t.Error("an empty inventory takes no room in the status")
	}
	for _, n := range []int{3, 1, 2} {
		inv.Put(numbered(n))
	}
	inv.Remove(numbered(2).ID)
	inv.Remove("never there")
	want := &appsv1.Inventory{Entries: []appsv1.InventoryEntry{numbered(1), numbered(3)}}
	if got := inv.Status(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	again := NewInventory(inv.Status(), nil)
	if got := again.Entries(); !reflect.DeepEqual(got, want.Entries) || again.Len() != 2 {
		t.Errorf("read back: %+v", got)
	}
	if _, ok := again.Get(numbered(2).ID); ok {
		t.Error("removed, and there")
	}
	if e, ok := again.Get(numbered(3).ID); !ok || e != numbered(3) {
		t.Errorf("%+v, %t", e, ok)
	}
}

// A status must be the same text for the same inventory, or each reconcile would write.
func TestInventoryStatusIsStable(t *testing.T) {
	inv, _ := filled(t, 2500)
	for i := range 100 {
		e := numbered(i * 7)
		e.State = appsv1.EntryApplied
		inv.Put(e)
		inv.Remove(numbered(i*7 + 1).ID)
	}
	first := inv.Status()
	for range 10 {
		if !reflect.DeepEqual(first, inv.Status()) {
			t.Fatal("another order")
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
		"nothing":                          {0, 0, 0, false},
		"as much as the status holds":      {0, MaxStatusEntries, 0, false},
		"one more":                         {0, MaxStatusEntries + 1, 0, true},
		"chunks, and nothing changed":      {MaxStatusEntries + 1, 0, 0, false},
		"as much as the journal holds":     {MaxStatusEntries + 1, maxJournal, 0, false},
		"one more than that":               {MaxStatusEntries + 1, maxJournal + 1, 0, true},
		"removals are in the journal, too": {MaxStatusEntries + 1, 0, maxJournal + 1, true},
		"all together":                     {MaxStatusEntries + 1, 300, 300, true},
		"everything is gone":               {MaxStatusEntries + 1, 0, MaxStatusEntries + 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			inv, _ := filled(t, tc.chunked)
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
	inv, d := filled(t, 1500)
	if d.status == nil || len(d.status.Entries) != 0 || len(d.status.Chunks) != 2 {
		t.Fatalf("the status repeats what the chunks hold: %d entries, chunks %v", len(d.status.Entries), d.status.Chunks)
	}
	changed, added := numbered(7), numbered(9000)
	changed.State, added.State = appsv1.EntryApplied, appsv1.EntryApplied
	inv.Put(changed)
	inv.Put(added)
	inv.Put(numbered(8)) // as it was: no change
	inv.Remove(numbered(9).ID)
	inv.Remove(added.ID) // came and went: nothing to tell
	chunks := d.written
	if err := d.persist(inv, nil); err != nil {
		t.Fatal(err)
	}
	if d.written != chunks {
		t.Error("a small change is for the status alone")
	}
	if want := []appsv1.InventoryEntry{changed}; !reflect.DeepEqual(d.status.Entries, want) {
		t.Errorf("journal %+v", d.status.Entries)
	}
	if want := []string{numbered(9).ID}; !slices.Equal(d.status.Removed, want) {
		t.Errorf("removed %v", d.status.Removed)
	}
	again := d.load()
	if !reflect.DeepEqual(again.Entries(), inv.Entries()) {
		t.Error("read back otherwise")
	}
	// A new process goes on with the same journal.
	if !reflect.DeepEqual(again.Status(), d.status) {
		t.Errorf("a new process would write %+v", again.Status())
	}
}

// One change costs one chunk, wherever it falls.
func TestSpreadLeavesEntriesWhereTheyAre(t *testing.T) {
	for name, change := range map[string]func(*Inventory){
		"the first changes": func(inv *Inventory) { e := numbered(0); e.State = appsv1.EntryApplied; inv.Put(e) },
		"the first goes":    func(inv *Inventory) { inv.Remove(numbered(0).ID) },
		"the last goes":     func(inv *Inventory) { inv.Remove(numbered(4999).ID) },
		"a new first one": func(inv *Inventory) {
			e := numbered(0)
			e.ID = "a_first__ConfigMap"
			inv.Put(e)
		},
		"goes and comes back otherwise": func(inv *Inventory) {
			inv.Remove(numbered(2500).ID)
			e := numbered(2500)
			e.State = appsv1.EntryApplied
			inv.Put(e)
		},
		"one goes, and another fills its place": func(inv *Inventory) { inv.Remove(numbered(1500).ID); inv.Put(numbered(8000)) },
	} {
		t.Run(name, func(t *testing.T) {
			inv, _ := filled(t, 5000)
			change(inv)
			dirty := 0
			for _, c := range inv.Spread(chunkName) {
				if inv.Dirty(c) {
					dirty++
				}
			}
			if dirty != 1 {
				t.Errorf("%d chunks would be written", dirty)
			}
		})
	}
	inv, _ := filled(t, 5000)
	for _, c := range inv.Spread(chunkName) {
		if inv.Dirty(c) {
			t.Errorf("%s would be written for nothing", c.Name)
		}
	}
}

// Chunks that became empty go, and their names are used again.
func TestChunksGoWhenEmpty(t *testing.T) {
	inv, d := filled(t, 3000)
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
		t.Errorf("left: %+v, %d chunks", d.status, len(d.chunks))
	}
}
