package live

import "k8s.io/apimachinery/pkg/runtime/schema"

// Wake makes the watches of a kind retry immediately and resets their backoff. Call it when the
// CRD or APIService of the kind changed, or when the controller got permissions.
func (ix *Index) Wake(gk schema.GroupKind) {
	ix.wakeKinds(func(kind schema.GroupKind) bool { return kind == gk })
}

// WakeGroup calls Wake for each watched kind of an API group.
func (ix *Index) WakeGroup(group string) {
	ix.wakeKinds(func(kind schema.GroupKind) bool { return kind.Group == group })
}

// WakeAll calls Wake for each watched kind. Call it when the API server is reachable again.
func (ix *Index) WakeAll() { ix.wakeKinds(func(schema.GroupKind) bool { return true }) }

func (ix *Index) wakeKinds(wanted func(schema.GroupKind) bool) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	for gk, g := range ix.groups {
		if !wanted(gk) {
			continue
		}
		for _, w := range g.watches {
			select {
			case w.wake <- struct{}{}:
			default:
			}
		}
		for n := range g.unconfirmed {
			ref := g.ref(n)
			ix.confirmQueue.Forget(ref)
			ix.confirmQueue.Add(ref)
		}
	}
}
