package importstate

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/stacks/state"
)

func row(cloud, name, region string, action v1alpha1.StateAction) v1alpha1.ImportedCluster {
	id := state.ID{Cloud: cloud, Type: "ha", Name: name, Region: region}
	return v1alpha1.ImportedCluster{Key: id.Key(), Name: name, Cloud: cloud, Type: "ha", Region: region, Action: action, Ready: settled(action)}
}

func made(name, imp, key string) clusterv1.KsctlCluster {
	return clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: clusterv1.KsctlClusterSpec{ImportRef: &clusterv1.ClusterImport{Name: imp, Key: key}}}
}

func TestNewcomers(t *testing.T) {
	in := v1alpha1.StateInSync
	for what, c := range map[string]struct {
		rows  []v1alpha1.ImportedCluster
		there []clusterv1.KsctlCluster
		want  map[string]string // keys by name
	}{
		"one":                   {[]v1alpha1.ImportedCluster{row("aws", "demo", "us-east-1", in)}, nil, map[string]string{"demo": "aws.ha.demo.us-east-1"}},
		"one that is there":     {[]v1alpha1.ImportedCluster{row("aws", "demo", "us-east-1", in)}, []clusterv1.KsctlCluster{made("prod", "imp", "aws.ha.demo.us-east-1")}, nil},
		"the only one is there": {[]v1alpha1.ImportedCluster{row("aws", "demo", "us-east-1", in)}, []clusterv1.KsctlCluster{made("prod", "imp", "")}, nil},
		"another import's":      {[]v1alpha1.ImportedCluster{row("aws", "demo", "x", in)}, []clusterv1.KsctlCluster{made("prod", "other", "aws.ha.demo.x")}, map[string]string{"demo": "aws.ha.demo.x"}},
		"two of a name": {[]v1alpha1.ImportedCluster{row("aws", "demo", "us-east-1", in), row("civo", "demo", "LON1", in)}, nil,
			map[string]string{"aws-ha-demo-us-east-1": "aws.ha.demo.us-east-1", "civo-ha-demo-lon1": "civo.ha.demo.LON1"}},
		"a name that is taken": {[]v1alpha1.ImportedCluster{row("aws", "demo", "x", in)}, []clusterv1.KsctlCluster{{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}},
			map[string]string{"aws-ha-demo-x": "aws.ha.demo.x"}},
		"both names are taken": {[]v1alpha1.ImportedCluster{row("aws", "demo", "x", in)},
			[]clusterv1.KsctlCluster{{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}, {ObjectMeta: metav1.ObjectMeta{Name: "aws-ha-demo-x"}}}, map[string]string{"": "aws.ha.demo.x"}},
		"one that was made, and that somebody deleted": {[]v1alpha1.ImportedCluster{{Key: "aws.ha.demo.x", Name: "demo", Action: in, Ready: true, Cluster: "demo"}}, nil, nil},
		"what is not there":                            {[]v1alpha1.ImportedCluster{row("aws", "a", "x", v1alpha1.StateConflict), row("aws", "b", "x", v1alpha1.StateRemovedSince), row("aws", "c", "x", v1alpha1.StateLeft)}, nil, nil},
		"no name":                                      {[]v1alpha1.ImportedCluster{row("", "", "", in)}, nil, map[string]string{"ha": ".ha.."}},
	} {
		got := map[string]string{}
		for i, name := range newcomers("imp", c.rows, c.there) {
			got[name] = c.rows[i].Key
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", what, got, c.want)
		}
	}
}

func TestNamesOfClusters(t *testing.T) {
	for text, want := range map[string]string{"demo": "demo", "Prod_EU": "prod-eu", "--x--": "x", "": "", "ünïcode": "n-code", ".ha.a.LON1": "ha-a-lon1"} {
		if got := nameOf(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
