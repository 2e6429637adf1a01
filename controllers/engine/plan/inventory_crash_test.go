package plan

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"testing"
	"time"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// persistedState is the state that survives a crash: the status of the owner and its chunks.
type persistedState struct {
	status *appsv1.Inventory
	chunks map[string][]appsv1.InventoryEntry
	// chunkWrites is the number of written chunks.
	chunkWrites int
}

func chunkName(n int) string { return fmt.Sprintf("chunk-%d", n) }

var errCrash = errors.New("crash")

// persist writes an inventory like the controller: chunks before the status. beforeWrite is called
// before each write, which fails with its error.
func (d *persistedState) persist(inv *Inventory, beforeWrite func() error) error {
	if beforeWrite == nil {
		beforeWrite = func() error { return nil }
	}
	if inv.NeedsChunks() {
		save := func(c Chunk) error {
			if err := beforeWrite(); err != nil {
				return err
			}
			d.chunkWrites++
			if d.chunks == nil {
				d.chunks = map[string][]appsv1.InventoryEntry{}
			}
			if delete(d.chunks, c.Name); len(c.Entries) > 0 {
				d.chunks[c.Name] = slices.Clone(c.Entries)
			}
			return nil
		}
		changed := slices.DeleteFunc(inv.Layout(chunkName), func(c Chunk) bool { return !inv.Dirty(c) })
		errs := make([]error, len(changed))
		for i, c := range changed {
			if errs[i] = save(c); errs[i] == nil {
				inv.MarkWritten(c)
			}
		}
		if err := cmp.Or(errs...); err != nil {
			return err
		}
	}
	if err := beforeWrite(); err != nil {
		return err
	}
	d.status = inv.Status().DeepCopy()
	return nil
}

// load returns the inventory that a new process would load.
func (d *persistedState) load() *Inventory {
	var chunks []appsv1.KsctlInventory
	for _, name := range slices.Sorted(maps.Keys(d.chunks)) {
		c := appsv1.KsctlInventory{Entries: slices.Clone(d.chunks[name])}
		c.Name = name
		chunks = append(chunks, c)
	}
	return NewInventory(d.status.DeepCopy(), chunks)
}

var (
	seed        = flag.Int64("inventory.seed", 0, "seed of the random simulation to repeat")
	simulations = flag.Int("inventory.lives", 5, "number of random simulations")
)

// Existing objects are in the inventory after any sequence of operations and crashes.
func TestInventorySurvivesRandomCrashes(t *testing.T) {
	if *seed != 0 {
		simulate(t, *seed)
		return
	}
	first := time.Now().UnixNano()
	for i := range *simulations {
		s := first + int64(i)
		t.Run(fmt.Sprintf("seed %d", s), func(t *testing.T) { simulate(t, s) })
	}
}

// simulation is an inventory, a model of its content, and the objects in a cluster.
type simulation struct {
	*persistedState
	t     *testing.T
	rnd   *rand.Rand
	inv   *Inventory
	model map[string]appsv1.InventoryEntry
	// exists are the existing objects that we created.
	exists map[string]bool
}

func simulate(t *testing.T, seed int64) {
	l := &simulation{persistedState: &persistedState{}, t: t, rnd: rand.New(rand.NewSource(seed)),
		model: map[string]appsv1.InventoryEntry{}, exists: map[string]bool{}}
	l.inv = l.load()
	for range 40 {
		l.step()
		if t.Failed() {
			t.Fatalf("repeat with -run TestInventorySurvivesRandomCrashes -inventory.seed %d", seed)
		}
	}
}

func (l *simulation) step() {
	n := []int{1, 3, 200, 800, 1500}[l.rnd.Intn(5)]
	if l.rnd.Intn(3) == 0 {
		l.remove(n)
	} else {
		l.create(n)
	}
	if l.rnd.Intn(10) == 0 { // everything is removed
		l.remove(len(l.model))
	}
	switch l.rnd.Intn(4) {
	case 0: // no write
	case 1:
		l.crash(errCrash)
	default:
		l.persist(nil)
	}
	l.check()
}

// create persists intended entries, and then creates their objects.
func (l *simulation) create(n int) {
	var ids []string
	for range n {
		e := numbered(l.rnd.Intn(6000))
		ids = append(ids, e.ID)
		if _, known := l.model[e.ID]; !known {
			l.put(e)
		}
	}
	if l.rnd.Intn(5) == 0 {
		l.crash(errCrash)
		return
	}
	if l.rnd.Intn(5) == 0 { // a write fails, and the process continues
		left := l.rnd.Intn(5)
		_ = l.persistedState.persist(l.inv, func() error {
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
			continue // the response is lost
		}
		e := l.model[id]
		e.State, e.Hash = appsv1.EntryApplied, fmt.Sprint(l.rnd.Intn(3))
		l.put(e)
		if i == n/2 && l.rnd.Intn(10) == 0 {
			l.crash(errCrash)
			return
		}
	}
}

// remove removes entries after their objects are gone.
func (l *simulation) remove(n int) {
	ids := slices.Sorted(maps.Keys(l.model))
	l.rnd.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for _, id := range ids[:min(n, len(ids))] {
		delete(l.exists, id)
		delete(l.model, id)
		l.inv.Remove(id)
	}
}

func (l *simulation) put(e appsv1.InventoryEntry) {
	l.model[e.ID] = e
	l.inv.Put(e)
}

func (l *simulation) persist(beforeWrite func() error) {
	if err := l.persistedState.persist(l.inv, beforeWrite); err != nil {
		l.t.Fatal(err)
	}
	got := l.load()
	if !maps.Equal(got.entries, l.model) {
		l.t.Errorf("loaded %d entries, written %d", got.Len(), len(l.model))
	}
	var named []string
	if l.status != nil {
		named = l.status.Chunks
	}
	if there := slices.Sorted(maps.Keys(l.chunks)); !slices.Equal(named, there) {
		l.t.Errorf("the status names chunks %v, want %v", named, there)
	}
	if l.status != nil && len(l.status.Entries)+len(l.status.Removed) > MaxStatusEntries {
		l.t.Errorf("%d entries in a status", len(l.status.Entries))
	}
}

// crash ends the process at a random write. The next process loads the persisted state.
func (l *simulation) crash(err error) {
	left := l.rnd.Intn(8)
	_ = l.persistedState.persist(l.inv, func() error {
		if left--; left < 0 {
			return err
		}
		return nil
	})
	l.inv = l.load()
	l.model = maps.Clone(l.inv.entries)
}

func (l *simulation) check() {
	if !maps.Equal(l.inv.entries, l.model) {
		l.t.Error("the inventory in memory differs from the model")
	}
	onDisk := l.load()
	for id := range l.exists {
		if _, ok := onDisk.Get(id); !ok {
			l.t.Errorf("%s exists, but is not in the persisted inventory", id)
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
				l.t.Errorf("%s is in chunk %s and in chunk %s", e.ID, other, name)
			}
			seen[e.ID] = name
		}
	}
}
