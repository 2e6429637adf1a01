package importstate

import (
	"slices"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
)

// isAnnounced reports whether the status already marks everything that the plan sends.
func (p *importPlan) isAnnounced(status *v1alpha1.ImportStateStatus) bool {
	announced := func(rows, reported []v1alpha1.ImportedCluster) bool {
		last := rowsByKey(reported)
		return !slices.ContainsFunc(rows, func(row v1alpha1.ImportedCluster) bool {
			return writes(row.Action) && last[row.Key].Writing != row.Writing
		})
	}
	return announced(p.clusters, status.Clusters) && announced(p.credentials, credentialRows(status.Credentials))
}

// agentMessages explain actions that differ for an agent.
var agentMessages = map[v1alpha1.StateAction]string{
	v1alpha1.StateCreate: "not sent yet",
	v1alpha1.StateUpdate: "not sent yet",
	v1alpha1.StateConflict: "would overwrite the entry in the agent's store, which is not readable: check that " +
		"store, then set spec.conflict to Overwrite",
	v1alpha1.StateLeft: "no longer in the source; stays in the agent's store",
}
