package bysource

import (
	"fmt"
	"slices"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/clusters/dependency"
)

// dependentMessages returns a message for each install that depends on one of the objects.
func dependentMessages(entries []appsv1.InventoryEntry, installs []appsv1.KsctlInstall) []string {
	ids := map[string]bool{}
	for _, e := range entries {
		ids[e.ID] = true
	}
	var out []string
	for i := range installs {
		for _, r := range dependency.ObjectRefsIn(&installs[i], func(id string) bool { return ids[id] }) {
			out = append(out, fmt.Sprintf("KsctlInstall %s/%s depends on %s", installs[i].Namespace, installs[i].Name, r))
		}
	}
	slices.Sort(out)
	return out[:min(maxListed, len(out))]
}
