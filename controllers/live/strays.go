package live

import (
	"slices"

	"github.com/ksctl/gitops/stacks"
)

// located is where the index has an object.
type located struct {
	g *group
	n name
}

// arrive notes that a watch brought an object of an owner which the index did not
// know: whether the owner knows it is for the owner to say. The lock is held.
func (ix *Index) arrive(g *group, n name, owner string) {
	ix.fresh[owner] = append(ix.fresh[owner], located{g, n})
}

// depart takes back what arrive noted. The lock is held.
func (ix *Index) depart(g *group, n name, owner string) {
	list := ix.fresh[owner]
	i := slices.Index(list, located{g, n})
	if i < 0 {
		return
	}
	list[i] = list[len(list)-1]
	ix.keepFresh(owner, list[:len(list)-1])
}

func (ix *Index) keepFresh(owner string, list []located) {
	if len(list) == 0 {
		delete(ix.fresh, owner)
		return
	}
	ix.fresh[owner] = list
}

// Unclaimed returns the objects with an owner's mark that watches brought and that
// the owner does not know. It asks about each once: those that the owner knows are
// not asked about again, the others until Claim. known must not call the index.
func (ix *Index) Unclaimed(owner string, known func(stacks.Ref) bool) []stacks.Ref {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	list := ix.fresh[owner]
	if len(list) == 0 {
		return nil
	}
	var refs []stacks.Ref
	kept := list[:0]
	for _, l := range list {
		e := l.g.objects[l.n]
		if ix.groups[l.g.gk] != l.g || e == nil || e.owner != owner || e.is(flagMarkLost) {
			continue
		}
		if ref := l.g.ref(l.n); !known(ref) {
			refs, kept = append(refs, ref), append(kept, l)
		}
	}
	ix.keepFresh(owner, kept)
	return refs
}

// Claim ends the question about an object that Unclaimed returned.
func (ix *Index) Claim(owner string, ref stacks.Ref) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if g := ix.groups[ref.GroupKind()]; g != nil {
		ix.depart(g, name{ref.Namespace, ref.Name}, owner)
	}
}
