package importstate

import (
	"strings"
	"testing"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/state"
)

// ksctl deletes an imported cluster, then the source is not readable for some time.
func TestRemovedEntriesAreNotRestoredAfterFault(t *testing.T) {
	opts := planOptions{hash: hashForTest}
	ksctl := destination{namespace: "ksctl"}
	want := desired{clusters: []*state.Cluster{cluster(t, document("demo", "a"))},
		credentials: []*state.Credentials{credentials(t, "civo", "x")}}
	wrong := newRow(cluster(t, strings.Replace(document("demo", "a"), `"civo"`, `"cvio"`, 1)),
		v1alpha1.ImportedCluster{})
	wrong.Action = v1alpha1.StateInvalid
	for name, fault := range map[string]desired{
		"unreadable file": {problems: []*reconcile.StepError{transient("X",
			"a.json: no answer of the key service")}},
		"invalid document": {invalid: []v1alpha1.ImportedCluster{wrong}},
		"unreadable file and document": {invalid: []v1alpha1.ImportedCluster{wrong},
			problems: []*reconcile.StepError{terminal("X", "b.json: bad")}},
		"only credentials, and a file": {credentials: want.credentials,
			problems: []*reconcile.StepError{terminal("X", "a.json: bad")}},
	} {
		// The removal is recorded before the fault, or happens during the fault.
		for _, meanwhile := range []bool{false, true} {
			p := newPlan(want, statestore.Contents{}, v1alpha1.ImportStateStatus{}, opts)
			p.announce(opts)
			have := statestore.Contents{States: p.states, Credentials: p.secrets, HasStates: true, HasCredentials: true}
			p.markWritten()
			p.clusters[0].Cluster = "made"
			var status v1alpha1.ImportStateStatus
			p.report(&status, ksctl)
			deleted := statestore.Contents{HasStates: true, HasCredentials: true}
			pass := func(want desired, have statestore.Contents) importPlan {
				p := newPlan(want, have, status, opts)
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
				t.Errorf("%s, deleted during the fault %t: %s, want no write", name, meanwhile, got)
			}
			if p.clusters[0].Cluster != "made" {
				t.Errorf("%s: the name of the KsctlCluster is lost", name)
			}
		}
	}
}

// With spec.credentials Skip the credentials of the store are not read.
func TestUnreadCredentialsKeepTheirRows(t *testing.T) {
	line := v1alpha1.ImportedCredentials{Cloud: "civo", Action: v1alpha1.StateInSync, Ready: true, Written: "x",
		Ours: true}
	status := v1alpha1.ImportStateStatus{Credentials: []v1alpha1.ImportedCredentials{line}}
	for name, want := range map[string]desired{
		"invalid file":     {problems: []*reconcile.StepError{terminal("X", "a.json: bad")}},
		"invalid document": {invalid: []v1alpha1.ImportedCluster{{Key: demo}}},
		"no fault":         {},
	} {
		p := newPlan(want, statestore.Contents{HasStates: true}, status,
			planOptions{hash: hashForTest, skipCredentials: true})
		if len(p.credentials) != 1 || p.credentials[0] != credentialRows(status.Credentials)[0] {
			t.Errorf("%s: got %+v", name, p.credentials)
		}
	}
}

// A user may switch to Skip because credentials cannot be written: the import does not wait for
// these credentials, and does not mark them as written.
func TestSkippedCredentialsDoNotBlockImport(t *testing.T) {
	opts := planOptions{hash: hashForTest, skipCredentials: true}
	for _, action := range []v1alpha1.StateAction{v1alpha1.StateCreate, v1alpha1.StateConflict, v1alpha1.StateFull} {
		status := v1alpha1.ImportStateStatus{Credentials: []v1alpha1.ImportedCredentials{{Cloud: "civo", Action: action,
			Writing: "x"}}}
		want := desired{clusters: []*state.Cluster{cluster(t, document("demo", "a"))}}
		p := newPlan(want, statestore.Contents{}, status, opts)
		if _, ok := p.outcome(want, destination{namespace: "ksctl"}, "r", false).(reconcile.Done); !ok ||
			len(p.credentials) > 0 {
			t.Errorf("%s: got %+v", action, p.credentials)
		}
		want.problems = []*reconcile.StepError{terminal("X", "b.json: bad")}
		p = newPlan(want, statestore.Contents{}, status, opts)
		p.announce(opts)
		p.markWritten()
		if got := p.credentials; len(got) != 1 || got[0] != credentialRows(status.Credentials)[0] ||
			p.clusters[0].Action != v1alpha1.StateInSync {
			t.Errorf("%s: got %+v", action, got)
		}
	}
}

// A store is deleted and restored while a file is not readable.
func TestRestoredEntriesAreNotReportedAsRemoved(t *testing.T) {
	opts := planOptions{hash: hashForTest}
	fault := desired{problems: []*reconcile.StepError{terminal("X", "a.json: bad")}}
	p := newPlan(desired{clusters: []*state.Cluster{cluster(t, document("demo", "a"))},
		credentials: []*state.Credentials{credentials(t, "civo", "x")}}, statestore.Contents{},
		v1alpha1.ImportStateStatus{}, opts)
	p.announce(opts)
	full := statestore.Contents{States: p.states, Credentials: p.secrets, HasStates: true, HasCredentials: true}
	other := statestore.Contents{States: map[string][]byte{demo: []byte(document("demo", "b"))},
		Credentials: map[string][]byte{"civo": credentials(t, "civo", "y").JSON()}}
	p.markWritten()
	var status v1alpha1.ImportStateStatus
	for _, c := range []struct {
		have  statestore.Contents
		want  v1alpha1.StateAction
		ready bool
	}{{statestore.Contents{}, v1alpha1.StateRemovedSince, false}, {full, v1alpha1.StateInSync, true},
		{statestore.Contents{}, v1alpha1.StateRemovedSince, false}, {other, v1alpha1.StateChangedSince, true}} {
		p.report(&status, destination{namespace: "ksctl"})
		p = newPlan(fault, c.have, status, opts)
		if got := actions(p); got != demo+"="+string(c.want)+" civo="+string(c.want) {
			t.Fatalf("got %s, want %s", got, c.want)
		}
		state, secret := p.clusters[0], p.credentials[0]
		if says := actionMessages[c.want]; state.Message != says || secret.Message != says || state.Ready != c.ready ||
			secret.Ready != c.ready {
			t.Errorf("got %+v and %+v", state, secret)
		}
	}
}

func TestRowsEndWhenEntryLeftSourceAndStore(t *testing.T) {
	opts := planOptions{hash: hashForTest}
	status := v1alpha1.ImportStateStatus{Clusters: []v1alpha1.ImportedCluster{{Key: demo, Written: "x"}},
		Credentials: []v1alpha1.ImportedCredentials{{Cloud: "civo", Written: "x"}}}
	if got := actions(newPlan(desired{}, statestore.Contents{HasStates: true, HasCredentials: true}, status,
		opts)); got != "" {
		t.Errorf("got %s", got)
	}
}
