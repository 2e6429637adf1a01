package engine

import (
	"cmp"
	"slices"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// RemovalOrder returns entries in the order of their removal. The objects of one step are removed
// concurrently, and the next step starts when they are gone.
func RemovalOrder(entries []appsv1.InventoryEntry) (steps [][]appsv1.InventoryEntry) {
	type place struct {
		wave int32
		rank int
	}
	by := map[place][]appsv1.InventoryEntry{}
	var places []place
	for i := range entries {
		ref, err := stacks.ParseID(entries[i].ID)
		if err != nil {
			continue
		}
		p := place{entries[i].Wave, rank(ref, entries[i])}
		if by[p] == nil {
			places = append(places, p)
		}
		by[p] = append(by[p], entries[i])
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(b.wave, a.wave), cmp.Compare(a.rank, b.rank))
	})
	for _, p := range places {
		slices.SortFunc(by[p], func(a, b appsv1.InventoryEntry) int { return cmp.Compare(a.ID, b.ID) })
		steps = append(steps, by[p])
	}
	return steps
}
