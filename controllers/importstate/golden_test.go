package importstate

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/internal/golden"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/state"
)

// maskMessages returns a status with a placeholder for each message, which may be reworded.
func maskMessages(status *v1alpha1.ImportStateStatus) *v1alpha1.ImportStateStatus {
	out := status.DeepCopy()
	const placeholder = "a message for people"
	for i := range out.Clusters {
		if out.Clusters[i].Message != "" {
			out.Clusters[i].Message = placeholder
		}
	}
	for i := range out.Credentials {
		if out.Credentials[i].Message != "" {
			out.Credentials[i].Message = placeholder
		}
	}
	return out
}

func goldenDesired(t *testing.T) wishes {
	t.Helper()
	return wishes{clusters: []*state.Cluster{cluster(t, document("demo", "a")), cluster(t, document("next", "<b>"))},
		credentials: []*state.Credentials{credentials(t, "civo", "x")},
		refused: []v1alpha1.ImportedCluster{{Key: "civo.ha.bad.LON1", Name: "bad", Cloud: "civo", Region: "LON1",
			Type: "ha", Action: v1alpha1.StateInvalid, Message: "a message for people"}}}
}

// Statuses hold hashes of what was written. With other ones everything in the store of ksctl
// would seem changed by somebody else after an update.
func TestGoldenStatus(t *testing.T) {
	s := &Steps{SecretKey: []byte("key")}
	want, how, to := goldenDesired(t), policy{hash: s.hash}, place{namespace: "ksctl"}
	var status v1alpha1.ImportStateStatus
	p := newPlan(want, statestore.Held{}, v1alpha1.ImportStateStatus{}, how)
	p.announce(how)
	p.report(&status, to)
	golden.JSON(t, "status-announced.json", maskMessages(&status))
	announced := *status.DeepCopy()

	have := statestore.Held{States: p.states, Credentials: p.secrets, HasStates: true, HasCredentials: true}
	p.written()
	p.report(&status, to)
	golden.JSON(t, "status-written.json", maskMessages(&status))

	// Nothing is written again after either of the two.
	for name, before := range map[string]v1alpha1.ImportStateStatus{"announced": announced, "written": status} {
		if again := newPlan(want, have, before, how); len(again.states)+len(again.secrets) > 0 {
			t.Errorf("%s: %s", name, actions(again))
		}
	}
	left := newPlan(wishes{}, have, status, how)
	left.report(&status, to)
	golden.JSON(t, "status-left.json", maskMessages(&status))
}

func TestGoldenStatusOfAnAgent(t *testing.T) {
	s := &Steps{SecretKey: []byte("key")}
	want, how, to := goldenDesired(t), policy{overwrite: true, hash: s.hash}, place{agent: "agent.example.com:443"}
	var status v1alpha1.ImportStateStatus
	p := newDelivery(want, v1alpha1.ImportStateStatus{}, how)
	p.announce(how)
	p.report(&status, to)
	golden.JSON(t, "status-sending.json", maskMessages(&status))
	for i := range p.clusters {
		if writes(p.clusters[i].Action) {
			now(&p.clusters[i], v1alpha1.StateSent)
		}
	}
	for i := range p.credentials {
		nowCredentials(&p.credentials[i], v1alpha1.StateSent)
	}
	p.report(&status, to)
	golden.JSON(t, "status-sent.json", maskMessages(&status))
	if again := newDelivery(want, status, how); len(again.states)+len(again.secrets) > 0 {
		t.Errorf("it is sent again: %s", actions(again))
	}
}

// The controller deletes only a KsctlCluster with this annotation. Users may change the rest of it.
func TestGoldenClusters(t *testing.T) {
	selector, err := labels.Parse("team=web,shard")
	if err != nil {
		t.Fatal(err)
	}
	obj := &v1alpha1.ImportState{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "states",
		Labels: map[string]string{"team": "web", "shard": "1", "argocd.argoproj.io/instance": "x"}}}
	obj.Spec.Publish = &v1alpha1.ClusterPublication{KubeConfig: true}
	full := obj.DeepCopy()
	full.Spec.Interval, full.Spec.ServiceAccountName = &metav1.Duration{Duration: time.Hour}, "deployer"
	full.Spec.Publish.ArgoCD = &v1alpha1.ArgoCDPublication{Namespace: "argocd"}
	golden.Complete(t, full.Spec.Publish)
	for name, c := range map[string]struct {
		steps *Steps
		obj   *v1alpha1.ImportState
	}{"cluster-least.json": {&Steps{}, obj}, "cluster.json": {&Steps{Selector: selector}, full}} {
		made, err := c.steps.introduced(c.obj, nameOf("Demo"), demo)
		if err != nil {
			t.Fatal(err)
		}
		golden.JSON(t, name, &made.Object)
	}
}

// KsctlClusters have these names, and statuses hold the keys.
func TestGoldenNames(t *testing.T) {
	id := state.ID{Cloud: "civo", Type: "ha", Name: "Prod_EU", Region: "LON1"}
	long := state.ID{Cloud: strings.Repeat("c", 20), Type: `"<é>"`, Name: strings.Repeat("n", 70),
		Region: strings.Repeat("r", 70)}
	names := []string{MadeByAnnotation, nameOf(id.Name),
		nameOf(id.Cloud + "-" + id.Type + "-" + id.Name + "-" + id.Region)}
	for _, x := range []state.ID{id, long} {
		names = append(names, rowOf(&state.Cluster{ID: x}, record{}).Key)
	}
	golden.Equal(t, "names.txt", []byte(strings.Join(names, "\n")+"\n"))
}
