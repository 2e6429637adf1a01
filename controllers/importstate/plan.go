package importstate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/stacks/state"
)

// wishes are what a source wants of a store.
type wishes struct {
	clusters    []*state.Cluster
	credentials []*state.Credentials
	// refused are the clusters that ksctl could not work with, with why.
	refused []v1alpha1.ImportedCluster
	// problems with files, as a whole.
	problems []problem
}

// held is what a store holds.
type held struct {
	states, credentials map[string][]byte
	// external is true when ksctl keeps its states in a MongoDB instead.
	external bool
}

// policy is how an import goes about it.
type policy struct {
	overwrite, dryRun bool
	// hash tells values apart that must not be told.
	hash func(data []byte) string
}

// plan is what becomes of each entry, and what is to be written.
type plan struct {
	clusters    []v1alpha1.ImportedCluster
	credentials []v1alpha1.ImportedCredentials
	// states and secrets are the values to write, by key.
	states, secrets map[string][]byte
	// bytes that the states in the store have afterwards.
	bytes int
	// full is why states are not written though they should be; nil: there is room.
	full error
}

// newPlan decides about each entry of the store, from what is wanted of it, what it holds
// and what was written before.
func newPlan(want wishes, have held, before v1alpha1.ImportStateStatus, how policy) plan {
	p := plan{states: map[string][]byte{}, secrets: map[string][]byte{}, clusters: unique(want.refused)}
	entries := map[string]entry{}
	for _, c := range before.Clusters {
		entries[c.Key] = entry{written: c.Written, writing: c.Writing}
	}
	for _, c := range want.clusters {
		e := entries[c.ID.Key()]
		e.want, e.have = c.JSON(), have.states[c.ID.Key()]
		row := rowOf(c, e)
		switch {
		case have.external:
			row.Action, row.Message = v1alpha1.StateExternal, "ksctl keeps its states in a MongoDB here: import it there"
		case c.External:
			row.Action, row.Message = v1alpha1.StateExternal, "it was exported from a MongoDB, where its state is still kept"
		default:
			row.Action = e.decide(how)
			row.Message, row.Ready = explain(row.Action), settled(row.Action)
		}
		if row.Action == v1alpha1.StateInSync {
			row.Written, row.Writing = how.hash(e.want), ""
		}
		if writes(row.Action) {
			p.states[row.Key] = e.want
		}
		p.clusters = append(p.clusters, row)
	}
	p.addLeft(have, before)
	p.addCredentials(want, have, before, how)
	p.fit(have)
	slices.SortFunc(p.clusters, func(a, b v1alpha1.ImportedCluster) int { return cmp.Compare(a.Key, b.Key) })
	slices.SortFunc(p.credentials, func(a, b v1alpha1.ImportedCredentials) int { return cmp.Compare(a.Cloud, b.Cloud) })
	return p
}

// rowOf is the line of a cluster. What names one that is refused may be anything.
func rowOf(c *state.Cluster, e entry) v1alpha1.ImportedCluster {
	id := state.ID{Cloud: clip(c.ID.Cloud), Type: clip(c.ID.Type), Name: clip(c.ID.Name), Region: clip(c.ID.Region)}
	return v1alpha1.ImportedCluster{Key: id.Key(), Name: id.Name, Cloud: id.Cloud, Region: id.Region, Type: id.Type,
		Dialect: string(c.Dialect), Written: e.written, Writing: e.writing}
}

// clip keeps the beginning of a word.
func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), 64)], "") }

// unique leaves out lines of the same key, which a list can't have.
func unique(rows []v1alpha1.ImportedCluster) []v1alpha1.ImportedCluster {
	sorted := slices.SortedStableFunc(slices.Values(rows), func(a, b v1alpha1.ImportedCluster) int { return cmp.Compare(a.Key, b.Key) })
	return slices.CompactFunc(sorted, func(a, b v1alpha1.ImportedCluster) bool { return a.Key == b.Key })
}

// addLeft keeps the lines of what was written before and is in the source no more: it
// stays in the store, and goes with the object if that is asked for.
func (p *plan) addLeft(have held, before v1alpha1.ImportStateStatus) {
	for _, row := range before.Clusters {
		known := slices.ContainsFunc(p.clusters, func(c v1alpha1.ImportedCluster) bool { return c.Key == row.Key })
		if known || row.Written == "" || have.states[row.Key] == nil {
			continue
		}
		row.Action, row.Ready, row.Message = v1alpha1.StateLeft, true, explain(v1alpha1.StateLeft)
		p.clusters = append(p.clusters, row)
	}
}

// addCredentials decides about the credentials of each cloud.
func (p *plan) addCredentials(want wishes, have held, before v1alpha1.ImportStateStatus, how policy) {
	rows := map[string]v1alpha1.ImportedCredentials{}
	for _, row := range before.Credentials {
		if row.Written != "" && have.credentials[row.Cloud] != nil {
			row.Action, row.Ready, row.Message = v1alpha1.StateLeft, true, explain(v1alpha1.StateLeft)
			rows[row.Cloud] = row
		}
	}
	for _, c := range want.credentials {
		e := entry{want: c.JSON(), have: have.credentials[c.Cloud]}
		i := slices.IndexFunc(before.Credentials, func(row v1alpha1.ImportedCredentials) bool { return row.Cloud == c.Cloud })
		if i >= 0 {
			e.written, e.writing = before.Credentials[i].Written, before.Credentials[i].Writing
		}
		row := v1alpha1.ImportedCredentials{Cloud: c.Cloud, Action: e.decide(how), Written: e.written, Writing: e.writing}
		row.Message, row.Ready = explain(row.Action), settled(row.Action)
		if row.Action == v1alpha1.StateInSync {
			row.Written, row.Writing = how.hash(e.want), ""
		}
		if writes(row.Action) {
			p.secrets[c.Cloud] = e.want
		}
		rows[c.Cloud] = row
	}
	p.credentials = slices.Collect(maps.Values(rows))
}

// fit drops every write when the states do not all fit: half of an import would
// leave ksctl itself no room.
func (p *plan) fit(have held) {
	after := maps.Clone(have.states)
	if after == nil {
		after = map[string][]byte{}
	}
	maps.Copy(after, p.states)
	if p.full = state.CheckSize(after); p.full != nil {
		p.states, p.secrets, after = nil, nil, have.states
		for i := range p.clusters {
			if row := &p.clusters[i]; writes(row.Action) {
				row.Action, row.Message = v1alpha1.StateFull, explain(v1alpha1.StateFull)
			}
		}
		for i := range p.credentials {
			if row := &p.credentials[i]; writes(row.Action) {
				row.Action, row.Message = v1alpha1.StateFull, explain(v1alpha1.StateFull)
			}
		}
	}
	p.bytes = state.Size(after)
}

// entry is one value of the store.
type entry struct {
	// want is what the source has, have what the store has; nil: nothing.
	want, have []byte
	// written identifies what was written last, writing what was about to be when a
	// pass ended that did not say how.
	written, writing string
}

// decide is what becomes of an entry that the source has.
func (e entry) decide(how policy) v1alpha1.StateAction {
	if e.have == nil {
		return v1alpha1.StateCreate
	}
	if state.Equal(e.want, e.have) {
		return v1alpha1.StateInSync
	}
	// Nobody has touched it since it was written from here.
	if has := how.hash(e.have); has == e.written || has == e.writing {
		return v1alpha1.StateUpdate
	}
	// It is in the store already, and ksctl has gone on from there.
	if how.hash(e.want) == e.written {
		return v1alpha1.StateChangedSince
	}
	if how.overwrite {
		return v1alpha1.StateUpdate
	}
	return v1alpha1.StateConflict
}

// writes is true for what something is written for.
func writes(a v1alpha1.StateAction) bool {
	return a == v1alpha1.StateCreate || a == v1alpha1.StateUpdate
}

// settled is true for what is in the store as it is to be.
func settled(a v1alpha1.StateAction) bool {
	return a == v1alpha1.StateInSync || a == v1alpha1.StateChangedSince
}

// explain says more of an action, for a person.
func explain(a v1alpha1.StateAction) string {
	switch a {
	case v1alpha1.StateCreate:
		return "it is to be written"
	case v1alpha1.StateUpdate:
		return "it is to be written over what the store has"
	case v1alpha1.StateChangedSince:
		return "it was imported, and has been changed in the store since; it is left alone until the source changes"
	case v1alpha1.StateConflict:
		return "the store has another one, which was not written from here: compare the two, then correct the source, or set spec.conflict to Overwrite"
	case v1alpha1.StateLeft:
		return "the source has it no more; it stays in the store"
	case v1alpha1.StateFull:
		return "the store has no room for what is to be written"
	}
	return ""
}

// announce marks what is about to be written, so that a pass that ends before it could say
// how is understood by the next.
func (p *plan) announce(how policy) {
	for i := range p.clusters {
		if row := &p.clusters[i]; writes(row.Action) {
			row.Writing = how.hash(p.states[row.Key])
		}
	}
	for i := range p.credentials {
		if row := &p.credentials[i]; writes(row.Action) {
			row.Writing = how.hash(p.secrets[row.Cloud])
		}
	}
}

// written takes note that everything was written. Only what is new in it is said.
func (p *plan) written() (did string) {
	n := 0
	for i := range p.clusters {
		if row := &p.clusters[i]; writes(row.Action) {
			row.Action, row.Message, row.Ready = v1alpha1.StateInSync, "", true
			row.Written, row.Writing = row.Writing, ""
			n++
		}
	}
	m := 0
	for i := range p.credentials {
		if row := &p.credentials[i]; writes(row.Action) {
			row.Action, row.Message, row.Ready = v1alpha1.StateInSync, "", true
			row.Written, row.Writing = row.Writing, ""
			m++
		}
	}
	return fmt.Sprintf("wrote %s", said(n, m))
}

// said counts states and credentials in words.
func said(clusters, credentials int) string {
	states, clouds := plural(clusters, "state"), "the credentials of "+plural(credentials, "cloud")
	switch {
	case credentials == 0:
		return states
	case clusters == 0:
		return clouds
	}
	return states + " and " + clouds
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
