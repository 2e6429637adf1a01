package plan

import (
	"cmp"
	"hash/fnv"
	"iter"
	"maps"
	"slices"
	"strconv"

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
	inv := &Inventory{entries: map[string]appsv1.InventoryEntry{}, chunkOf: map[string]string{},
		stale: map[string]bool{}, dirty: map[string]bool{}}
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
	slices.Sort(inv.chunks)
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
		if len(inv.chunks) > 0 {
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
	inv.settled, inv.settledIDs = inv.objects(), inv.hashIDs(desired)
}

// CountBefore returns the number of entries before the change that is in progress. It returns the
// number of all entries if the number before is not known. If the change reverts an incomplete one
// (the desired ids are the settled ones), it returns the number of existing objects, because the
// removed objects did not exist before.
func (inv *Inventory) CountBefore(desired map[string]bool) int {
	n := inv.objects()
	switch {
	case inv.settled == 0:
	case inv.settledIDs != inv.hashIDs(desired):
		n = min(inv.settled, n)
	default:
		for _, e := range inv.entries {
			if e.State == appsv1.EntryIntended && e.RetainedAt == nil {
				n--
			}
		}
	}
	return n
}

// objects returns the number of entries without contributions, which are never deleted.
func (inv *Inventory) objects() int {
	n := 0
	for _, e := range inv.entries {
		if e.State != appsv1.EntryContributed && e.RetainedAt == nil {
			n++
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
	return slices.SortedFunc(maps.Values(inv.entries), byID)
}

func byID(a, b appsv1.InventoryEntry) int { return cmp.Compare(a.ID, b.ID) }

// NeedsChunks is true when the status alone cannot store the changes: write the chunks before the
// status.
func (inv *Inventory) NeedsChunks() bool {
	if len(inv.chunks) == 0 {
		return len(inv.entries) > MaxStatusEntries
	}
	entries, removed := inv.journal()
	return len(entries)+len(removed) > maxJournal || len(inv.entries) == 0
}

// journal returns the entries and removals in the status that override chunks.
func (inv *Inventory) journal() (entries []appsv1.InventoryEntry, removed []string) {
	for id := range inv.dirty {
		if e, ok := inv.entries[id]; ok {
			entries = append(entries, e)
		} else if inv.chunkOf[id] != "" {
			removed = append(removed, id)
		}
	}
	slices.SortFunc(entries, byID)
	slices.Sort(removed)
	return entries, removed
}

// Status returns the inventory for the status of the owner: all entries, or, with chunks, those
// that differ from the chunks as they were last written.
func (inv *Inventory) Status() *appsv1.Inventory {
	if len(inv.chunks) == 0 {
		if len(inv.entries) == 0 {
			return nil
		}
		return &appsv1.Inventory{Entries: inv.Entries(), Settled: int32(inv.settled), SettledIDs: inv.settledIDs}
	}
	entries, removed := inv.journal()
	return &appsv1.Inventory{Entries: entries, Chunks: slices.Clone(inv.chunks), Removed: removed,
		Settled: int32(inv.settled), SettledIDs: inv.settledIDs}
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
	names := slices.Clone(inv.chunks)
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
		slices.SortFunc(byChunk[c], byID)
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

// MarkWritten records that a chunk of Layout has been written with this content.
func (inv *Inventory) MarkWritten(c Chunk) {
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
