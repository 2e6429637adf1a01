package importstate

import (
	"strings"
	"testing"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/state"
)

// ksctl deletes a cluster that was imported, then the source can't be read for a while.
func TestWhatKsctlDeletedStaysAwayAfterAFault(t *testing.T) {
	how := policy{hash: hashed}
	ksctl := place{namespace: "ksctl"}
	want := wishes{clusters: []*state.Cluster{cluster(t, document("demo", "a"))}, credentials: []*state.Credentials{credentials(t, "civo", "x")}}
	wrong := rowOf(cluster(t, strings.Replace(document("demo", "a"), `"civo"`, `"cvio"`, 1)), record{})
	wrong.Action = v1alpha1.StateInvalid
	for name, fault := range map[string]wishes{
		"a file that can't be read":     {problems: []problem{{"X", "a.json: no answer of the key service", false}}},
		"a document that is refused":    {refused: []v1alpha1.ImportedCluster{wrong}},
		"one of each":                   {refused: []v1alpha1.ImportedCluster{wrong}, problems: []problem{{"X", "b.json: bad", true}}},
		"credentials alone, and a file": {credentials: want.credentials, problems: []problem{{"X", "a.json: bad", true}}},
	} {
		// It is known to be deleted when the fault comes, or is deleted meanwhile.
		for _, meanwhile := range []bool{false, true} {
			p := newPlan(want, statestore.Held{}, v1alpha1.ImportStateStatus{}, how)
			p.announce(how)
			have := statestore.Held{States: p.states, Credentials: p.secrets, HasStates: true, HasCredentials: true}
			p.written()
			p.clusters[0].Cluster = "made"
			var status v1alpha1.ImportStateStatus
			p.report(&status, ksctl)
			deleted := statestore.Held{HasStates: true, HasCredentials: true}
			pass := func(want wishes, have statestore.Held) plan {
				p := newPlan(want, have, status, how)
				p.report(&status, ksctl)
				return p
			}
			if meanwhile {
				pass(fault, have)
			} else {
				pass(want, deleted)
			}
			for range 2 {
				for _, row := range pass(fault, deleted).clusters {
					if row.Key == demo && (row.Ready || row.Action != v1alpha1.StateRemovedSince) {
						t.Errorf("%s: got %+v", name, row)
					}
				}
			}
			p = pass(want, deleted)
			if got := actions(p); got != demo+"=RemovedSince civo=RemovedSince" || len(p.states)+len(p.secrets) > 0 {
				t.Errorf("%s, deleted meanwhile %t: %s is written again", name, meanwhile, got)
			}
			if p.clusters[0].Cluster != "made" {
				t.Errorf("%s: its KsctlCluster is made again", name)
			}
		}
	}
}

// With spec.credentials Skip nobody looks whether the store has any.
func TestCredentialsThatWereNotReadAreNotGone(t *testing.T) {
	line := v1alpha1.ImportedCredentials{Cloud: "civo", Action: v1alpha1.StateInSync, Ready: true, Written: "x", Ours: true}
	status := v1alpha1.ImportStateStatus{Credentials: []v1alpha1.ImportedCredentials{line}}
	for name, want := range map[string]wishes{
		"a broken file":      {problems: []problem{{"X", "a.json: bad", true}}},
		"a refused document": {refused: []v1alpha1.ImportedCluster{{Key: demo}}},
		"nothing wrong":      {},
	} {
		p := newPlan(want, statestore.Held{HasStates: true}, status, policy{hash: hashed, noCredentials: true})
		if len(p.credentials) != 1 || p.credentials[0] != line {
			t.Errorf("%s: got %+v", name, p.credentials)
		}
	}
}

// Somebody may turn to Skip because of what can't be written: that is neither waited for, nor
// taken for written with the rest.
func TestCredentialsThatAreSkippedHoldNothingUp(t *testing.T) {
	how := policy{hash: hashed, noCredentials: true}
	for _, action := range []v1alpha1.StateAction{v1alpha1.StateCreate, v1alpha1.StateConflict, v1alpha1.StateFull} {
		status := v1alpha1.ImportStateStatus{Credentials: []v1alpha1.ImportedCredentials{{Cloud: "civo", Action: action, Writing: "x"}}}
		want := wishes{clusters: []*state.Cluster{cluster(t, document("demo", "a"))}}
		p := newPlan(want, statestore.Held{}, status, how)
		if _, ok := p.outcome(want, place{namespace: "ksctl"}, "r", false).(reconcile.Done); !ok || len(p.credentials) > 0 {
			t.Errorf("%s: got %+v", action, p.credentials)
		}
		want.problems = []problem{{"X", "b.json: bad", true}}
		p = newPlan(want, statestore.Held{}, status, how)
		p.announce(how)
		p.written()
		if got := p.credentials; len(got) != 1 || got[0] != status.Credentials[0] || p.clusters[0].Action != v1alpha1.StateInSync {
			t.Errorf("%s: got %+v", action, got)
		}
	}
}

// A store is lost and restored, all while a file can't be read.
func TestWhatIsBackIsNotSaidToBeGone(t *testing.T) {
	how := policy{hash: hashed}
	fault := wishes{problems: []problem{{"X", "a.json: bad", true}}}
	p := newPlan(wishes{clusters: []*state.Cluster{cluster(t, document("demo", "a"))}, credentials: []*state.Credentials{credentials(t, "civo", "x")}}, statestore.Held{}, v1alpha1.ImportStateStatus{}, how)
	p.announce(how)
	full := statestore.Held{States: p.states, Credentials: p.secrets, HasStates: true, HasCredentials: true}
	other := statestore.Held{States: map[string][]byte{demo: []byte(document("demo", "b"))}, Credentials: map[string][]byte{"civo": credentials(t, "civo", "y").JSON()}}
	p.written()
	var status v1alpha1.ImportStateStatus
	for _, c := range []struct {
		have  statestore.Held
		want  v1alpha1.StateAction
		ready bool
	}{{statestore.Held{}, v1alpha1.StateRemovedSince, false}, {full, v1alpha1.StateInSync, true}, {statestore.Held{}, v1alpha1.StateRemovedSince, false}, {other, v1alpha1.StateChangedSince, true}} {
		p.report(&status, place{namespace: "ksctl"})
		p = newPlan(fault, c.have, status, how)
		if got := actions(p); got != demo+"="+string(c.want)+" civo="+string(c.want) {
			t.Fatalf("got %s, want %s", got, c.want)
		}
		state, secret := p.clusters[0], p.credentials[0]
		if says := explain(c.want); state.Message != says || secret.Message != says || state.Ready != c.ready || secret.Ready != c.ready {
			t.Errorf("got %+v and %+v", state, secret)
		}
	}
}

func TestWhatLeftSourceAndStoreIsForgotten(t *testing.T) {
	how := policy{hash: hashed}
	status := v1alpha1.ImportStateStatus{Clusters: []v1alpha1.ImportedCluster{{Key: demo, Written: "x"}}, Credentials: []v1alpha1.ImportedCredentials{{Cloud: "civo", Written: "x"}}}
	if got := actions(newPlan(wishes{}, statestore.Held{HasStates: true, HasCredentials: true}, status, how)); got != "" {
		t.Errorf("got %s", got)
	}
}
