package importstate

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/state"
)

// desired is the desired content of a store, as read from a source.
type desired struct {
	clusters    []*state.Cluster
	credentials []*state.Credentials
	// invalid are the clusters whose state ksctl could not use, with the reason in their message.
	invalid []v1alpha1.ImportedCluster
	// problems are the files that could not be read at all.
	problems []*reconcile.StepError
}

// complete reports whether the whole content of the source is known. An invalid document may be one
// that was valid before, with another key.
func (w *desired) complete() bool { return len(w.problems)+len(w.invalid) == 0 }

// planOptions are the options of a plan.
type planOptions struct {
	overwrite, dryRun bool
	// agent is true if the entries are sent to an agent, whose store cannot be read.
	agent bool
	// resend sends entries to an agent even if they were sent before.
	resend bool
	// skipCredentials is true if the credentials of the store were not read, so that they are
	// unknown.
	skipCredentials bool
	// hash identifies a value without revealing its content.
	hash func(data []byte) string
}

// importPlan has the action for each entry, and the values to write.
type importPlan struct {
	// clusters and credentials are the rows of the status. Those of credentials have the same form
	// as those of clusters, with the cloud as their key.
	clusters, credentials []v1alpha1.ImportedCluster
	// states and secrets are the values to write, by key.
	states, secrets map[string][]byte
	// bytes is the size of the states in the store after the write.
	bytes int
	// sizeErr is the error of a plan that exceeds the size of the store, so that nothing is
	// written.
	sizeErr error
}

// mongoDBMessage explains why a state is not imported.
const mongoDBMessage = "exported from a MongoDB, which still contains the state"

// newPlan decides the action for each entry, from the desired content, the current content of the
// store and what was written before. The content of an agent's store is unknown: have is empty.
func newPlan(want desired, have statestore.Contents, before v1alpha1.ImportStateStatus, opts planOptions) importPlan {
	p := importPlan{states: map[string][]byte{}, secrets: map[string][]byte{}}
	if opts.agent {
		have.States = map[string][]byte{} // gets what the agent's store has, or will have
	}
	lastRows := rowsByKey(before.Clusters)
	for _, c := range want.clusters {
		key := c.ID.Key()
		e := entry{ImportedCluster: newRow(c, lastRows[key]), want: c.JSON(), have: have.States[key],
			storeExists: have.HasStates}
		e.confirmWrite(opts)
		switch {
		case have.External:
			e.Action, e.Message = v1alpha1.StateExternal, "ksctl stores its states in a MongoDB: import the state there"
		case c.External:
			e.Action, e.Message = v1alpha1.StateExternal, mongoDBMessage
		default:
			e.plan(p.states, opts)
			if opts.agent {
				have.States[key] = e.want
			}
		}
		p.clusters = append(p.clusters, e.ImportedCluster)
	}
	for _, row := range want.invalid {
		last := lastRows[row.Key]
		row.Written, row.Ours, row.Writing, row.Cluster = last.Written, last.Ours, last.Writing, last.Cluster
		p.clusters = append(p.clusters, row)
	}
	p.clusters = addRemovedFromSource(p.clusters, before.Clusters, have.States, want, false, opts)
	lastCredentials := credentialRows(before.Credentials)
	lastRows = rowsByKey(lastCredentials)
	for _, c := range want.credentials {
		last := lastRows[c.Cloud]
		e := entry{ImportedCluster: v1alpha1.ImportedCluster{Key: c.Cloud, Written: last.Written, Ours: last.Ours,
			Writing: last.Writing},
			want: c.JSON(), have: have.Credentials[c.Cloud], storeExists: have.HasCredentials}
		e.confirmWrite(opts)
		e.plan(p.secrets, opts)
		p.credentials = append(p.credentials, e.ImportedCluster)
	}
	p.credentials = addRemovedFromSource(p.credentials, lastCredentials, have.Credentials, want, opts.skipCredentials,
		opts)
	p.checkSize(have.States)
	p.clusters, p.credentials = sortUnique(p.clusters), sortUnique(p.credentials)
	return p
}

func rowsByKey(rows []v1alpha1.ImportedCluster) map[string]v1alpha1.ImportedCluster {
	out := map[string]v1alpha1.ImportedCluster{}
	for _, row := range rows {
		out[row.Key] = row
	}
	return out
}

// credentialRows returns rows of credentials in the form of those of clusters.
func credentialRows(rows []v1alpha1.ImportedCredentials) (out []v1alpha1.ImportedCluster) {
	for _, row := range rows {
		out = append(out, v1alpha1.ImportedCluster{Key: row.Cloud, Action: row.Action, Ready: row.Ready,
			Message: row.Message,
			Written: row.Written, Ours: row.Ours, Writing: row.Writing})
	}
	return out
}

// newRow returns the row of a cluster in the status, with what the last row of the cluster
// remembers. The identity of an invalid state is untrusted.
func newRow(c *state.Cluster, last v1alpha1.ImportedCluster) v1alpha1.ImportedCluster {
	// The limits exceed those of valid keys, so that a shortened key never equals a valid one.
	id := state.ID{Cloud: sanitizeName(c.ID.Cloud, 16), Type: sanitizeName(c.ID.Type, 16),
		Name: sanitizeName(c.ID.Name, 64), Region: sanitizeName(c.ID.Region, 65)}
	return v1alpha1.ImportedCluster{Key: id.Key(), Name: id.Name, Cloud: id.Cloud, Region: id.Region, Type: id.Type,
		Dialect: string(c.Dialect), Cluster: last.Cluster, Written: last.Written, Ours: last.Ours,
		Writing: last.Writing}
}

// sanitizeName shortens a name, and replaces characters that take several bytes in JSON: a status
// with a thousand such names would exceed the limit of etcd.
func sanitizeName(s string, maxBytes int) string {
	return statestore.Truncate(statestore.Sanitize(s, `"\`), maxBytes)
}

// sortUnique sorts rows by key. It drops all but the first row of a key, because keys are unique in
// the list of the status.
func sortUnique(rows []v1alpha1.ImportedCluster) []v1alpha1.ImportedCluster {
	slices.SortStableFunc(rows, func(a, b v1alpha1.ImportedCluster) int { return cmp.Compare(a.Key, b.Key) })
	return slices.CompactFunc(rows, func(a, b v1alpha1.ImportedCluster) bool { return a.Key == b.Key })
}

// addRemovedFromSource adds the rows of entries that were written before and are no longer in the
// source: they stay in the store, and the deletion of the ImportState can remove them. If a file is
// not readable, its entries are unknown and their rows stay as they were, except that they record
// removals from the store: what ksctl has removed since must not be written again when the file is
// readable.
//
// stored are the values in the store. If they were not read, the rows stay as they were, except
// those that are not ready: an error must not remain for entries that are no longer imported.
func addRemovedFromSource(rows, before []v1alpha1.ImportedCluster, stored map[string][]byte, want desired, unread bool,
	opts planOptions) []v1alpha1.ImportedCluster {
	for _, row := range before {
		known := slices.ContainsFunc(rows, func(r v1alpha1.ImportedCluster) bool { return r.Key == row.Key })
		wasWritten := row.Written != "" || row.Writing != "" || row.Ours
		if known || !wasWritten || len(rows) >= maxClusters {
			continue
		}
		inStore := opts.agent || stored[row.Key] != nil
		if !inStore && want.complete() && (!unread || !row.Ready) {
			continue
		}
		switch {
		case unread:
		case !inStore && row.Ready:
			row.Action, row.Ready, row.Message = v1alpha1.StateRemovedSince, false,
				opts.message(v1alpha1.StateRemovedSince)
		case inStore && len(want.problems) == 0:
			row.Action, row.Ready, row.Message = v1alpha1.StateLeft, true, opts.message(v1alpha1.StateLeft)
		case inStore && row.Action == v1alpha1.StateRemovedSince:
			row.Action = v1alpha1.StateChangedSince
			if h := opts.hash(stored[row.Key]); h == row.Written || h == row.Writing {
				row.Action = v1alpha1.StateInSync
			}
			row.Message, row.Ready = opts.message(row.Action), true
		}
		rows = append(rows, row)
	}
	return rows
}

// checkSize drops all writes if the states do not fit into the store: a partial import would leave
// no space for the states that ksctl itself writes.
func (p *importPlan) checkSize(stored map[string][]byte) {
	after := map[string][]byte{}
	maps.Copy(after, stored)
	maps.Copy(after, p.states)
	if p.sizeErr = state.CheckStoreSize(after); p.sizeErr != nil {
		p.states, p.secrets, after = nil, nil, stored
		for _, rows := range [][]v1alpha1.ImportedCluster{p.clusters, p.credentials} {
			for i := range rows {
				if row := &rows[i]; writes(row.Action) {
					row.Action, row.Message = v1alpha1.StateFull, actionMessages[v1alpha1.StateFull]
				}
			}
		}
	}
	p.bytes = state.TotalSize(after)
}

// eachWrite calls f for the row of each entry to write, with its value. It skips rows that are kept
// from an earlier reconcile.
func (p *importPlan) eachWrite(f func(row *v1alpha1.ImportedCluster, data []byte)) {
	each := func(rows []v1alpha1.ImportedCluster, values map[string][]byte) {
		for i := range rows {
			if data, ok := values[rows[i].Key]; ok {
				f(&rows[i], data)
			}
		}
	}
	each(p.clusters, p.states)
	each(p.credentials, p.secrets)
}

// announce marks the entries to write, so that the next reconcile can tell what a reconcile wrote
// that ended before it updated the status.
func (p *importPlan) announce(opts planOptions) {
	p.eachWrite(func(row *v1alpha1.ImportedCluster, data []byte) { row.Writing = opts.hash(data) })
}

// markWritten marks all entries of the plan as written. It returns a summary for an event.
func (p *importPlan) markWritten() (summary string) {
	p.eachWrite(func(row *v1alpha1.ImportedCluster, _ []byte) { confirmRow(row, v1alpha1.StateInSync) })
	return "wrote " + statestore.CountSummary(len(p.states), len(p.secrets))
}

// confirmRow marks the pending value of a row as written.
func confirmRow(row *v1alpha1.ImportedCluster, action v1alpha1.StateAction) {
	row.Action, row.Message, row.Ready = action, "", true
	row.Written, row.Writing, row.Ours = row.Writing, "", true
}
