package importstate

import (
	"strings"
	"testing"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/statestore"
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

func TestWhatLeftSourceAndStoreIsForgotten(t *testing.T) {
	how := policy{hash: hashed}
	status := v1alpha1.ImportStateStatus{Clusters: []v1alpha1.ImportedCluster{{Key: demo, Written: "x"}}, Credentials: []v1alpha1.ImportedCredentials{{Cloud: "civo", Written: "x"}}}
	if got := actions(newPlan(wishes{}, statestore.Held{HasStates: true, HasCredentials: true}, status, how)); got != "" {
		t.Errorf("got %s", got)
	}
}
