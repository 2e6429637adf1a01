package engine

import (
	"errors"
	"maps"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// crashes calls life with a store that dies before its n-th write, for each n
// that there is.
func crashes(t *testing.T, life func(r *chunkRig, die func(*Inventory) bool)) {
	t.Helper()
	for n := 0; ; n++ {
		r := newChunkRig(t)
		died := false
		life(r, func(inv *Inventory) bool {
			left := n
			r.before = func(string) error {
				if left--; left < 0 {
					return errCrash
				}
				return nil
			}
			err := r.Save(t.Context(), me, inv)
			died, r.before = err != nil, nil
			if died && !errors.Is(err, errCrash) {
				t.Fatal(err)
			}
			r.start()
			return died
		})
		if !died {
			if n < 2 {
				t.Errorf("only %d writes", n)
			}
			return
		}
	}
}

func TestCrashWhileAnInventorySpills(t *testing.T) {
	crashes(t, func(r *chunkRig, die func(*Inventory) bool) {
		inv := r.load(nil)
		put(inv, 0, 1000)
		status := inv.Status() // 1000 objects exist
		put(inv, 1000, 3500)
		crashed := die(inv)
		again := r.load(status)
		for i := range 1000 {
			if _, ok := again.Get(numbered(i).ID); !ok {
				t.Fatalf("%d is lost", i)
			}
		}
		if crashed {
			put(again, 0, 3500) // planned again
			if err := r.Save(t.Context(), me, again); err != nil {
				t.Fatal(err)
			}
		}
		if n := r.load(again.Status()).Len(); n != 3500 {
			t.Errorf("%d entries", n)
		}
	})
}

func TestCrashWhileChunksAreWrittenAnew(t *testing.T) {
	crashes(t, func(r *chunkRig, die func(*Inventory) bool) {
		inv := r.load(nil)
		put(inv, 0, 3000)
		if err := r.Save(t.Context(), me, inv); err != nil {
			t.Fatal(err)
		}
		for i := 0; i < 3000; i += 5 { // a journal of 200 changes, as many new and 200 gone
			e := numbered(i)
			e.State = appsv1.EntryApplied
			switch i % 3 {
			case 0:
				inv.Put(e)
			case 1:
				inv.Remove(e.ID)
			default:
				put(inv, 4000+i, 4001+i)
			}
		}
		status, want := inv.Status(), maps.Clone(inv.entries)
		die(inv)
		again := r.load(status)
		if !maps.Equal(again.entries, want) {
			t.Errorf("%d entries, want %d", again.Len(), len(want))
		}
		if err := r.Save(t.Context(), me, again); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(r.load(again.Status()).entries, want) {
			t.Error("read back otherwise")
		}
	})
}

// The chunks go before the status does that names them.
func TestCrashWhileChunksAreDeleted(t *testing.T) {
	crashes(t, func(r *chunkRig, die func(*Inventory) bool) {
		inv := r.load(nil)
		put(inv, 0, 2500)
		if err := r.Save(t.Context(), me, inv); err != nil {
			t.Fatal(err)
		}
		status := inv.Status()
		for i := range 2500 {
			inv.Remove(numbered(i).ID)
		}
		die(inv)
		again := r.load(status)
		for i := range 2500 { // gone, as it turns out again
			again.Remove(numbered(i).ID)
		}
		if again.NeedsChunks() {
			if err := r.Save(t.Context(), me, again); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(r.stored()); n > 0 || again.Status() != nil {
			t.Errorf("%d chunks are left, and %+v", n, again.Status())
		}
	})
}

// A write that fails is no crash: the process goes on with what it knows.
func TestChunkWriteThatFailsInBetween(t *testing.T) {
	r := newChunkRig(t)
	old := NewInventory(nil, nil)
	put(old, 1500, 2500)
	inv := r.load(old.Status())
	put(inv, 0, 1500)
	r.before = func(what string) error {
		if what == "create 2" {
			return errors.New("timeout")
		}
		return nil
	}
	if err := r.Save(t.Context(), me, inv); err == nil {
		t.Fatal("no error")
	}
	r.before = nil
	if got := r.load(inv.Status()); !maps.Equal(got.entries, inv.entries) {
		t.Errorf("a status written now tells of %d entries, there are %d", got.Len(), inv.Len())
	}
	// Had the first chunks shifted, the last would have to be written, too.
	first := numbered(0)
	first.ID = "a_first__ConfigMap"
	inv.Put(first)
	inv.Remove(numbered(1500).ID)
	r.save(inv, "update 1", "create 2")
	r.start()
	if got := r.load(inv.Status()); !maps.Equal(got.entries, inv.entries) {
		t.Errorf("%d entries, want %d", got.Len(), inv.Len())
	}
}

// The first load may come from a cache. A later one may not: it comes after
// writes of our own, which the cache may not have.
func TestChunksAreLoadedFromACacheOnce(t *testing.T) {
	r := newChunkRig(t)
	behind := fake.NewClientBuilder().WithScheme(r.server.Scheme()).Build()
	r.Reader = client.Reader(behind)
	inv := r.load(nil)
	put(inv, 0, 1001)
	r.save(inv, "create 0", "create 1")
	if n := r.load(inv.Status()).Len(); n != 1001 {
		t.Errorf("%d entries: the others exist, and nothing knows them", n)
	}
}

func TestChunksThatCannotBeRead(t *testing.T) {
	r := newChunkRig(t)
	r.Reader = fake.NewClientBuilder().Build() // knows no such kind
	if _, err := r.Load(t.Context(), me, nil); err == nil {
		t.Error("an inventory that can't be read must not pass for an empty one")
	}
}
