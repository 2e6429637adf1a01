package engine

import (
	"hash/fnv"
	"sort"
	"strconv"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// Limits of what an owner's status holds. Objects of etcd may have 1.5 MiB; a
// thousand entries are about 250 KiB.
const (
	// MaxStatusEntries is how many entries the status holds before they spill to chunks.
	MaxStatusEntries = 1000
	// maxJournal is how many entries of the status may override those of chunks
	// before the chunks are written anew.
	maxJournal = 500
)

// Inventory is what an owner manages, in memory. It is not safe for concurrent
// use: one reconcile of an owner runs at a time.
type Inventory struct {
	entries map[string]appsv1.InventoryEntry
	// chunkOf says which chunk, if any, holds an id as of the last write.
	chunkOf map[string]string
	chunks  []string
	// stale are chunks with an entry that another one has too. Left there, what
	// was removed would come back from them.
	stale map[string]bool
	// dirty are ids whose entry differs from that in their chunk.
	dirty map[string]bool
	// settled is how many entries there were when nothing was left to send or held
	// last; 0 when that is not known.
	settled int
	// settledIDs is the hash of those that were wanted; empty when that is not known.
	settledIDs string
}

// NewInventory builds an inventory from what the status and the chunks hold.
// Entries of the status override those of the chunks.
func NewInventory(status *appsv1.Inventory, chunks []appsv1.KsctlInventory) *Inventory {
	inv := &Inventory{entries: map[string]appsv1.InventoryEntry{}, chunkOf: map[string]string{}, stale: map[string]bool{}, dirty: map[string]bool{}}
	for i := range chunks {
		inv.chunks = append(inv.chunks, chunks[i].Name)
		for _, e := range chunks[i].Entries {
			if before := inv.chunkOf[e.ID]; before != "" && before != chunks[i].Name {
				inv.stale[before] = true
			}
			inv.entries[e.ID] = e
			inv.chunkOf[e.ID] = chunks[i].Name
		}
	}
	sort.Strings(inv.chunks)
	if status == nil {
		return inv
	}
	inv.settled, inv.settledIDs = int(status.Settled), status.SettledIDs
	for _, id := range status.Removed {
		delete(inv.entries, id)
		if inv.chunkOf[id] != "" {
			inv.dirty[id] = true
		}
	}
	for _, e := range status.Entries {
		inv.entries[e.ID] = e
		if inv.chunkOf[e.ID] != "" || len(inv.chunks) > 0 {
			inv.dirty[e.ID] = true
		}
	}
	return inv
}

// Get returns the entry of an id.
func (inv *Inventory) Get(id string) (appsv1.InventoryEntry, bool) {
	e, ok := inv.entries[id]
	return e, ok
}

// Put adds or replaces an entry.
func (inv *Inventory) Put(e appsv1.InventoryEntry) {
	if old, ok := inv.entries[e.ID]; ok && old == e {
		return
	}
	inv.entries[e.ID] = e
	inv.dirty[e.ID] = true
}

// Remove drops an entry: the object is gone, or no longer ours.
func (inv *Inventory) Remove(id string) {
	if _, ok := inv.entries[id]; !ok {
		return
	}
	delete(inv.entries, id)
	if inv.chunkOf[id] == "" {
		delete(inv.dirty, id) // no chunk lists it
		return
	}
	inv.dirty[id] = true
}

// Len is the number of entries.
func (inv *Inventory) Len() int { return len(inv.entries) }

// settle takes note that what there is now, of which some are wanted, is what the
// next change is measured by.
func (inv *Inventory) settle(wanted map[string]bool) {
	inv.settled, inv.settledIDs = len(inv.entries), inv.hash(wanted)
}

// before is how many entries there were before a change that is under way, of which
// some are wanted; all of them when that is not known, and all objects when the change
// is taken back: what leaves then was not there before.
func (inv *Inventory) before(wanted map[string]bool) int {
	n := len(inv.entries)
	switch {
	case inv.settled == 0:
	case inv.settledIDs != inv.hash(wanted):
		n = min(inv.settled, n)
	default:
		for _, e := range inv.entries {
			if e.State == appsv1.EntryIntended {
				n--
			}
		}
	}
	return n
}

// hash of the ids that are wanted, whatever their order: there are many, each time.
func (inv *Inventory) hash(wanted map[string]bool) string {
	var sum uint64
	h := fnv.New64a()
	for id := range inv.entries {
		if wanted[id] {
			h.Reset()
			_, _ = h.Write([]byte(id))
			sum += h.Sum64()
		}
	}
	return strconv.FormatUint(sum, 16)
}

// Entries returns the entries sorted by id.
func (inv *Inventory) Entries() []appsv1.InventoryEntry {
	out := make([]appsv1.InventoryEntry, 0, len(inv.entries))
	for _, e := range inv.entries {
		out = append(out, e)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	return out
}

// NeedsChunks is true when the status alone can't hold the changes: the caller
// writes Chunks first.
func (inv *Inventory) NeedsChunks() bool {
	if len(inv.chunks) == 0 {
		return len(inv.entries) > MaxStatusEntries
	}
	return inv.journal() > maxJournal || len(inv.entries) == 0
}

func (inv *Inventory) journal() int {
	n := 0
	for id := range inv.dirty {
		if inv.chunkOf[id] != "" || inv.has(id) {
			n++
		}
	}
	return n
}

func (inv *Inventory) has(id string) bool { _, ok := inv.entries[id]; return ok }

// Status is the inventory as the status records it, given the chunks as last
// written: everything, or what differs from the chunks.
func (inv *Inventory) Status() *appsv1.Inventory {
	if len(inv.chunks) == 0 {
		if len(inv.entries) == 0 {
			return nil
		}
		return &appsv1.Inventory{Entries: inv.Entries(), Settled: int32(inv.settled), SettledIDs: inv.settledIDs}
	}
	out := &appsv1.Inventory{Chunks: append([]string(nil), inv.chunks...), Settled: int32(inv.settled), SettledIDs: inv.settledIDs}
	for id := range inv.dirty {
		if e, ok := inv.entries[id]; ok {
			out.Entries = append(out.Entries, e)
		} else if inv.chunkOf[id] != "" {
			out.Removed = append(out.Removed, id)
		}
	}
	sort.Slice(out.Entries, func(i, j int) bool { return out.Entries[i].ID < out.Entries[j].ID })
	sort.Strings(out.Removed)
	return out
}

// Chunk is the wanted content of one KsctlInventory.
type Chunk struct {
	Name    string
	Entries []appsv1.InventoryEntry
}

// Spread lays the entries out over chunks, leaving an entry in the chunk that
// has it, so that only chunks with changes are written. name gives the name of
// the n-th new chunk. Chunks that end up empty are returned without entries.
func (inv *Inventory) Spread(name func(n int) string) []Chunk {
	by := map[string][]appsv1.InventoryEntry{}
	for _, c := range inv.chunks {
		by[c] = nil
	}
	var homeless []appsv1.InventoryEntry
	for _, e := range inv.Entries() {
		if c := inv.chunkOf[e.ID]; c != "" {
			by[c] = append(by[c], e)
		} else {
			homeless = append(homeless, e)
		}
	}
	names := append([]string(nil), inv.chunks...)
	for n := 0; len(homeless) > 0; n++ {
		c := name(n)
		if _, ok := by[c]; !ok {
			names = append(names, c)
		}
		room := min(MaxStatusEntries-len(by[c]), len(homeless))
		if room <= 0 {
			continue
		}
		by[c] = append(by[c], homeless[:room]...)
		homeless = homeless[room:]
	}
	out := make([]Chunk, 0, len(names))
	for _, c := range names {
		sort.Slice(by[c], func(i, j int) bool { return by[c][i].ID < by[c][j].ID })
		out = append(out, Chunk{Name: c, Entries: by[c]})
	}
	return out
}

// Dirty reports whether a chunk as laid out by Spread differs from what was last written.
func (inv *Inventory) Dirty(c Chunk) bool {
	held := 0
	for _, in := range inv.chunkOf {
		if in == c.Name {
			held++
		}
	}
	if held != len(c.Entries) || inv.stale[c.Name] {
		return true
	}
	for _, e := range c.Entries {
		if inv.dirty[e.ID] || inv.chunkOf[e.ID] != c.Name {
			return true
		}
	}
	return false
}
