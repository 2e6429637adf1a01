package importstate

import (
	"cmp"
	"slices"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/internal/statestore"
)

// newDelivery decides about each entry that an agent is to have, from what is wanted of it and
// what it was sent before.
func newDelivery(want wishes, before v1alpha1.ImportStateStatus, how policy) plan {
	p := plan{states: map[string][]byte{}, secrets: map[string][]byte{}}
	known := map[string]v1alpha1.ImportedCluster{}
	for _, row := range before.Clusters {
		known[row.Key] = row
	}
	stays := map[string][]byte{} // in the agent's store, as far as that is known
	for _, c := range want.clusters {
		key := c.ID.Key()
		e := entry{want: c.JSON(), record: recordOf(known[key])}
		row := rowOf(c, e.record)
		row.Cluster = known[key].Cluster
		if c.External {
			row.Action, row.Message = v1alpha1.StateExternal, fromMongoDB
			p.clusters = append(p.clusters, row)
			continue
		}
		row.Action = e.decideSent(how)
		row.Message, row.Ready = explainSent(row.Action), row.Action == v1alpha1.StateSent
		if stays[key] = e.want; writes(row.Action) {
			p.states[key] = e.want
		}
		p.clusters = append(p.clusters, row)
	}
	for _, row := range want.refused {
		was := known[row.Key]
		row.Written, row.Ours, row.Writing, row.Cluster = was.Written, was.Ours, was.Writing, was.Cluster
		p.clusters = append(p.clusters, row)
	}
	p.addLeftSent(want, before)
	p.addCredentialsSent(want, before, how)
	p.fit(statestore.Held{States: stays})
	p.clusters = unique(p.clusters)
	return p
}

// addLeftSent keeps the lines of what was sent before and is in the source no more: if it comes
// back as it was, it is not sent again.
func (p *plan) addLeftSent(want wishes, before v1alpha1.ImportStateStatus) {
	for _, row := range before.Clusters {
		wanted := slices.ContainsFunc(p.clusters, func(c v1alpha1.ImportedCluster) bool { return c.Key == row.Key })
		if wanted || recordOf(row) == (record{}) || len(p.clusters) >= maxClusters {
			continue
		}
		if len(want.problems) == 0 {
			row.Action, row.Ready, row.Message = v1alpha1.StateLeft, true, explainSent(v1alpha1.StateLeft)
		}
		p.clusters = append(p.clusters, row)
	}
}

// addCredentialsSent decides about the credentials of each cloud.
func (p *plan) addCredentialsSent(want wishes, before v1alpha1.ImportStateStatus, how policy) {
	known := map[string]v1alpha1.ImportedCredentials{}
	for _, row := range before.Credentials {
		known[row.Cloud] = row
	}
	for _, c := range want.credentials {
		was := known[c.Cloud]
		delete(known, c.Cloud)
		e := entry{want: c.JSON(), record: record{was.Written, was.Writing, was.Ours}}
		row := v1alpha1.ImportedCredentials{Cloud: c.Cloud, Action: e.decideSent(how), Written: e.written, Ours: e.ours, Writing: e.writing}
		row.Message, row.Ready = explainSent(row.Action), row.Action == v1alpha1.StateSent
		if writes(row.Action) {
			p.secrets[c.Cloud] = e.want
		}
		p.credentials = append(p.credentials, row)
	}
	for _, row := range known {
		if (record{row.Written, row.Writing, row.Ours}) == (record{}) {
			continue
		}
		if len(want.problems) == 0 {
			row.Action, row.Ready, row.Message = v1alpha1.StateLeft, true, explainSent(v1alpha1.StateLeft)
		}
		p.credentials = append(p.credentials, row)
	}
	slices.SortFunc(p.credentials, func(a, b v1alpha1.ImportedCredentials) int { return cmp.Compare(a.Cloud, b.Cloud) })
}

// announced is true when a status has all that a plan is about to send.
func (p *plan) announced(status *v1alpha1.ImportStateStatus) bool {
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

// explainSent says more of an action, for a person.
func explainSent(a v1alpha1.StateAction) string {
	switch a {
	case v1alpha1.StateCreate, v1alpha1.StateUpdate:
		return "it is to be sent"
	case v1alpha1.StateConflict:
		return "it goes over what the agent's store has of it, which the agent can't be asked for: look there, then set spec.conflict to Overwrite"
	case v1alpha1.StateLeft:
		return "the source has it no more; what was sent stays with the agent"
	}
	return explain(a)
}
