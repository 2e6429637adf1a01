package engine

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// disk is what outlives a process: the status of the owner and its chunks.
type disk struct {
	status *appsv1.Inventory
	chunks map[string][]appsv1.InventoryEntry
	// written counts chunks.
	written int
}

func chunkName(n int) string { return fmt.Sprintf("chunk-%d", n) }

var errCrash = errors.New("crash")

// persist writes as the controller does, chunks before the status. stop is
// called before each write, and ends it with an error.
func (d *disk) persist(inv *Inventory, stop func() error) error {
	if stop == nil {
		stop = func() error { return nil }
	}
	if inv.NeedsChunks() {
		var mu sync.Mutex // chunks are written at the same time
		save := func(c Chunk) error {
			mu.Lock()
			defer mu.Unlock()
			if err := stop(); err != nil {
				return err
			}
			d.written++
			if d.chunks == nil {
				d.chunks = map[string][]appsv1.InventoryEntry{}
			}
			if delete(d.chunks, c.Name); len(c.Entries) > 0 {
				d.chunks[c.Name] = slices.Clone(c.Entries)
			}
			return nil
		}
		if err := inv.Save(chunkName, save); err != nil {
			return err
		}
	}
	if err := stop(); err != nil {
		return err
	}
	d.status = inv.Status().DeepCopy()
	return nil
}

// load reads as a new process does.
func (d *disk) load() *Inventory {
	var chunks []appsv1.KsctlInventory
	for _, name := range slices.Sorted(maps.Keys(d.chunks)) {
		c := appsv1.KsctlInventory{Entries: slices.Clone(d.chunks[name])}
		c.Name = name
		chunks = append(chunks, c)
	}
	return NewInventory(d.status.DeepCopy(), chunks)
}

var (
	seed  = flag.Int64("inventory.seed", 0, "the seed of the random life to repeat")
	lives = flag.Int("inventory.lives", 5, "how many random lives an inventory has")
)

// Whatever happens in whatever order, and wherever the process dies: what
// exists is in the inventory.
func TestInventoryLives(t *testing.T) {
	if *seed != 0 {
		oneLife(t, *seed)
		return
	}
	first := time.Now().UnixNano()
	for i := range *lives {
		s := first + int64(i)
		t.Run(fmt.Sprintf("seed %d", s), func(t *testing.T) { oneLife(t, s) })
	}
}

// life is an inventory, its model, and the cluster that it tells of.
type life struct {
	*disk
	t     *testing.T
	rnd   *rand.Rand
	inv   *Inventory
	model map[string]appsv1.InventoryEntry
	// exists are the objects that are there, and that we made.
	exists map[string]bool
}

func oneLife(t *testing.T, seed int64) {
	l := &life{disk: &disk{}, t: t, rnd: rand.New(rand.NewSource(seed)), model: map[string]appsv1.InventoryEntry{}, exists: map[string]bool{}}
	l.inv = l.load()
	for range 40 {
		l.step()
		if t.Failed() {
			t.Fatalf("again with -run TestInventoryLives -inventory.seed %d", seed)
		}
	}
}

func (l *life) step() {
	n := []int{1, 3, 200, 800, 1500}[l.rnd.Intn(5)]
	if l.rnd.Intn(3) == 0 {
		l.remove(n)
	} else {
		l.create(n)
	}
	if l.rnd.Intn(10) == 0 { // everything goes
		l.remove(len(l.model))
	}
	switch l.rnd.Intn(4) {
	case 0: // nothing is written for a while
	case 1:
		l.die(errCrash)
	default:
		l.persist(nil)
	}
	l.check()
}

// create records what is intended, and only then makes it.
func (l *life) create(n int) {
	var ids []string
	for range n {
		e := numbered(l.rnd.Intn(6000))
		ids = append(ids, e.ID)
		if _, known := l.model[e.ID]; !known {
			l.put(e)
		}
	}
	if l.rnd.Intn(5) == 0 {
		l.die(errCrash)
		return
	}
	if l.rnd.Intn(5) == 0 { // a write fails, and the process goes on
		left := l.rnd.Intn(5)
		_ = l.disk.persist(l.inv, func() error {
			if left--; left < 0 {
				return errors.New("timeout")
			}
			return nil
		})
		return
	}
	l.persist(nil)
	for i, id := range ids {
		l.exists[id] = true
		if l.rnd.Intn(20) == 0 {
			continue // the answer got lost
		}
		e := l.model[id]
		e.State, e.Hash = appsv1.EntryApplied, fmt.Sprint(l.rnd.Intn(3))
		l.put(e)
		if i == n/2 && l.rnd.Intn(10) == 0 {
			l.die(errCrash)
			return
		}
	}
}

// remove drops entries after their objects went.
func (l *life) remove(n int) {
	ids := slices.Sorted(maps.Keys(l.model))
	l.rnd.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for _, id := range ids[:min(n, len(ids))] {
		delete(l.exists, id)
		delete(l.model, id)
		l.inv.Remove(id)
	}
}

func (l *life) put(e appsv1.InventoryEntry) {
	l.model[e.ID] = e
	l.inv.Put(e)
}

func (l *life) persist(stop func() error) {
	if err := l.disk.persist(l.inv, stop); err != nil {
		l.t.Fatal(err)
	}
	got := l.load()
	if !maps.Equal(got.entries, l.model) {
		l.t.Errorf("what is read back (%d entries) is not what was written (%d)", got.Len(), len(l.model))
	}
	var named []string
	if l.status != nil {
		named = l.status.Chunks
	}
	if there := slices.Sorted(maps.Keys(l.chunks)); !slices.Equal(named, there) {
		l.t.Errorf("the status names chunks %v, there are %v", named, there)
	}
	if l.status != nil && len(l.status.Entries)+len(l.status.Removed) > MaxStatusEntries {
		l.t.Errorf("%d entries in a status", len(l.status.Entries))
	}
}

// die ends the process at some write; the next one goes on with what is on disk.
func (l *life) die(err error) {
	left := l.rnd.Intn(8)
	_ = l.disk.persist(l.inv, func() error {
		if left--; left < 0 {
			return err
		}
		return nil
	})
	l.inv = l.load()
	l.model = maps.Clone(l.inv.entries)
}

func (l *life) check() {
	if !maps.Equal(l.inv.entries, l.model) {
		l.t.Error("the inventory in memory is not the model")
	}
	onDisk := l.load()
	for id := range l.exists {
		if _, ok := onDisk.Get(id); !ok {
			l.t.Errorf("%s exists, and a new process would not know it", id)
			return
		}
	}
	seen := map[string]string{}
	for name, entries := range l.chunks {
		if len(entries) > MaxStatusEntries || len(entries) == 0 {
			l.t.Errorf("%s has %d entries", name, len(entries))
		}
		for _, e := range entries {
			if other := seen[e.ID]; other != "" {
				l.t.Errorf("%s is in %s and in %s", e.ID, other, name)
			}
			seen[e.ID] = name
		}
	}
}
