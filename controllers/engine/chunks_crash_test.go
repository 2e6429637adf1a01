package engine

import (
	"errors"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
)

// crashAtEachWrite runs a scenario repeatedly, with a store that crashes before its n-th write, for
// each write.
func crashAtEachWrite(t *testing.T, scenario func(r *chunkTest, crash func(*plan.Inventory) bool)) {
	t.Helper()
	for n := 0; ; n++ {
		r := newChunkTest(t)
		crashed := false
		scenario(r, func(inv *plan.Inventory) bool {
			left := n
			r.before = func(string) error {
				if left--; left < 0 {
					return errCrash
				}
				return nil
			}
			err := r.SaveChunks(t.Context(), me, inv)
			crashed, r.before = err != nil, nil
			if crashed && !errors.Is(err, errCrash) {
				t.Fatal(err)
			}
			r.restart()
			return crashed
		})
		if !crashed {
			if n < 2 {
				t.Errorf("only %d writes", n)
			}
			return
		}
	}
}

func TestCrashWhileInventorySpillsIntoChunks(t *testing.T) {
	crashAtEachWrite(t, func(r *chunkTest, crash func(*plan.Inventory) bool) {
		inv := r.load(nil)
		putNumbered(inv, 0, 1000)
		status := inv.Status() // 1000 objects exist
		putNumbered(inv, 1000, 3500)
		crashed := crash(inv)
		again := r.load(status)
		for i := range 1000 {
			if _, ok := again.Get(numbered(i).ID); !ok {
				t.Fatalf("%d is lost", i)
			}
		}
		if crashed {
			putNumbered(again, 0, 3500) // the next plan
			if err := r.SaveChunks(t.Context(), me, again); err != nil {
				t.Fatal(err)
			}
		}
		if n := r.load(again.Status()).Len(); n != 3500 {
			t.Errorf("%d entries", n)
		}
	})
}

func TestCrashWhileChunksAreRewritten(t *testing.T) {
	crashAtEachWrite(t, func(r *chunkTest, crash func(*plan.Inventory) bool) {
		inv := r.load(nil)
		putNumbered(inv, 0, 3000)
		if err := r.SaveChunks(t.Context(), me, inv); err != nil {
			t.Fatal(err)
		}
		for i := 0; i < 3000; i += 5 { // a journal of 200 changed, 200 new and 200 removed entries
			e := numbered(i)
			e.State = appsv1.EntryApplied
			switch i % 3 {
			case 0:
				inv.Put(e)
			case 1:
				inv.Remove(e.ID)
			default:
				putNumbered(inv, 4000+i, 4001+i)
			}
		}
		status, want := inv.Status(), inv.Entries()
		crash(inv)
		again := r.load(status)
		if !slices.Equal(again.Entries(), want) {
			t.Errorf("%d entries, want %d", again.Len(), len(want))
		}
		if err := r.SaveChunks(t.Context(), me, again); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(r.load(again.Status()).Entries(), want) {
			t.Error("the loaded inventory differs")
		}
	})
}

// Chunks are deleted before the status that names them is written.
func TestCrashWhileChunksAreDeleted(t *testing.T) {
	crashAtEachWrite(t, func(r *chunkTest, crash func(*plan.Inventory) bool) {
		inv := r.load(nil)
		putNumbered(inv, 0, 2500)
		if err := r.SaveChunks(t.Context(), me, inv); err != nil {
			t.Fatal(err)
		}
		status := inv.Status()
		for i := range 2500 {
			inv.Remove(numbered(i).ID)
		}
		crash(inv)
		again := r.load(status)
		for i := range 2500 { // found to be gone again
			again.Remove(numbered(i).ID)
		}
		if again.NeedsChunks() {
			if err := r.SaveChunks(t.Context(), me, again); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(r.stored()); n > 0 || again.Status() != nil {
			t.Errorf("%d chunks are left, and %+v", n, again.Status())
		}
	})
}

// After a failed write without a crash, the process continues with its inventory.
func TestInventoryAfterFailedChunkWrite(t *testing.T) {
	r := newChunkTest(t)
	old := plan.NewInventory(nil, nil)
	putNumbered(old, 1500, 2500)
	inv := r.load(old.Status())
	putNumbered(inv, 0, 1500)
	r.before = func(what string) error {
		if what == "create 2" {
			return errors.New("timeout")
		}
		return nil
	}
	if err := r.SaveChunks(t.Context(), me, inv); err == nil {
		t.Fatal("no error")
	}
	r.before = nil
	if got := r.load(inv.Status()); !slices.Equal(got.Entries(), inv.Entries()) {
		t.Errorf("a status written now leads to %d entries, want %d", got.Len(), inv.Len())
	}
	// If entries moved between chunks, the last chunk would have to be written, too.
	first := numbered(0)
	first.ID = "a_first__ConfigMap"
	inv.Put(first)
	inv.Remove(numbered(1500).ID)
	r.save(inv, "update 1", "create 2")
	r.restart()
	if got := r.load(inv.Status()); !slices.Equal(got.Entries(), inv.Entries()) {
		t.Errorf("%d entries, want %d", got.Len(), inv.Len())
	}
}

// The first load may come from a cache. A later load follows our own writes, which the cache may
// not have yet.
func TestOnlyFirstLoadUsesCache(t *testing.T) {
	r := newChunkTest(t)
	behind := fake.NewClientBuilder().WithScheme(r.server.Scheme()).Build()
	r.Reader = client.Reader(behind)
	inv := r.load(nil)
	putNumbered(inv, 0, 1001)
	r.save(inv, "create 0", "create 1")
	if n := r.load(inv.Status()).Len(); n != 1001 {
		t.Errorf("loaded %d entries, want 1001", n)
	}
}

func TestLoadChunksReturnsReadErrors(t *testing.T) {
	r := newChunkTest(t)
	r.Reader = fake.NewClientBuilder().Build() // its scheme lacks the kind
	if _, err := r.LoadChunks(t.Context(), me, nil); err == nil {
		t.Error("no error: the inventory would count as empty")
	}
}
