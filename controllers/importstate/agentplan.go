package importstate

import (
	"cmp"
	"slices"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/internal/statestore"
)

// newAgentPlan decides the action for each entry to send to an agent, from the desired entries and
// those that were sent before.
func newAgentPlan(want desired, before v1alpha1.ImportStateStatus, opts planOptions) importPlan {
	p := importPlan{states: map[string][]byte{}, secrets: map[string][]byte{}}
	lastRows := map[string]v1alpha1.ImportedCluster{}
	for _, row := range before.Clusters {
		lastRows[row.Key] = row
	}
	agentStates := map[string][]byte{} // known content of the agent's store
	for _, c := range want.clusters {
		key := c.ID.Key()
		e := entry{want: c.JSON(), record: recordOf(lastRows[key])}
		row := newRow(c, e.record)
		row.Cluster = lastRows[key].Cluster
		if c.External {
			row.Action, row.Message = v1alpha1.StateExternal, mongoDBMessage
			p.clusters = append(p.clusters, row)
			continue
		}
		row.Action = e.decideForAgent(opts)
		row.Message, row.Ready = agentActionMessage(row.Action), row.Action == v1alpha1.StateSent
		if agentStates[key] = e.want; writes(row.Action) {
			p.states[key] = e.want
		}
		p.clusters = append(p.clusters, row)
	}
	for _, row := range want.invalid {
		last := lastRows[row.Key]
		row.Written, row.Ours, row.Writing, row.Cluster = last.Written, last.Ours, last.Writing, last.Cluster
		p.clusters = append(p.clusters, row)
	}
	p.addRemovedFromSourceForAgent(want, before)
	p.addAgentCredentials(want, before, opts)
	p.checkSize(statestore.Contents{States: agentStates})
	p.clusters = sortUnique(p.clusters)
	return p
}

// addRemovedFromSourceForAgent keeps the rows of entries that were sent before and are no longer in
// the source: an entry that reappears unchanged is not sent again.
func (p *importPlan) addRemovedFromSourceForAgent(want desired, before v1alpha1.ImportStateStatus) {
	for _, row := range before.Clusters {
		wanted := slices.ContainsFunc(p.clusters, func(c v1alpha1.ImportedCluster) bool { return c.Key == row.Key })
		if wanted || recordOf(row) == (record{}) || len(p.clusters) >= maxClusters {
			continue
		}
		if len(want.problems) == 0 {
			row.Action, row.Ready, row.Message = v1alpha1.StateLeft, true, agentActionMessage(v1alpha1.StateLeft)
		}
		p.clusters = append(p.clusters, row)
	}
}

// addAgentCredentials decides the action for the credentials of each cloud.
func (p *importPlan) addAgentCredentials(want desired, before v1alpha1.ImportStateStatus, opts planOptions) {
	lastRows := map[string]v1alpha1.ImportedCredentials{}
	for _, row := range before.Credentials {
		lastRows[row.Cloud] = row
	}
	for _, c := range want.credentials {
		last := lastRows[c.Cloud]
		delete(lastRows, c.Cloud)
		e := entry{want: c.JSON(), record: record{last.Written, last.Writing, last.Ours}}
		row := v1alpha1.ImportedCredentials{Cloud: c.Cloud, Action: e.decideForAgent(opts), Written: e.written, Ours: e.ours, Writing: e.writing}
		row.Message, row.Ready = agentActionMessage(row.Action), row.Action == v1alpha1.StateSent
		if writes(row.Action) {
			p.secrets[c.Cloud] = e.want
		}
		p.credentials = append(p.credentials, row)
	}
	for _, row := range lastRows {
		if (record{row.Written, row.Writing, row.Ours}) == (record{}) {
			continue
		}
		if len(want.problems) == 0 {
			row.Action, row.Ready, row.Message = v1alpha1.StateLeft, true, agentActionMessage(v1alpha1.StateLeft)
		}
		p.credentials = append(p.credentials, row)
	}
	slices.SortFunc(p.credentials, func(a, b v1alpha1.ImportedCredentials) int { return cmp.Compare(a.Cloud, b.Cloud) })
}

// isAnnounced reports whether the status already marks everything that the plan sends.
func (p *importPlan) isAnnounced(status *v1alpha1.ImportStateStatus) bool {
	clusters := map[string]string{}
	for _, row := range status.Clusters {
		clusters[row.Key] = row.Writing
	}
	clouds := map[string]string{}
	for _, row := range status.Credentials {
		clouds[row.Cloud] = row.Writing
	}
	return !slices.ContainsFunc(p.clusters, func(row v1alpha1.ImportedCluster) bool {
		return writes(row.Action) && clusters[row.Key] != row.Writing
	}) && !slices.ContainsFunc(p.credentials, func(row v1alpha1.ImportedCredentials) bool {
		return writes(row.Action) && clouds[row.Cloud] != row.Writing
	})
}

// agentActionMessage explains an action to users.
func agentActionMessage(a v1alpha1.StateAction) string {
	switch a {
	case v1alpha1.StateCreate, v1alpha1.StateUpdate:
		return "not sent yet"
	case v1alpha1.StateConflict:
		return "would overwrite the entry in the agent's store, which is not readable: check that store, then set spec.conflict to Overwrite"
	case v1alpha1.StateLeft:
		return "no longer in the source; stays in the agent's store"
	}
	return actionMessage(a)
}
