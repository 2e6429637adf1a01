package live

import (
	"slices"

	"github.com/ksctl/gitops/stacks"
)

// objectLocation is the position of an object in the index.
type objectLocation struct {
	g *group
	n objectKey
}

// addStray records that a watch delivered an object of an owner for the first time, or that the
// object was handed over to the owner. The owner decides in Strays whether it knows the object. The
// caller holds the lock.
func (ix *Index) addStray(g *group, n objectKey, owner string) {
	ix.strays[owner] = append(ix.strays[owner], objectLocation{g, n})
}

// removeStray undoes addStray. The caller holds the lock.
func (ix *Index) removeStray(g *group, n objectKey, owner string) {
	list := ix.strays[owner]
	i := slices.Index(list, objectLocation{g, n})
	if i < 0 {
		return
	}
	ix.setStrays(owner, slices.Delete(list, i, i+1))
}

func (ix *Index) setStrays(owner string, list []objectLocation) {
	if len(list) == 0 {
		delete(ix.strays, owner)
		return
	}
	ix.strays[owner] = list
}

// Strays returns the objects that have the mark of an owner and for which known is false. An object
// that the owner knows is checked once; a stray is returned by each call until DropStray. known
// must not call the index.
func (ix *Index) Strays(owner string, known func(stacks.Ref) bool) []stacks.Ref {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	list := ix.strays[owner]
	var refs []stacks.Ref
	remaining := list[:0]
	for _, l := range list {
		e := l.g.objects[l.n]
		if ix.groups[l.g.gk] != l.g || e == nil || e.owner != owner || e.is(flagMarkLost) {
			continue
		}
		if ref := l.g.ref(l.n); !known(ref) {
			refs, remaining = append(refs, ref), append(remaining, l)
		}
	}
	ix.setStrays(owner, remaining)
	return refs
}

// DropStray removes an object from the result of Strays.
func (ix *Index) DropStray(owner string, ref stacks.Ref) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	g, n, _ := ix.find(ref)
	ix.removeStray(g, n, owner)
}
