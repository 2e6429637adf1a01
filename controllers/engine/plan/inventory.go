package plan

import (
	"cmp"
	"hash/fnv"
	"iter"
	"maps"
	"slices"
	"sort"
	"strconv"

	"golang.org/x/sync/errgroup"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// Limits for the inventory in a status. The maximum size of an object in etcd is 1.5 MiB; a
// thousand entries are about 250 KiB.
const (
	// MaxStatusEntries is the maximum number of entries in a status, and in a chunk. Larger
	// inventories are stored in chunks.
	MaxStatusEntries = 1000
	// maxJournal is the maximum number of entries and removals in a status that override chunks.
	// With more of them, the chunks are rewritten.
	maxJournal = 500
)

// Inventory lists the objects that an owner manages, in memory. It is not safe for concurrent use:
// there is only one reconcile of an owner at a time.
type Inventory struct {
	entries map[string]appsv1.InventoryEntry
	// chunkOf is the chunk of an id as of the last write; empty for an id in no chunk.
	chunkOf map[string]string
	chunks  []string
	// stale are chunks with an entry that another chunk has, too. They have to be rewritten: else
	// an entry that is removed from the other chunk would reappear from them.
	stale map[string]bool
	// dirty are ids whose entry differs from the one in their chunk.
	dirty map[string]bool
	// settled is the number of entries when the owner was last settled, see Plan.Settled; 0 when
	// it is not known.
	settled int
	// settledIDs is the hash of the ids that were desired at that time; empty when it is not known.
	settledIDs string
}

// NewInventory returns the inventory that a status and its chunks contain. Entries of the status
// override those of the chunks.
func NewInventory(status *appsv1.Inventory, chunks []appsv1.KsctlInventory) *Inventory {
	inv := &Inventory{entries: map[string]appsv1.InventoryEntry{}, chunkOf: map[string]string{}, stale: map[string]bool{}, dirty: map[string]bool{}}
	for i := range chunks {
		inv.chunks = append(inv.chunks, chunks[i].Name)
		for _, e := range chunks[i].Entries {
			if earlier := inv.chunkOf[e.ID]; earlier != "" && earlier != chunks[i].Name {
				inv.stale[earlier] = true
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

// Get returns the entry with an id.
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

// Remove removes an entry, because its object is gone or no longer belongs to the owner.
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

// MarkSettled records the current entries, and the desired ids among them, as the base for the
// delete limits of the next change.
func (inv *Inventory) MarkSettled(desired map[string]bool) {
	inv.settled, inv.settledIDs = len(inv.entries), inv.hashIDs(desired)
}

// CountBefore returns the number of entries before the change that is in progress. It returns the
// number of all entries if the number before is not known. If the change reverts an incomplete one
// (the desired ids are the settled ones), it returns the number of existing objects, because the
// removed objects did not exist before.
func (inv *Inventory) CountBefore(desired map[string]bool) int {
	n := len(inv.entries)
	switch {
	case inv.settled == 0:
	case inv.settledIDs != inv.hashIDs(desired):
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

// hashIDs returns a hash of the desired ids in the inventory. It does not depend on their order, so
// that they need not be sorted: there are many, and it is called often.
func (inv *Inventory) hashIDs(desired map[string]bool) string {
	var sum uint64
	h := fnv.New64a()
	for id := range inv.entries {
		if desired[id] {
			h.Reset()
			_, _ = h.Write([]byte(id))
			sum += h.Sum64()
		}
	}
	return strconv.FormatUint(sum, 16)
}

// All iterates over the entries by id, in no order.
func (inv *Inventory) All() iter.Seq2[string, appsv1.InventoryEntry] { return maps.All(inv.entries) }

// Entries returns the entries sorted by id.
func (inv *Inventory) Entries() []appsv1.InventoryEntry {
	out := make([]appsv1.InventoryEntry, 0, len(inv.entries))
	for _, e := range inv.entries {
		out = append(out, e)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	return out
}

// NeedsChunks is true when the status alone cannot store the changes: call WriteChunks before
// writing the status.
func (inv *Inventory) NeedsChunks() bool {
	if len(inv.chunks) == 0 {
		return len(inv.entries) > MaxStatusEntries
	}
	return inv.journalLen() > maxJournal || len(inv.entries) == 0
}

// journalLen returns the number of entries and removals in the status that override chunks.
func (inv *Inventory) journalLen() int {
	n := 0
	for id := range inv.dirty {
		if inv.chunkOf[id] != "" || inv.has(id) {
			n++
		}
	}
	return n
}

func (inv *Inventory) has(id string) bool { _, ok := inv.entries[id]; return ok }

// Status returns the inventory for the status of the owner: all entries, or, with chunks, those
// that differ from the chunks as they were last written.
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

// Chunk is the desired content of one KsctlInventory.
type Chunk struct {
	Name    string
	Entries []appsv1.InventoryEntry
}

// Layout assigns the entries to chunks. An entry stays in its chunk, so that only chunks with
// changes are written. name returns the name of the n-th chunk. Chunks that became empty are
// returned without entries.
func (inv *Inventory) Layout(name func(n int) string) []Chunk {
	byChunk := map[string][]appsv1.InventoryEntry{}
	for _, c := range inv.chunks {
		byChunk[c] = nil
	}
	var unassigned []appsv1.InventoryEntry
	for _, e := range inv.Entries() {
		if c := inv.chunkOf[e.ID]; c != "" {
			byChunk[c] = append(byChunk[c], e)
		} else {
			unassigned = append(unassigned, e)
		}
	}
	names := append([]string(nil), inv.chunks...)
	for n := 0; len(unassigned) > 0; n++ {
		c := name(n)
		if _, ok := byChunk[c]; !ok {
			names = append(names, c)
		}
		room := min(MaxStatusEntries-len(byChunk[c]), len(unassigned))
		if room <= 0 {
			continue
		}
		byChunk[c] = append(byChunk[c], unassigned[:room]...)
		unassigned = unassigned[room:]
	}
	out := make([]Chunk, 0, len(names))
	for _, c := range names {
		sort.Slice(byChunk[c], func(i, j int) bool { return byChunk[c][i].ID < byChunk[c][j].ID })
		out = append(out, Chunk{Name: c, Entries: byChunk[c]})
	}
	return out
}

// Dirty is true when a chunk of Layout differs from its last written content.
func (inv *Inventory) Dirty(c Chunk) bool {
	stored := 0
	for _, in := range inv.chunkOf {
		if in == c.Name {
			stored++
		}
	}
	if stored != len(c.Entries) || inv.stale[c.Name] {
		return true
	}
	for _, e := range c.Entries {
		if inv.dirty[e.ID] || inv.chunkOf[e.ID] != c.Name {
			return true
		}
	}
	return false
}

// maxParallelWrites is the maximum number of chunks that are written concurrently.
const maxParallelWrites = 4

// WriteChunks assigns the entries to chunks, and writes the changed chunks concurrently. If a write
// fails, the inventory records which chunks were written nevertheless.
func (inv *Inventory) WriteChunks(name func(n int) string, write func(Chunk) error) error {
	changed := slices.DeleteFunc(inv.Layout(name), func(c Chunk) bool { return !inv.Dirty(c) })
	errs := make([]error, len(changed))
	var g errgroup.Group
	g.SetLimit(maxParallelWrites)
	for i, c := range changed {
		g.Go(func() error {
			errs[i] = write(c)
			return nil
		})
	}
	_ = g.Wait() // each has an error of its own
	for i, c := range changed {
		if errs[i] == nil {
			inv.markWritten(c)
		}
	}
	return cmp.Or(errs...)
}

// markWritten records that a chunk has been written with this content.
func (inv *Inventory) markWritten(c Chunk) {
	delete(inv.stale, c.Name)
	for id, in := range inv.chunkOf {
		if in == c.Name {
			delete(inv.chunkOf, id)
			delete(inv.dirty, id)
		}
	}
	for _, e := range c.Entries {
		inv.chunkOf[e.ID] = c.Name
		delete(inv.dirty, e.ID)
	}
	inv.chunks = slices.DeleteFunc(inv.chunks, func(name string) bool { return name == c.Name })
	if len(c.Entries) > 0 {
		inv.chunks = append(inv.chunks, c.Name)
		slices.Sort(inv.chunks)
	}
	// Entries in no chunk belong into the status.
	for id := range inv.entries {
		if inv.chunkOf[id] == "" {
			inv.dirty[id] = true
		}
	}
}
