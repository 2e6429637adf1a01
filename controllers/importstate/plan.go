package importstate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
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
	problems []problem
}

// complete reports whether the whole content of the source is known. An invalid document may be one
// that was valid before, with another key.
func (w *desired) complete() bool { return len(w.problems)+len(w.invalid) == 0 }

// planOptions are the options of a plan.
type planOptions struct {
	overwrite, dryRun bool
	// resend sends entries to an agent even if they were sent before.
	resend bool
	// skipCredentials is true if the credentials of the store were not read, so that they are
	// unknown.
	skipCredentials bool
	// hash identifies a value without revealing its content.
	hash func(data []byte) string
}

// plan has the action for each entry, and the values to write.
type importPlan struct {
	clusters    []v1alpha1.ImportedCluster
	credentials []v1alpha1.ImportedCredentials
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

// newPlan decides the action for each entry of the store, from the desired content, the current
// content and what was written before.
func newPlan(want desired, have statestore.Contents, before v1alpha1.ImportStateStatus, opts planOptions) importPlan {
	p := importPlan{states: map[string][]byte{}, secrets: map[string][]byte{}}
	lastRows := map[string]v1alpha1.ImportedCluster{}
	for _, row := range before.Clusters {
		lastRows[row.Key] = row
	}
	for _, c := range want.clusters {
		key := c.ID.Key()
		e := entry{want: c.JSON(), have: have.States[key], storeExists: have.HasStates, record: recordOf(lastRows[key])}
		e.confirmWrite(opts)
		row := newRow(c, e.record)
		row.Cluster = lastRows[key].Cluster
		switch {
		case have.External:
			row.Action, row.Message = v1alpha1.StateExternal, "ksctl stores its states in a MongoDB: import the state there"
		case c.External:
			row.Action, row.Message = v1alpha1.StateExternal, mongoDBMessage
		default:
			row.Action = e.decide(opts)
			row.Message, row.Ready = actionMessage(row.Action), settled(row.Action)
		}
		if row.Action == v1alpha1.StateInSync {
			row.Written, row.Writing = opts.hash(e.want), ""
		}
		if writes(row.Action) {
			p.states[row.Key] = e.want
		}
		p.clusters = append(p.clusters, row)
	}
	for _, row := range want.invalid {
		last := lastRows[row.Key]
		row.Written, row.Ours, row.Writing, row.Cluster = last.Written, last.Ours, last.Writing, last.Cluster
		p.clusters = append(p.clusters, row)
	}
	p.addRemovedFromSource(want, have, before, opts)
	p.addCredentials(want, have, before, opts)
	p.checkSize(have)
	p.clusters = sortUnique(p.clusters)
	slices.SortFunc(p.credentials, func(a, b v1alpha1.ImportedCredentials) int { return cmp.Compare(a.Cloud, b.Cloud) })
	return p
}

// newRow returns the row of a cluster in the status. The identity of an invalid state is untrusted.
func newRow(c *state.Cluster, r record) v1alpha1.ImportedCluster {
	// The limits exceed those of valid keys, so that a shortened key never equals a valid one.
	id := state.ID{Cloud: sanitizeName(c.ID.Cloud, 16), Type: sanitizeName(c.ID.Type, 16), Name: sanitizeName(c.ID.Name, 64), Region: sanitizeName(c.ID.Region, 65)}
	return v1alpha1.ImportedCluster{Key: id.Key(), Name: id.Name, Cloud: id.Cloud, Region: id.Region, Type: id.Type,
		Dialect: string(c.Dialect), Written: r.written, Ours: r.ours, Writing: r.writing}
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

// addRemovedFromSource keeps the rows of clusters that were written before and are no longer in the
// source: they stay in the store, and the deletion of the ImportState can remove them. If a file is
// not readable, its clusters are unknown and their rows stay as they were, except that they record
// removals from the store: what ksctl has removed since must not be written again when the file is
// readable.
func (p *importPlan) addRemovedFromSource(want desired, have statestore.Contents, before v1alpha1.ImportStateStatus, opts planOptions) {
	for _, row := range before.Clusters {
		known := slices.ContainsFunc(p.clusters, func(c v1alpha1.ImportedCluster) bool { return c.Key == row.Key })
		if known || recordOf(row) == (record{}) || len(p.clusters) >= maxClusters {
			continue
		}
		inStore := have.States[row.Key] != nil
		if !inStore && want.complete() {
			continue
		}
		switch {
		case !inStore && row.Ready:
			row.Action, row.Ready, row.Message = v1alpha1.StateRemovedSince, false, actionMessage(v1alpha1.StateRemovedSince)
		case inStore && len(want.problems) == 0:
			row.Action, row.Ready, row.Message = v1alpha1.StateLeft, true, actionMessage(v1alpha1.StateLeft)
		case inStore && row.Action == v1alpha1.StateRemovedSince:
			row.Action = recordOf(row).restored(have.States[row.Key], opts)
			row.Message, row.Ready = actionMessage(row.Action), true
		}
		p.clusters = append(p.clusters, row)
	}
}

// addRemovedCredentials keeps rows of credentials as addRemovedFromSource does those of clusters.
// If the credentials of the store were not read, it keeps their rows, except those that are not
// ready: an error must not remain for credentials that are no longer imported.
func (p *importPlan) addRemovedCredentials(want desired, have statestore.Contents, before v1alpha1.ImportStateStatus, opts planOptions) {
	for _, row := range before.Credentials {
		last := record{row.Written, row.Writing, row.Ours}
		wanted := slices.ContainsFunc(p.credentials, func(c v1alpha1.ImportedCredentials) bool { return c.Cloud == row.Cloud })
		inStore := have.Credentials[row.Cloud] != nil
		keep := inStore || opts.skipCredentials && row.Ready || !want.complete()
		if wanted || last == (record{}) || !keep {
			continue
		}
		switch {
		case opts.skipCredentials:
		case !inStore && row.Ready:
			row.Action, row.Ready, row.Message = v1alpha1.StateRemovedSince, false, actionMessage(v1alpha1.StateRemovedSince)
		case inStore && len(want.problems) == 0:
			row.Action, row.Ready, row.Message = v1alpha1.StateLeft, true, actionMessage(v1alpha1.StateLeft)
		case inStore && row.Action == v1alpha1.StateRemovedSince:
			row.Action = last.restored(have.Credentials[row.Cloud], opts)
			row.Message, row.Ready = actionMessage(row.Action), true
		}
		p.credentials = append(p.credentials, row)
	}
}

// addCredentials decides the action for the credentials of each cloud.
func (p *importPlan) addCredentials(want desired, have statestore.Contents, before v1alpha1.ImportStateStatus, opts planOptions) {
	records := map[string]record{}
	for _, row := range before.Credentials {
		records[row.Cloud] = record{row.Written, row.Writing, row.Ours}
	}
	for _, c := range want.credentials {
		e := entry{want: c.JSON(), have: have.Credentials[c.Cloud], storeExists: have.HasCredentials, record: records[c.Cloud]}
		e.confirmWrite(opts)
		row := v1alpha1.ImportedCredentials{Cloud: c.Cloud, Action: e.decide(opts), Written: e.written, Ours: e.ours, Writing: e.writing}
		row.Message, row.Ready = actionMessage(row.Action), settled(row.Action)
		if row.Action == v1alpha1.StateInSync {
			row.Written, row.Writing = opts.hash(e.want), ""
		}
		if writes(row.Action) {
			p.secrets[c.Cloud] = e.want
		}
		p.credentials = append(p.credentials, row)
	}
	p.addRemovedCredentials(want, have, before, opts)
}

// checkSize drops all writes if the states do not fit into the store: a partial import would leave
// no space for the states that ksctl itself writes.
func (p *importPlan) checkSize(have statestore.Contents) {
	after := maps.Clone(have.States)
	if after == nil {
		after = map[string][]byte{}
	}
	maps.Copy(after, p.states)
	if p.sizeErr = state.CheckStoreSize(after); p.sizeErr != nil {
		p.states, p.secrets, after = nil, nil, have.States
		for i := range p.clusters {
			if row := &p.clusters[i]; writes(row.Action) {
				row.Action, row.Message = v1alpha1.StateFull, actionMessage(v1alpha1.StateFull)
			}
		}
		for i := range p.credentials {
			if row := &p.credentials[i]; writes(row.Action) {
				row.Action, row.Message = v1alpha1.StateFull, actionMessage(v1alpha1.StateFull)
			}
		}
	}
	p.bytes = state.TotalSize(after)
}

// announce marks the entries to write, so that the next reconcile can tell what a reconcile wrote
// that ended before it updated the status. It skips rows that are kept from an earlier reconcile.
func (p *importPlan) announce(opts planOptions) {
	for i := range p.clusters {
		row := &p.clusters[i]
		if data, ok := p.states[row.Key]; ok {
			row.Writing = opts.hash(data)
		}
	}
	for i := range p.credentials {
		row := &p.credentials[i]
		if data, ok := p.secrets[row.Cloud]; ok {
			row.Writing = opts.hash(data)
		}
	}
}

// markWritten marks all entries of the plan as written. It returns a summary for an event.
func (p *importPlan) markWritten() (summary string) {
	n := 0
	for i := range p.clusters {
		row := &p.clusters[i]
		if _, ok := p.states[row.Key]; ok {
			confirmRow(row, v1alpha1.StateInSync)
			n++
		}
	}
	m := 0
	for i := range p.credentials {
		row := &p.credentials[i]
		if _, ok := p.secrets[row.Cloud]; ok {
			confirmCredentialsRow(row, v1alpha1.StateInSync)
			m++
		}
	}
	return fmt.Sprintf("wrote %s", statestore.CountSummary(n, m))
}

// confirmRow marks the pending value of a row as written.
func confirmRow(row *v1alpha1.ImportedCluster, action v1alpha1.StateAction) {
	row.Action, row.Message, row.Ready = action, "", true
	row.Written, row.Writing, row.Ours = row.Writing, "", true
}

func confirmCredentialsRow(row *v1alpha1.ImportedCredentials, action v1alpha1.StateAction) {
	row.Action, row.Message, row.Ready = action, "", true
	row.Written, row.Writing, row.Ours = row.Writing, "", true
}
