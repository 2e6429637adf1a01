package install

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

func TestEvaluateClusterValues(t *testing.T) {
	c := &clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Name: "prod", Namespace: "team",
		Labels: map[string]string{"region": "eu"}},
		Status: clusterv1.KsctlClusterStatus{Facts: &clusterv1.ClusterFacts{Cloud: "aws"},
			KubernetesVersion: "v1.36.3"}}
	set := func(pairs ...string) *appsv1.ValuesReference {
		ref := &appsv1.ValuesReference{Kind: appsv1.ClusterValues, Component: "web"}
		for i := 0; i < len(pairs); i += 2 {
			ref.Set = append(ref.Set, appsv1.ClusterValue{Path: pairs[i], Expr: pairs[i+1]})
		}
		return ref
	}
	got, err := evaluateClusterValues(c, set("ingress.host", "'app.' + metadata.name + '.example.com'", "region",
		"metadata.labels['region']", "version", "status.kubernetesVersion",
		"cloud", "status.facts.cloud", `labels.a\.b/c`, "has(status.facts.region)"))
	want := "cloud: aws\ningress:\n  host: app.prod.example.com\n" +
		"labels:\n  a.b/c: false\nregion: eu\nversion: v1.36.3\n"
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
	for what, ref := range map[string]*appsv1.ValuesReference{
		"missing label":      set("a", "metadata.labels['x']"),
		"list value":         set("a", "[1]"),
		"invalid expression": set("a", "metadata."),
		"conflicting paths":  set("a", "1", "a.b", "2"),
		"empty segment":      set("a..b", "1"),
	} {
		if _, err := evaluateClusterValues(c, ref); err == nil ||
			!strings.HasPrefix(err.Error(), `valuesFrom Cluster for component "web": a`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if !slices.Equal(splitPath(`a.b\.c`), []string{"a", "b.c"}) {
		t.Errorf("split as %v", splitPath(`a.b\.c`))
	}
}
