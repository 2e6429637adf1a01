package live

import "k8s.io/apimachinery/pkg/runtime/schema"

// WakeGroup is Wake for every kind of a group that is watched.
func (ix *Index) WakeGroup(group string) {
	var kinds []schema.GroupKind
	ix.mu.RLock()
	for gk := range ix.groups {
		if gk.Group == group {
			kinds = append(kinds, gk)
		}
	}
	ix.mu.RUnlock()
	for _, gk := range kinds {
		ix.Wake(gk)
	}
}
