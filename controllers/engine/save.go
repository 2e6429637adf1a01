package engine

import (
	"cmp"
	"slices"

	"golang.org/x/sync/errgroup"
)

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
