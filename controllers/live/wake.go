package live

import "k8s.io/apimachinery/pkg/runtime/schema"

// WakeGroup calls Wake for each watched kind of an API group.
func (ix *Index) WakeGroup(group string) {
	ix.wakeKinds(func(gk schema.GroupKind) bool { return gk.Group == group })
}

// WakeAll calls Wake for each watched kind. Call it when the API server is reachable again.
func (ix *Index) WakeAll() { ix.wakeKinds(func(schema.GroupKind) bool { return true }) }

func (ix *Index) wakeKinds(wanted func(schema.GroupKind) bool) {
	var kinds []schema.GroupKind
	ix.mu.RLock()
	for gk := range ix.groups {
		if wanted(gk) {
			kinds = append(kinds, gk)
		}
	}
	ix.mu.RUnlock()
	for _, gk := range kinds {
		ix.Wake(gk)
	}
}
