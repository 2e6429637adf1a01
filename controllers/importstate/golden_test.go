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

func goldenDesired(t *testing.T) desired {
	t.Helper()
	return desired{clusters: []*state.Cluster{cluster(t, document("demo", "a")), cluster(t, document("next", "<b>"))},
		credentials: []*state.Credentials{credentials(t, "civo", "x")},
		invalid: []v1alpha1.ImportedCluster{{Key: "civo.ha.bad.LON1", Name: "bad", Cloud: "civo", Region: "LON1",
			Type: "ha", Action: v1alpha1.StateInvalid, Message: "a message for people"}}}
}

// TestGoldenStatus pins the hashes in statuses. With other hashes, every entry in the store would
// look changed by another client after an upgrade.
func TestGoldenStatus(t *testing.T) {
	s := &Steps{SecretKey: []byte("key")}
	want, opts, dest := goldenDesired(t), planOptions{hash: s.hash}, destination{namespace: "ksctl"}
	var status v1alpha1.ImportStateStatus
	p := newPlan(want, statestore.Contents{}, v1alpha1.ImportStateStatus{}, opts)
	p.announce(opts)
	p.report(&status, dest)
	golden.JSON(t, "status-announced.json", maskMessages(&status))
	announced := *status.DeepCopy()

	have := statestore.Contents{States: p.states, Credentials: p.secrets, HasStates: true, HasCredentials: true}
	p.markWritten()
	p.report(&status, dest)
	golden.JSON(t, "status-written.json", maskMessages(&status))

	// Neither status leads to another write.
	for name, before := range map[string]v1alpha1.ImportStateStatus{"announced": announced, "written": status} {
		if again := newPlan(want, have, before, opts); len(again.states)+len(again.secrets) > 0 {
			t.Errorf("%s: %s", name, actions(again))
		}
	}
	left := newPlan(desired{}, have, status, opts)
	left.report(&status, dest)
	golden.JSON(t, "status-left.json", maskMessages(&status))
}

func TestGoldenStatusWithAgent(t *testing.T) {
	s := &Steps{SecretKey: []byte("key")}
	want, opts, dest := goldenDesired(t), planOptions{agent: true, overwrite: true, hash: s.hash},
		destination{agent: "agent.example.com:443"}
	var status v1alpha1.ImportStateStatus
	p := newPlan(want, statestore.Contents{}, v1alpha1.ImportStateStatus{}, opts)
	p.announce(opts)
	p.report(&status, dest)
	golden.JSON(t, "status-sending.json", maskMessages(&status))
	for i := range p.clusters {
		if writes(p.clusters[i].Action) {
			confirmRow(&p.clusters[i], v1alpha1.StateSent)
		}
	}
	for i := range p.credentials {
		confirmRow(&p.credentials[i], v1alpha1.StateSent)
	}
	p.report(&status, dest)
	golden.JSON(t, "status-sent.json", maskMessages(&status))
	if again := newPlan(want, statestore.Contents{}, status, opts); len(again.states)+len(again.secrets) > 0 {
		t.Errorf("entries are sent again: %s", actions(again))
	}
}

// TestGoldenClusters pins the annotation of created KsctlClusters: the controller deletes only
// clusters with this annotation. Users may change everything else.
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
		made, err := c.steps.newCluster(c.obj, objectName("Demo"), demo)
		if err != nil {
			t.Fatal(err)
		}
		golden.JSON(t, name, &made.Object)
	}
}

// TestGoldenNames pins the names of KsctlClusters, and the keys in statuses.
func TestGoldenNames(t *testing.T) {
	id := state.ID{Cloud: "civo", Type: "ha", Name: "Prod_EU", Region: "LON1"}
	long := state.ID{Cloud: strings.Repeat("c", 20), Type: `"<é>"`, Name: strings.Repeat("n", 70),
		Region: strings.Repeat("r", 70)}
	names := []string{CreatedByAnnotation, objectName(id.Name),
		objectName(id.Cloud + "-" + id.Type + "-" + id.Name + "-" + id.Region)}
	for _, x := range []state.ID{id, long} {
		names = append(names, newRow(&state.Cluster{ID: x}, v1alpha1.ImportedCluster{}).Key)
	}
	golden.Equal(t, "names.txt", []byte(strings.Join(names, "\n")+"\n"))
}
