package bysource

import (
	"fmt"
	"slices"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/clusters/dependency"
)

// dependents names the installs that depend on an object of a set.
func dependents(set []appsv1.InventoryEntry, installs []appsv1.KsctlInstall) []string {
	ids := map[string]bool{}
	for i := range set {
		ids[set[i].ID] = true
	}
	var out []string
	for i := range installs {
		for _, r := range dependency.On(&installs[i], func(id string) bool { return ids[id] }) {
			out = append(out, fmt.Sprintf("KsctlInstall %s/%s depends on %s", installs[i].Namespace, installs[i].Name, r))
		}
	}
	slices.Sort(out)
	return out[:min(maxShown, len(out))]
}
