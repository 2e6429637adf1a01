package importstate

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/state"
)

func hashForTest(data []byte) string {
	canonical, err := state.Canonical(data)
	if err != nil {
		canonical = data
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:8])
}

// document returns the state of a Civo cluster with some content.
func document(name, content string) string {
	return fmt.Sprintf(`{"cluster_name":%q,"cluster_type":"ha","region":"LON1","cloud_provider":"civo","words":%q}`,
		name, content)
}

func cluster(t *testing.T, doc string) *state.Cluster {
	t.Helper()
	f, err := state.Parse("a.json", []byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	return f.Clusters[0]
}

func credentials(t *testing.T, cloud, content string) *state.Credentials {
	t.Helper()
	c, err := state.ReadCredentials(cloud,
		fmt.Appendf(nil, `{"cloud_provider":%q,%q:{"token":%q}}`, cloud, cloud, content))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func terminal(reason, message string) *reconcile.StepError {
	return &reconcile.StepError{Reason: reason, Class: reconcile.TerminalClass, Err: errors.New(message)}
}

func transient(reason, message string) *reconcile.StepError {
	return &reconcile.StepError{Reason: reason, Class: reconcile.TransientClass, Err: errors.New(message)}
}

const demo = "civo.ha.demo.LON1"

func TestDecide(t *testing.T) {
	a, b, c := document("demo", "a"), document("demo", "b"), document("demo", "c")
	for name, test := range map[string]struct {
		want, have       string
		written, writing string
		overwrite        bool
		lost             bool // the store does not exist
		action           v1alpha1.StateAction
	}{
		"new":                {want: a, action: v1alpha1.StateCreate},
		"equal in the store": {want: a, have: a, action: v1alpha1.StateInSync},
		"equal in other order": {want: `{"b":1,"a":2}`, have: `{"a": 2, "b": 1}`,
			action: v1alpha1.StateInSync},
		"different":                 {want: a, have: b, action: v1alpha1.StateConflict},
		"different, with overwrite": {want: a, have: b, overwrite: true, action: v1alpha1.StateUpdate},
		"not JSON":                  {want: a, have: "x", action: v1alpha1.StateConflict},
		"source changed":            {want: b, have: a, written: a, action: v1alpha1.StateUpdate},
		"ksctl changed it":          {want: a, have: b, written: a, action: v1alpha1.StateChangedSince},
		"ksctl changed it, with overwrite": {want: a, have: b, written: a, overwrite: true,
			action: v1alpha1.StateChangedSince},
		"both changed": {want: c, have: b, written: a, action: v1alpha1.StateConflict},
		"both changed, with overwrite": {want: c, have: b, written: a, overwrite: true,
			action: v1alpha1.StateUpdate},
		"ksctl removed it":                 {want: a, written: a, action: v1alpha1.StateRemovedSince},
		"ksctl removed it, source changed": {want: b, written: a, action: v1alpha1.StateCreate},
		"store deleted":                    {want: a, written: a, lost: true, action: v1alpha1.StateCreate},
		"written, but not confirmed":       {want: c, have: b, written: a, writing: b, action: v1alpha1.StateUpdate},
		"announced, but not written":       {want: c, have: a, written: a, writing: b, action: v1alpha1.StateUpdate},
		"not confirmed, source reverted":   {want: a, have: b, written: a, writing: b, action: v1alpha1.StateUpdate},
	} {
		hash := func(doc string) string {
			if doc == "" {
				return ""
			}
			return hashForTest([]byte(doc))
		}
		e := entry{want: []byte(test.want), storeExists: !test.lost,
			ImportedCluster: v1alpha1.ImportedCluster{Written: hash(test.written), Writing: hash(test.writing)}}
		if test.have != "" {
			e.have = []byte(test.have)
		}
		opts := planOptions{overwrite: test.overwrite, hash: hashForTest}
		e.confirmWrite(opts)
		if got := e.decide(opts); got != test.action {
			t.Errorf("%s: got %s, want %s", name, got, test.action)
		}
	}
}

// actions returns the actions of a plan in a short form.
func actions(p importPlan) string {
	var out []string
	for _, c := range p.clusters {
		out = append(out, fmt.Sprintf("%s=%s", c.Key, c.Action))
	}
	for _, c := range p.credentials {
		out = append(out, fmt.Sprintf("%s=%s", c.Key, c.Action))
	}
	return strings.Join(out, " ")
}

func TestPlanWritesOnceAndKeepsRemovedEntries(t *testing.T) {
	opts := planOptions{hash: hashForTest}
	want := desired{clusters: []*state.Cluster{cluster(t, document("demo", "a")), cluster(t, document("next", "a"))},
		credentials: []*state.Credentials{credentials(t, "civo", "x")}}
	have := statestore.Contents{States: map[string][]byte{"aws.ha.other.r": []byte("{}")}}
	p := newPlan(want, have, v1alpha1.ImportStateStatus{}, opts)
	if got := actions(p); got != "civo.ha.demo.LON1=Create civo.ha.next.LON1=Create civo=Create" ||
		len(p.states) != 2 || len(p.secrets) != 1 {
		t.Fatalf("first: %s", got)
	}
	p.announce(opts)
	if did := p.markWritten(); did != "wrote 2 states and the credentials of 1 cloud" {
		t.Error(did)
	}
	var status v1alpha1.ImportStateStatus
	p.report(&status, destination{namespace: "ksctl"})
	have = statestore.Contents{States: p.states, Credentials: p.secrets, HasStates: true, HasCredentials: true}
	// Without changes nothing is written, and the status stays the same.
	again := newPlan(want, have, status, opts)
	if got := actions(again); got != "civo.ha.demo.LON1=InSync civo.ha.next.LON1=InSync civo=InSync" ||
		len(again.states)+len(again.secrets) != 0 {
		t.Fatalf("again: %s", got)
	}
	if !slices.Equal(again.clusters, status.Clusters) ||
		!slices.Equal(again.credentials, credentialRows(status.Credentials)) {
		t.Errorf("the status changes: %+v, was %+v", again.clusters, status.Clusters)
	}
	// A state that the source loses stays in the store, is reported, and is removed with the
	// object.
	lost := newPlan(desired{clusters: want.clusters[:1]}, have, status, opts)
	if got := actions(lost); got != "civo.ha.demo.LON1=InSync civo.ha.next.LON1=LeftSource civo=LeftSource" {
		t.Errorf("lost: %s", got)
	}
	out, ok := lost.outcome(want, destination{namespace: "ksctl"}, "main@sha1:1", false).(reconcile.Done)
	if !ok || out.Message != "1 state in the ksctl store in namespace ksctl; no longer in the source: 1 state and "+
		"the credentials of 1 cloud" {
		t.Errorf("lost: %+v", out)
	}
	lost.report(&status, destination{namespace: "ksctl"})
	have.States[demo] = []byte(document("demo", "scaled"))
	states, creds, kept := entriesToRemove(&status, have, hashForTest)
	if !slices.Equal(states, []string{"civo.ha.next.LON1"}) || !slices.Equal(creds, []string{"civo"}) ||
		!slices.Equal(kept, []string{demo}) {
		t.Errorf("removed %v, %v, kept %v", states, creds, kept)
	}
}

func TestPlanReportsConflictsAndInvalidStates(t *testing.T) {
	one := desired{clusters: []*state.Cluster{cluster(t, document("demo", "a"))}}
	external := desired{clusters: []*state.Cluster{cluster(t, strings.Replace(document("demo", "a"), "{",
		`{"ID":"65f0c0ffee65f0c0ffee65f0",`, 1))}, credentials: []*state.Credentials{credentials(t, "civo", "x")}}
	large := desired{clusters: []*state.Cluster{cluster(t, document("demo", strings.Repeat("x", state.MaxStoreBytes)))},
		credentials: []*state.Credentials{credentials(t, "civo", "x")}}
	both := desired{clusters: []*state.Cluster{one.clusters[0], cluster(t, strings.Replace(document("other", "a"), "{",
		`{"ID":"65f0c0ffee65f0c0ffee65f0",`, 1))}}
	bad := desired{invalid: []v1alpha1.ImportedCluster{{Key: "b", Action: v1alpha1.StateInvalid,
		Message: "b.json: wrong"}, {Key: "b", Action: v1alpha1.StateInvalid},
		{Key: "a", Action: v1alpha1.StateInvalid}}}
	for name, c := range map[string]struct {
		want   desired
		have   statestore.Contents
		action string
		reason string
		says   string
		writes int
	}{
		"different state": {one,
			statestore.Contents{States: map[string][]byte{demo: []byte(document("demo", "b"))}}, demo + "=Conflict",
			v1alpha1.StateConflictReason, "spec.conflict to Overwrite", 0},
		"MongoDB in the store": {one, statestore.Contents{External: true}, demo + "=ExternalStorage",
			v1alpha1.ExternalStorageReason, "MongoDB", 0},
		"from a MongoDB": {external, statestore.Contents{}, demo + "=ExternalStorage civo=Create",
			v1alpha1.ExternalStorageReason, "exported from a MongoDB", 1},
		"MongoDB comes before a different state": {both,
			statestore.Contents{States: map[string][]byte{demo: []byte(document("demo", "b"))}},
			demo + "=Conflict civo.ha.other.LON1=ExternalStorage", v1alpha1.ExternalStorageReason,
			"exported from a MongoDB", 0},
		"store full": {large, statestore.Contents{}, demo + "=StoreFull civo=StoreFull",
			v1alpha1.StoreFullReason, "bytes for 1 clusters", 0},
		"invalid states": {bad, statestore.Contents{}, "a=Invalid b=Invalid", v1alpha1.InvalidStateReason,
			"b.json: wrong", 0},
	} {
		p := newPlan(c.want, c.have, v1alpha1.ImportStateStatus{}, planOptions{hash: hashForTest})
		if actions(p) != c.action || len(p.states)+len(p.secrets) != c.writes {
			t.Errorf("%s: %s, %d writes", name, actions(p), len(p.states)+len(p.secrets))
		}
		out, ok := p.outcome(c.want, destination{namespace: "ksctl"}, "r", false).(reconcile.Stalled)
		if !ok || out.Reason != c.reason || !strings.Contains(out.Err.Error(), c.says) {
			t.Errorf("%s: %+v", name, out)
		}
	}
}

func TestPlanWarnsBeforeTheStoreIsFull(t *testing.T) {
	want := desired{clusters: []*state.Cluster{cluster(t, document("demo", strings.Repeat("x", state.WarnStoreBytes)))}}
	p := newPlan(want, statestore.Contents{}, v1alpha1.ImportStateStatus{}, planOptions{hash: hashForTest})
	out, ok := p.outcome(want, destination{namespace: "ksctl"}, "r", true).(reconcile.Done)
	if !ok || out.Reason != v1alpha1.DryRunReason || !strings.Contains(out.Message, "would create 1 state") ||
		!strings.Contains(out.Message, "use 80 % of the maximum size of a ConfigMap") {
		t.Errorf("got %+v", out)
	}
}

func TestOutcomeJoinsProblemsOfFiles(t *testing.T) {
	want := desired{problems: []*reconcile.StepError{terminal("A", "a.json: bad"), transient("B", "b.json: no answer")}}
	p := newPlan(want, statestore.Contents{}, v1alpha1.ImportStateStatus{}, planOptions{hash: hashForTest})
	out, ok := p.outcome(want, destination{namespace: "ksctl"}, "r", false).(reconcile.Retry)
	if !ok || out.Reason != "B" || out.Err.Error() != "a.json: bad; b.json: no answer" {
		t.Errorf("got %+v", out)
	}
}

func TestOnlyWrittenEntriesAreRemoved(t *testing.T) {
	opts := planOptions{hash: hashForTest}
	want := desired{clusters: []*state.Cluster{cluster(t, document("demo", "a"))}}
	have := statestore.Contents{States: map[string][]byte{demo: []byte(document("demo", "a"))}, HasStates: true}
	p := newPlan(want, have, v1alpha1.ImportStateStatus{}, opts)
	if actions(p) != demo+"=InSync" || p.clusters[0].Ours {
		t.Fatalf("found in the store: %s, %+v", actions(p), p.clusters)
	}
	var status v1alpha1.ImportStateStatus
	p.report(&status, destination{namespace: "ksctl"})
	if states, _, _ := entriesToRemove(&status, have, hashForTest); len(states) != 0 {
		t.Errorf("an entry that was not written is removed: %v", states)
	}
	// The source changes and the store does not: the entry is written, and owned from then on.
	want.clusters[0] = cluster(t, document("demo", "b"))
	p = newPlan(want, have, status, opts)
	if actions(p) != demo+"=Update" {
		t.Fatalf("source changed: %s", actions(p))
	}
	p.announce(opts)
	p.report(&status, destination{namespace: "ksctl"})
	// After a crash before the status update, the next reconcile recognizes the written entry.
	have.States = p.states
	want.clusters[0] = cluster(t, document("demo", "c"))
	p = newPlan(want, have, status, opts)
	if actions(p) != demo+"=Update" || !p.clusters[0].Ours {
		t.Fatalf("after a crash: %s, %+v", actions(p), p.clusters)
	}
	p.report(&status, destination{namespace: "ksctl"})
	if states, _, _ := entriesToRemove(&status, have, hashForTest); !slices.Equal(states, []string{demo}) {
		t.Errorf("the written entry is not removed: %v", states)
	}
}

func TestCollector(t *testing.T) {
	file := func(name string, clusters []string, clouds ...string) *state.File {
		f := &state.File{}
		for _, doc := range clusters {
			f.Clusters = append(f.Clusters, cluster(t, doc))
		}
		for _, cloud := range clouds {
			f.Credentials = append(f.Credentials, credentials(t, cloud, name))
		}
		return f
	}
	a, b, wrong := document("demo", "a"), document("demo", "b"),
		strings.Replace(document("demo", "a"), `"civo"`, `"cvio"`, 1)
	for name, c := range map[string]struct {
		files  []*state.File
		filter state.Filter
		want   string
	}{
		"one file": {[]*state.File{file("x", []string{a}, "civo", "aws")}, state.Filter{},
			"1 clusters, 0 refused, 1 credentials, 0 problems"},
		"only credentials": {[]*state.File{file("x", nil, "civo", "aws")}, state.Filter{},
			"0 clusters, 0 refused, 2 credentials, 0 problems"},
		"cloud not selected": {[]*state.File{file("x", nil, "civo", "aws")}, state.Filter{Cloud: "aws"},
			"0 clusters, 0 refused, 1 credentials, 0 problems"},
		"no cluster selected": {[]*state.File{file("x", []string{a}, "civo")},
			state.Filter{ClusterName: "other"}, "0 clusters, 0 refused, 0 credentials, 0 problems"},
		"same content twice": {[]*state.File{file("x", []string{a}, "civo"),
			file("x", []string{a}, "civo")}, state.Filter{}, "1 clusters, 0 refused, 1 credentials, 0 problems"},
		"two states of one cluster": {[]*state.File{file("x", []string{a}), file("x", []string{b}),
			file("x", []string{a})}, state.Filter{}, "0 clusters, 2 refused, 0 credentials, 0 problems"},
		"two credentials of one cloud": {[]*state.File{file("x", []string{a}, "civo"), file("y", nil, "civo")},
			state.Filter{}, "1 clusters, 0 refused, 0 credentials, 1 problems"},
		"invalid state": {[]*state.File{file("x", []string{wrong})}, state.Filter{},
			"0 clusters, 1 refused, 0 credentials, 0 problems"},
		"invalid and valid state of a key": {[]*state.File{file("x", []string{wrong, a})}, state.Filter{},
			"1 clusters, 1 refused, 0 credentials, 0 problems"},
	} {
		g := newCollector(c.filter)
		for i, f := range c.files {
			g.add(fmt.Sprint(i), f)
		}
		w := g.desired(true)
		if got := fmt.Sprintf("%d clusters, %d refused, %d credentials, %d problems", len(w.clusters), len(w.invalid),
			len(w.credentials), len(w.problems)); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
		seen := map[string]bool{}
		for _, row := range newPlan(w, statestore.Contents{}, v1alpha1.ImportStateStatus{},
			planOptions{hash: hashForTest}).clusters {
			if seen[row.Key] {
				t.Errorf("%s: two rows for %s", name, row.Key)
			}
			seen[row.Key] = true
		}
	}
	g := newCollector(state.Filter{})
	g.problems = []*reconcile.StepError{transient("X", "y.json: unreadable")}
	g.add("x", file("x", nil, "civo"))
	if w := g.desired(true); len(w.credentials) != 0 {
		t.Error("credentials are imported although the clusters are unknown")
	}
}
