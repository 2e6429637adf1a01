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

// wishes are what a source wants of a store.
type wishes struct {
	clusters    []*state.Cluster
	credentials []*state.Credentials
	// refused are the clusters that ksctl could not work with, with why.
	refused []v1alpha1.ImportedCluster
	// problems with files, as a whole.
	problems []problem
}

// complete is true when everything that the source has is known. A document that is refused
// may be one that was fine before, under another key.
func (w *wishes) complete() bool { return len(w.problems)+len(w.refused) == 0 }

// policy is how an import goes about it.
type policy struct {
	overwrite, dryRun bool
	// again has an agent be sent what it was sent before, too.
	again bool
	// noCredentials: those of the store were not read, so that nothing is known of them.
	noCredentials bool
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
	// full is why nothing is written though it should be; nil: there is room.
	full error
}

// fromMongoDB says of a state why it is not imported.
const fromMongoDB = "it was exported from a MongoDB, where its state is still kept"

// newPlan decides about each entry of the store, from what is wanted of it, what it holds
// and what was written before.
func newPlan(want wishes, have statestore.Held, before v1alpha1.ImportStateStatus, how policy) plan {
	p := plan{states: map[string][]byte{}, secrets: map[string][]byte{}}
	known := map[string]v1alpha1.ImportedCluster{}
	for _, row := range before.Clusters {
		known[row.Key] = row
	}
	for _, c := range want.clusters {
		key := c.ID.Key()
		e := entry{want: c.JSON(), have: have.States[key], there: have.HasStates, record: recordOf(known[key])}
		e.promote(how)
		row := rowOf(c, e.record)
		row.Cluster = known[key].Cluster
		switch {
		case have.External:
			row.Action, row.Message = v1alpha1.StateExternal, "ksctl keeps its states in a MongoDB here: import it there"
		case c.External:
			row.Action, row.Message = v1alpha1.StateExternal, fromMongoDB
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
	for _, row := range want.refused {
		was := known[row.Key]
		row.Written, row.Ours, row.Writing, row.Cluster = was.Written, was.Ours, was.Writing, was.Cluster
		p.clusters = append(p.clusters, row)
	}
	p.addLeft(want, have, before, how)
	p.addCredentials(want, have, before, how)
	p.fit(have)
	p.clusters = unique(p.clusters)
	slices.SortFunc(p.credentials, func(a, b v1alpha1.ImportedCredentials) int { return cmp.Compare(a.Cloud, b.Cloud) })
	return p
}

// rowOf is the line of a cluster. What names one that is refused may be anything.
func rowOf(c *state.Cluster, r record) v1alpha1.ImportedCluster {
	// Longer than those of any key that ksctl could have: no line is taken for another's.
	id := state.ID{Cloud: word(c.ID.Cloud, 16), Type: word(c.ID.Type, 16), Name: word(c.ID.Name, 64), Region: word(c.ID.Region, 65)}
	return v1alpha1.ImportedCluster{Key: id.Key(), Name: id.Name, Cloud: id.Cloud, Region: id.Region, Type: id.Type,
		Dialect: string(c.Dialect), Written: r.written, Ours: r.ours, Writing: r.writing}
}

// word is the beginning of a name, without what takes several bytes each as JSON: a
// thousand such names are more than etcd takes.
func word(s string, most int) string { return statestore.Clip(statestore.Plain(s, `"\`), most) }

// unique sorts lines, and leaves out those of the same key, which a list can't have: the first counts.
func unique(rows []v1alpha1.ImportedCluster) []v1alpha1.ImportedCluster {
	slices.SortStableFunc(rows, func(a, b v1alpha1.ImportedCluster) int { return cmp.Compare(a.Key, b.Key) })
	return slices.CompactFunc(rows, func(a, b v1alpha1.ImportedCluster) bool { return a.Key == b.Key })
}

// addLeft keeps the lines of what was written before and is in the source no more: it
// stays in the store, and goes with the object if that is asked for. Where a file can't be
// read, nobody knows what it has, and its lines stay as they were, but for what they say of the
// store: what ksctl has taken out since is not to be written again when the file is mended.
func (p *plan) addLeft(want wishes, have statestore.Held, before v1alpha1.ImportStateStatus, how policy) {
	for _, row := range before.Clusters {
		known := slices.ContainsFunc(p.clusters, func(c v1alpha1.ImportedCluster) bool { return c.Key == row.Key })
		if known || recordOf(row) == (record{}) || len(p.clusters) >= maxClusters {
			continue
		}
		there := have.States[row.Key] != nil
		if !there && want.complete() {
			continue
		}
		switch {
		case !there && row.Ready:
			row.Action, row.Ready, row.Message = v1alpha1.StateRemovedSince, false, explain(v1alpha1.StateRemovedSince)
		case there && len(want.problems) == 0:
			row.Action, row.Ready, row.Message = v1alpha1.StateLeft, true, explain(v1alpha1.StateLeft)
		case there && row.Action == v1alpha1.StateRemovedSince:
			row.Action = recordOf(row).back(have.States[row.Key], how)
			row.Message, row.Ready = explain(row.Action), true
		}
		p.clusters = append(p.clusters, row)
	}
}

// addLeftCredentials keeps the lines of credentials as addLeft does those of clusters. Where the
// store's were not read, it may have them or not, and their lines stay; but nobody is to mend what
// is not imported any more.
func (p *plan) addLeftCredentials(want wishes, have statestore.Held, before v1alpha1.ImportStateStatus, how policy) {
	for _, row := range before.Credentials {
		was := record{row.Written, row.Writing, row.Ours}
		wanted := slices.ContainsFunc(p.credentials, func(c v1alpha1.ImportedCredentials) bool { return c.Cloud == row.Cloud })
		there := have.Credentials[row.Cloud] != nil
		kept := there || how.noCredentials && row.Ready || !want.complete()
		if wanted || was == (record{}) || !kept {
			continue
		}
		switch {
		case how.noCredentials:
		case !there && row.Ready:
			row.Action, row.Ready, row.Message = v1alpha1.StateRemovedSince, false, explain(v1alpha1.StateRemovedSince)
		case there && len(want.problems) == 0:
			row.Action, row.Ready, row.Message = v1alpha1.StateLeft, true, explain(v1alpha1.StateLeft)
		case there && row.Action == v1alpha1.StateRemovedSince:
			row.Action = was.back(have.Credentials[row.Cloud], how)
			row.Message, row.Ready = explain(row.Action), true
		}
		p.credentials = append(p.credentials, row)
	}
}

// addCredentials decides about the credentials of each cloud.
func (p *plan) addCredentials(want wishes, have statestore.Held, before v1alpha1.ImportStateStatus, how policy) {
	records := map[string]record{}
	for _, row := range before.Credentials {
		records[row.Cloud] = record{row.Written, row.Writing, row.Ours}
	}
	for _, c := range want.credentials {
		e := entry{want: c.JSON(), have: have.Credentials[c.Cloud], there: have.HasCredentials, record: records[c.Cloud]}
		e.promote(how)
		row := v1alpha1.ImportedCredentials{Cloud: c.Cloud, Action: e.decide(how), Written: e.written, Ours: e.ours, Writing: e.writing}
		row.Message, row.Ready = explain(row.Action), settled(row.Action)
		if row.Action == v1alpha1.StateInSync {
			row.Written, row.Writing = how.hash(e.want), ""
		}
		if writes(row.Action) {
			p.secrets[c.Cloud] = e.want
		}
		p.credentials = append(p.credentials, row)
	}
	p.addLeftCredentials(want, have, before, how)
}

// fit drops every write when the states do not all fit: half of an import would
// leave ksctl itself no room.
func (p *plan) fit(have statestore.Held) {
	after := maps.Clone(have.States)
	if after == nil {
		after = map[string][]byte{}
	}
	maps.Copy(after, p.states)
	if p.full = state.CheckSize(after); p.full != nil {
		p.states, p.secrets, after = nil, nil, have.States
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

// announce marks what is about to be written, so that a pass that ends before it could say
// how is understood by the next. The line of a former pass may say that it is to be written, too.
func (p *plan) announce(how policy) {
	for i := range p.clusters {
		row := &p.clusters[i]
		if data, ok := p.states[row.Key]; ok {
			row.Writing = how.hash(data)
		}
	}
	for i := range p.credentials {
		row := &p.credentials[i]
		if data, ok := p.secrets[row.Cloud]; ok {
			row.Writing = how.hash(data)
		}
	}
}

// written takes note that everything was written. Only what is new in it is said.
func (p *plan) written() (did string) {
	n := 0
	for i := range p.clusters {
		row := &p.clusters[i]
		if _, ok := p.states[row.Key]; ok {
			now(row, v1alpha1.StateInSync)
			n++
		}
	}
	m := 0
	for i := range p.credentials {
		row := &p.credentials[i]
		if _, ok := p.secrets[row.Cloud]; ok {
			nowCredentials(row, v1alpha1.StateInSync)
			m++
		}
	}
	return fmt.Sprintf("wrote %s", statestore.Said(n, m))
}

// now takes note that what was about to be written was.
func now(row *v1alpha1.ImportedCluster, action v1alpha1.StateAction) {
	row.Action, row.Message, row.Ready = action, "", true
	row.Written, row.Writing, row.Ours = row.Writing, "", true
}

func nowCredentials(row *v1alpha1.ImportedCredentials, action v1alpha1.StateAction) {
	row.Action, row.Message, row.Ready = action, "", true
	row.Written, row.Writing, row.Ours = row.Writing, "", true
}
