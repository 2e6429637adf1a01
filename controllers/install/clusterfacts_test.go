package install

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
)

// Only a change of what the stack reads wakes an install, and every change until that is known.
func TestFactReads(t *testing.T) {
	cluster := func(region, env, other string) map[string]any {
		facts, err := stacks.ClusterVariable(&clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Name: "prod",
			Labels: map[string]string{"env": env, "other": other}},
			Status: clusterv1.KsctlClusterStatus{Facts: &clusterv1.ClusterFacts{Region: region,
				Pools: []clusterv1.NodePool{{Role: "Worker", Count: 3}}}}})
		if err != nil {
			t.Fatal(err)
		}
		return facts
	}
	name := types.NamespacedName{Namespace: "team", Name: "web"}
	var reads factReads
	before := cluster("eu", "a", "x")
	for i, tt := range []struct {
		paths [][]string
		known bool
		after map[string]any
		want  bool
	}{
		{nil, false, cluster("eu", "a", "y"), true},
		{nil, true, cluster("us", "b", "y"), false},
		{[][]string{{"labels", "env"}}, true, cluster("us", "a", "y"), false},
		{[][]string{{"labels", "env"}}, true, cluster("eu", "b", "x"), true},
		{[][]string{{"facts"}}, true, cluster("us", "a", "x"), true},
		{[][]string{{"facts", "pools"}}, true, cluster("us", "b", "y"), false},
		{[][]string{{}}, true, cluster("eu", "a", "y"), true},
	} {
		if reads.reset(name); tt.known {
			reads.record(name, tt.paths)
		}
		if got := reads.changed(name, before, tt.after); got != tt.want {
			t.Errorf("%d: %v: got %v", i, tt.paths, got)
		}
	}
}

// A render with the facts of an earlier revision is repeated with those that the stack reads.
func TestRenderWithFacts(t *testing.T) {
	o := &owner{factPaths: [][]string{{"name"}}, req: &reconcile.Request[*appsv1.KsctlInstall]{
		Object: &appsv1.KsctlInstall{ObjectMeta: meta("i", "1")}}}
	steps := &Steps{}
	var given []*stacks.ClusterFacts
	render := steps.withFacts(o, map[string]any{"name": "prod", "labels": map[string]any{"env": "eu"}},
		func(_ context.Context, req stacks.Request) (stacks.Result, error) {
			if given = append(given, req.Cluster); len(given) == 1 {
				return stacks.Result{}, &stacks.MissingFactsError{Paths: [][]string{{"labels", "env"}}}
			}
			return stacks.Result{}, nil
		})
	for range 2 {
		if _, err := render(t.Context(), stacks.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	if len(given) != 3 || given[0].Values["name"] != "prod" || given[1].Values["name"] != nil ||
		given[2].Values["labels"].(map[string]any)["env"] != "eu" {
		t.Errorf("got %+v", given)
	}
	broken := errors.New("broken")
	if _, err := steps.withFacts(o, nil, func(_ context.Context, req stacks.Request) (stacks.Result, error) {
		if req.Cluster != nil {
			t.Errorf("without a cluster: %+v", req.Cluster)
		}
		return stacks.Result{}, broken
	})(t.Context(), stacks.Request{}); !errors.Is(err, broken) {
		t.Error(err)
	}
}
