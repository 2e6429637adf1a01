package live

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/stacks"
)

// awaits are the owners that wait for objects of other owners.
type awaits struct {
	of map[stacks.Ref]map[string]struct{}
	by map[string][]stacks.Ref
}

// Await says which objects an owner waits for until nobody else has them, in
// place of those that it named before. Its subscribers are told when one of
// them is gone or has another owner. Of objects that nobody marked the index
// hears nothing.
func (ix *Index) Await(ownerKey string, refs []stacks.Ref) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	a := &ix.awaits
	for _, ref := range a.by[ownerKey] {
		delete(a.of[ref], ownerKey)
		if len(a.of[ref]) == 0 {
			delete(a.of, ref)
		}
	}
	delete(a.by, ownerKey)
	if len(refs) == 0 {
		return
	}
	if a.of == nil {
		a.of, a.by = map[stacks.Ref]map[string]struct{}{}, map[string][]stacks.Ref{}
	}
	a.by[ownerKey] = refs
	for _, ref := range refs {
		if a.of[ref] == nil {
			a.of[ref] = map[string]struct{}{}
		}
		a.of[ref][ownerKey] = struct{}{}
	}
}

// handOver tells those that wait for an object that its owner gave it up. The
// lock is held.
func (ix *Index) handOver(ref stacks.Ref) {
	for owner := range ix.awaits.of[ref] {
		ix.notify.mark(owner)
	}
}

// Deleting says that deletion of an object is being asked for: what the watches
// hint at until answered is called is left to the answer.
func (ix *Index) Deleting(ref stacks.Ref, uid types.UID) (answered func()) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.deleting[ref] = uid
	return func() {
		ix.mu.Lock()
		defer ix.mu.Unlock()
		delete(ix.deleting, ref)
		if g := ix.groups[ref.GroupKind()]; g != nil {
			if e := g.objects[name{ref.Namespace, ref.Name}]; e != nil && e.UID() == uid && e.is(flagHinted) {
				ix.ask(ref)
			}
		}
	}
}

// ObserveReleased tells the index that an object lives on without our mark from
// a version on. What it still hears of it before that is old; who marks it
// later has it.
func (ix *Index) ObserveReleased(ref stacks.Ref, uid types.UID, resourceVersion string) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	g := ix.groups[ref.GroupKind()]
	if g == nil {
		return
	}
	n := name{ref.Namespace, ref.Name}
	if e := g.objects[n]; e != nil && e.UID() == uid {
		ix.drop(g, n, e)
	}
	g.gone[n] = grave{uid: uid, at: ix.opts.Clock.Now(), until: revision(resourceVersion)}
}
