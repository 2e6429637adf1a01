package importstate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/state"
)

func hashed(data []byte) string {
	canonical, err := state.Canonical(data)
	if err != nil {
		canonical = data
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:8])
}

// document of a cluster of Civo with some words in it.
func document(name, words string) string {
	return fmt.Sprintf(`{"cluster_name":%q,"cluster_type":"ha","region":"LON1","cloud_provider":"civo","words":%q}`, name, words)
}

func cluster(t *testing.T, doc string) *state.Cluster {
	t.Helper()
	f, err := state.Parse("a.json", []byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	return f.Clusters[0]
}

func credentials(t *testing.T, cloud, words string) *state.Credentials {
	t.Helper()
	c, err := state.ReadCredentials(cloud, fmt.Appendf(nil, `{"cloud_provider":%q,%q:{"token":%q}}`, cloud, cloud, words))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const demo = "civo.ha.demo.LON1"

func TestDecide(t *testing.T) {
	a, b, c := document("demo", "a"), document("demo", "b"), document("demo", "c")
	for name, test := range map[string]struct {
		want, have       string
		written, writing string
		overwrite        bool
		lost             bool // the store itself is gone
		action           v1alpha1.StateAction
	}{
		"new":                                   {want: a, action: v1alpha1.StateCreate},
		"there, by whomever":                    {want: a, have: a, action: v1alpha1.StateInSync},
		"there, in other order":                 {want: `{"b":1,"a":2}`, have: `{"a": 2, "b": 1}`, action: v1alpha1.StateInSync},
		"another":                               {want: a, have: b, action: v1alpha1.StateConflict},
		"another, and it may be overwritten":    {want: a, have: b, overwrite: true, action: v1alpha1.StateUpdate},
		"not JSON":                              {want: a, have: "x", action: v1alpha1.StateConflict},
		"the source moved on":                   {want: b, have: a, written: a, action: v1alpha1.StateUpdate},
		"ksctl moved on":                        {want: a, have: b, written: a, action: v1alpha1.StateChangedSince},
		"ksctl moved on, and may be undone":     {want: a, have: b, written: a, overwrite: true, action: v1alpha1.StateChangedSince},
		"both moved on":                         {want: c, have: b, written: a, action: v1alpha1.StateConflict},
		"both moved on, and the source counts":  {want: c, have: b, written: a, overwrite: true, action: v1alpha1.StateUpdate},
		"ksctl took it out":                     {want: a, written: a, action: v1alpha1.StateRemovedSince},
		"ksctl took it out, and it is new":      {want: b, written: a, action: v1alpha1.StateCreate},
		"the store is gone":                     {want: a, written: a, lost: true, action: v1alpha1.StateCreate},
		"written, and ended before it was said": {want: c, have: b, written: a, writing: b, action: v1alpha1.StateUpdate},
		"ended before it was written":           {want: c, have: a, written: a, writing: b, action: v1alpha1.StateUpdate},
		"written, ended, and the source undone": {want: a, have: b, written: a, writing: b, action: v1alpha1.StateUpdate},
	} {
		hash := func(doc string) string {
			if doc == "" {
				return ""
			}
			return hashed([]byte(doc))
		}
		e := entry{want: []byte(test.want), there: !test.lost, record: record{written: hash(test.written), writing: hash(test.writing)}}
		if test.have != "" {
			e.have = []byte(test.have)
		}
		how := policy{overwrite: test.overwrite, hash: hashed}
		e.promote(how)
		if got := e.decide(how); got != test.action {
			t.Errorf("%s: got %s, want %s", name, got, test.action)
		}
	}
}

// actions of a plan, in short.
func actions(p plan) string {
	var out []string
	for _, c := range p.clusters {
		out = append(out, fmt.Sprintf("%s=%s", c.Key, c.Action))
	}
	for _, c := range p.credentials {
		out = append(out, fmt.Sprintf("%s=%s", c.Cloud, c.Action))
	}
	return strings.Join(out, " ")
}

func TestPlanOfAStoreFromItsFirstWriteOn(t *testing.T) {
	how := policy{hash: hashed}
	want := wishes{clusters: []*state.Cluster{cluster(t, document("demo", "a")), cluster(t, document("next", "a"))}, credentials: []*state.Credentials{credentials(t, "civo", "x")}}
	have := statestore.Held{States: map[string][]byte{"aws.ha.other.r": []byte("{}")}}
	p := newPlan(want, have, v1alpha1.ImportStateStatus{}, how)
	if got := actions(p); got != "civo.ha.demo.LON1=Create civo.ha.next.LON1=Create civo=Create" || len(p.states) != 2 || len(p.secrets) != 1 {
		t.Fatalf("first: %s", got)
	}
	p.announce(how)
	if did := p.written(); did != "wrote 2 states and the credentials of 1 cloud" {
		t.Error(did)
	}
	var status v1alpha1.ImportStateStatus
	p.report(&status, place{namespace: "ksctl"})
	have = statestore.Held{States: p.states, Credentials: p.secrets, HasStates: true, HasCredentials: true}
	// Nothing new: nothing is written, and the status stays as it is.
	again := newPlan(want, have, status, how)
	if got := actions(again); got != "civo.ha.demo.LON1=InSync civo.ha.next.LON1=InSync civo=InSync" || len(again.states)+len(again.secrets) != 0 {
		t.Fatalf("again: %s", got)
	}
	if !slices.Equal(again.clusters, status.Clusters) || !slices.Equal(again.credentials, status.Credentials) {
		t.Errorf("the status changes: %+v, was %+v", again.clusters, status.Clusters)
	}
	// The source loses one: it stays, is said, and goes with the object.
	lost := newPlan(wishes{clusters: want.clusters[:1]}, have, status, how)
	if got := actions(lost); got != "civo.ha.demo.LON1=InSync civo.ha.next.LON1=LeftSource civo=LeftSource" {
		t.Errorf("lost: %s", got)
	}
	out, ok := lost.outcome(want, place{namespace: "ksctl"}, "main@sha1:1", false).(reconcile.Done)
	if !ok || out.Message != "1 state in ksctl's store in namespace ksctl; no more in the source: 1 state and the credentials of 1 cloud" {
		t.Errorf("lost: %+v", out)
	}
	lost.report(&status, place{namespace: "ksctl"})
	have.States[demo] = []byte(document("demo", "scaled"))
	states, creds, kept := leaving(&status, have, hashed)
	if !slices.Equal(states, []string{"civo.ha.next.LON1"}) || !slices.Equal(creds, []string{"civo"}) || !slices.Equal(kept, []string{demo}) {
		t.Errorf("leaving %v, %v, kept %v", states, creds, kept)
	}
}

func TestPlanRefuses(t *testing.T) {
	one := wishes{clusters: []*state.Cluster{cluster(t, document("demo", "a"))}}
	external := wishes{clusters: []*state.Cluster{cluster(t, strings.Replace(document("demo", "a"), "{", `{"ID":"65f0c0ffee65f0c0ffee65f0",`, 1))}, credentials: []*state.Credentials{credentials(t, "civo", "x")}}
	large := wishes{clusters: []*state.Cluster{cluster(t, document("demo", strings.Repeat("x", state.MaxStoreBytes)))}, credentials: []*state.Credentials{credentials(t, "civo", "x")}}
	bad := wishes{refused: []v1alpha1.ImportedCluster{{Key: "b", Action: v1alpha1.StateInvalid, Message: "b.json: wrong"}, {Key: "b", Action: v1alpha1.StateInvalid}, {Key: "a", Action: v1alpha1.StateInvalid}}}
	for name, c := range map[string]struct {
		want   wishes
		have   statestore.Held
		action string
		reason string
		says   string
		writes int
	}{
		"another state":        {one, statestore.Held{States: map[string][]byte{demo: []byte(document("demo", "b"))}}, demo + "=Conflict", ConflictReason, "spec.conflict to Overwrite", 0},
		"MongoDB in the store": {one, statestore.Held{External: true}, demo + "=ExternalStorage", ExternalStorageReason, "MongoDB", 0},
		"exported from one":    {external, statestore.Held{}, demo + "=ExternalStorage civo=Create", ExternalStorageReason, "exported from a MongoDB", 1},
		"no room":              {large, statestore.Held{}, demo + "=StoreFull civo=StoreFull", StoreFullReason, "bytes for 1 clusters", 0},
		"nonsense":             {bad, statestore.Held{}, "a=Invalid b=Invalid", InvalidStateReason, "b.json: wrong", 0},
	} {
		p := newPlan(c.want, c.have, v1alpha1.ImportStateStatus{}, policy{hash: hashed})
		if actions(p) != c.action || len(p.states)+len(p.secrets) != c.writes {
			t.Errorf("%s: %s, %d writes", name, actions(p), len(p.states)+len(p.secrets))
		}
		out, ok := p.outcome(c.want, place{namespace: "ksctl"}, "r", false).(reconcile.Stalled)
		if !ok || out.Reason != c.reason || !strings.Contains(out.Err.Error(), c.says) {
			t.Errorf("%s: %+v", name, out)
		}
	}
}

func TestPlanWarnsBeforeTheStoreIsFull(t *testing.T) {
	want := wishes{clusters: []*state.Cluster{cluster(t, document("demo", strings.Repeat("x", state.WarnStoreBytes)))}}
	p := newPlan(want, statestore.Held{}, v1alpha1.ImportStateStatus{}, policy{hash: hashed})
	out, ok := p.outcome(want, place{namespace: "ksctl"}, "r", true).(reconcile.Done)
	if !ok || out.Reason != DryRunReason || !strings.Contains(out.Message, "would create 1 state") || !strings.Contains(out.Message, "take 80 % of what a ConfigMap can hold") {
		t.Errorf("got %+v", out)
	}
}

func TestProblemsOfFilesAreToldTogether(t *testing.T) {
	want := wishes{problems: []problem{{"A", "a.json: bad", true}, {"B", "b.json: no answer", false}}}
	p := newPlan(want, statestore.Held{}, v1alpha1.ImportStateStatus{}, policy{hash: hashed})
	out, ok := p.outcome(want, place{namespace: "ksctl"}, "r", false).(reconcile.Retry)
	if !ok || out.Reason != "B" || out.Err.Error() != "a.json: bad; b.json: no answer" {
		t.Errorf("got %+v", out)
	}
}

func TestPlanDeletesWhatItWroteAndNothingElse(t *testing.T) {
	how := policy{hash: hashed}
	want := wishes{clusters: []*state.Cluster{cluster(t, document("demo", "a"))}}
	have := statestore.Held{States: map[string][]byte{demo: []byte(document("demo", "a"))}, HasStates: true}
	p := newPlan(want, have, v1alpha1.ImportStateStatus{}, how)
	if actions(p) != demo+"=InSync" || p.clusters[0].Ours {
		t.Fatalf("found there: %s, %+v", actions(p), p.clusters)
	}
	var status v1alpha1.ImportStateStatus
	p.report(&status, place{namespace: "ksctl"})
	if states, _, _ := leaving(&status, have, hashed); len(states) != 0 {
		t.Errorf("what was found there is deleted: %v", states)
	}
	// The source moves on, and nobody has touched it: it is written, and ours from then on.
	want.clusters[0] = cluster(t, document("demo", "b"))
	p = newPlan(want, have, status, how)
	if actions(p) != demo+"=Update" {
		t.Fatalf("moved on: %s", actions(p))
	}
	p.announce(how)
	p.report(&status, place{namespace: "ksctl"})
	// The pass ended without saying how: the next knows what it finds.
	have.States = p.states
	want.clusters[0] = cluster(t, document("demo", "c"))
	p = newPlan(want, have, status, how)
	if actions(p) != demo+"=Update" || !p.clusters[0].Ours {
		t.Fatalf("after a crash: %s, %+v", actions(p), p.clusters)
	}
	p.report(&status, place{namespace: "ksctl"})
	if states, _, _ := leaving(&status, have, hashed); !slices.Equal(states, []string{demo}) {
		t.Errorf("what was written stays: %v", states)
	}
}

func TestGathering(t *testing.T) {
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
	a, b, wrong := document("demo", "a"), document("demo", "b"), strings.Replace(document("demo", "a"), `"civo"`, `"cvio"`, 1)
	for name, c := range map[string]struct {
		files  []*state.File
		filter state.Filter
		want   string
	}{
		"one file":                          {[]*state.File{file("x", []string{a}, "civo", "aws")}, state.Filter{}, "1 clusters, 0 refused, 1 credentials, 0 problems"},
		"credentials alone":                 {[]*state.File{file("x", nil, "civo", "aws")}, state.Filter{}, "0 clusters, 0 refused, 2 credentials, 0 problems"},
		"of a cloud that is not selected":   {[]*state.File{file("x", nil, "civo", "aws")}, state.Filter{Cloud: "aws"}, "0 clusters, 0 refused, 1 credentials, 0 problems"},
		"no cluster is selected":            {[]*state.File{file("x", []string{a}, "civo")}, state.Filter{ClusterName: "other"}, "0 clusters, 0 refused, 0 credentials, 0 problems"},
		"the same twice":                    {[]*state.File{file("x", []string{a}, "civo"), file("x", []string{a}, "civo")}, state.Filter{}, "1 clusters, 0 refused, 1 credentials, 0 problems"},
		"two states of one cluster":         {[]*state.File{file("x", []string{a}), file("x", []string{b}), file("x", []string{a})}, state.Filter{}, "0 clusters, 2 refused, 0 credentials, 0 problems"},
		"two credentials of one cloud":      {[]*state.File{file("x", []string{a}, "civo"), file("y", nil, "civo")}, state.Filter{}, "1 clusters, 0 refused, 0 credentials, 1 problems"},
		"one that ksctl could not use":      {[]*state.File{file("x", []string{wrong})}, state.Filter{}, "0 clusters, 1 refused, 0 credentials, 0 problems"},
		"one that is wrong, and a good one": {[]*state.File{file("x", []string{wrong, a})}, state.Filter{}, "1 clusters, 1 refused, 0 credentials, 0 problems"},
	} {
		g := newGathering(c.filter)
		for i, f := range c.files {
			g.add(fmt.Sprint(i), f)
		}
		w := g.wishes(true)
		if got := fmt.Sprintf("%d clusters, %d refused, %d credentials, %d problems", len(w.clusters), len(w.refused), len(w.credentials), len(w.problems)); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
		seen := map[string]bool{}
		for _, row := range newPlan(w, statestore.Held{}, v1alpha1.ImportStateStatus{}, policy{hash: hashed}).clusters {
			if seen[row.Key] {
				t.Errorf("%s: two lines of %s", name, row.Key)
			}
			seen[row.Key] = true
		}
	}
	g := newGathering(state.Filter{})
	g.problems = []problem{{"X", "y.json: unreadable", false}}
	g.add("x", file("x", nil, "civo"))
	if w := g.wishes(true); len(w.credentials) != 0 {
		t.Error("credentials are taken though nobody knows which clusters there are")
	}
}
