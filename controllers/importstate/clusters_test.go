package importstate

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/stacks/state"
)

func importedRow(cloud, name, region string, action v1alpha1.StateAction) v1alpha1.ImportedCluster {
	id := state.ID{Cloud: cloud, Type: "ha", Name: name, Region: region}
	return v1alpha1.ImportedCluster{Key: id.Key(), Name: name, Cloud: cloud, Type: "ha", Region: region, Action: action,
		Ready: settled(action)}
}

func clusterWithRef(name, imp, key string) clusterv1.KsctlCluster {
	return clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: clusterv1.KsctlClusterSpec{ImportRef: &clusterv1.ClusterImport{Name: imp, Key: key}}}
}

func TestClustersToCreate(t *testing.T) {
	in := v1alpha1.StateInSync
	for caseName, c := range map[string]struct {
		rows  []v1alpha1.ImportedCluster
		there []clusterv1.KsctlCluster
		want  map[string]string // keys by name
	}{
		"new cluster": {[]v1alpha1.ImportedCluster{importedRow("aws", "demo", "us-east-1", in)}, nil,
			map[string]string{"demo": "aws.ha.demo.us-east-1"}},
		"cluster exists": {[]v1alpha1.ImportedCluster{importedRow("aws", "demo", "us-east-1", in)},
			[]clusterv1.KsctlCluster{clusterWithRef("prod", "imp", "aws.ha.demo.us-east-1")}, nil},
		"keyless ref exists": {[]v1alpha1.ImportedCluster{importedRow("aws", "demo", "us-east-1", in)},
			[]clusterv1.KsctlCluster{clusterWithRef("prod", "imp", "")}, nil},
		"other import's": {[]v1alpha1.ImportedCluster{importedRow("aws", "demo", "x", in)},
			[]clusterv1.KsctlCluster{clusterWithRef("prod", "other", "aws.ha.demo.x")},
			map[string]string{"demo": "aws.ha.demo.x"}},
		"duplicate name": {[]v1alpha1.ImportedCluster{importedRow("aws", "demo", "us-east-1", in),
			importedRow("civo", "demo", "LON1", in)}, nil,
			map[string]string{"aws-ha-demo-us-east-1": "aws.ha.demo.us-east-1",
				"civo-ha-demo-lon1": "civo.ha.demo.LON1"}},
		"name in use": {[]v1alpha1.ImportedCluster{importedRow("aws", "demo", "x", in)},
			[]clusterv1.KsctlCluster{{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}},
			map[string]string{"aws-ha-demo-x": "aws.ha.demo.x"}},
		"both names in use": {[]v1alpha1.ImportedCluster{importedRow("aws", "demo", "x", in)},
			[]clusterv1.KsctlCluster{{ObjectMeta: metav1.ObjectMeta{Name: "demo"}},
				{ObjectMeta: metav1.ObjectMeta{Name: "aws-ha-demo-x"}}}, map[string]string{"": "aws.ha.demo.x"}},
		"created and deleted by a user": {
			[]v1alpha1.ImportedCluster{{Key: "aws.ha.demo.x", Name: "demo", Action: in, Ready: true,
				Cluster: "demo"}}, nil, nil},
		"not in the store": {[]v1alpha1.ImportedCluster{importedRow("aws", "a", "x", v1alpha1.StateConflict),
			importedRow("aws", "b", "x", v1alpha1.StateRemovedSince),
			importedRow("aws", "c", "x", v1alpha1.StateLeft)}, nil, nil},
		"empty name": {[]v1alpha1.ImportedCluster{importedRow("", "", "", in)}, nil,
			map[string]string{"ha": ".ha.."}},
	} {
		got := map[string]string{}
		for i, name := range clustersToCreate("imp", c.rows, c.there) {
			got[name] = c.rows[i].Key
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", caseName, got, c.want)
		}
	}
}

func TestObjectName(t *testing.T) {
	for text, want := range map[string]string{"demo": "demo", "Prod_EU": "prod-eu", "--x--": "x", "": "",
		"ünïcode": "n-code", ".ha.a.LON1": "ha-a-lon1"} {
		if got := objectName(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
