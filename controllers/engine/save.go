package engine

import (
	"cmp"
	"slices"

	"golang.org/x/sync/errgroup"
)

// savers is how many chunks are written at a time.
const savers = 4

// Save lays the entries out over chunks and writes those that changed, some at a
// time. When a write fails the inventory knows which ones were done all the same.
func (inv *Inventory) Save(name func(n int) string, write func(Chunk) error) error {
	changed := slices.DeleteFunc(inv.Spread(name), func(c Chunk) bool { return !inv.Dirty(c) })
	errs := make([]error, len(changed))
	var g errgroup.Group
	g.SetLimit(savers)
	for i, c := range changed {
		g.Go(func() error {
			errs[i] = write(c)
			return nil
		})
	}
	_ = g.Wait() // each has an error of its own
	for i, c := range changed {
		if errs[i] == nil {
			inv.written(c)
		}
	}
	return cmp.Or(errs...)
}

// written tells the inventory that a chunk now holds exactly this.
func (inv *Inventory) written(c Chunk) {
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
	// What is in no chunk is for the status to tell.
	for id := range inv.entries {
		if inv.chunkOf[id] == "" {
			inv.dirty[id] = true
		}
	}
}
