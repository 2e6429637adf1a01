package target

import (
	"bytes"
	"fmt"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/internal/golden"
)

// Ownership marks and statuses contain the IDs of clusters.
func TestGoldenIDs(t *testing.T) {
	ref := func(namespace, name string) *appsv1.ClusterReference {
		return &appsv1.ClusterReference{Namespace: namespace, Name: name}
	}
	secret := func(name, key string) *appsv1.KubeConfigReference {
		return &appsv1.KubeConfigReference{SecretRef: appsv1.SecretKeyReference{Name: name, Key: key}}
	}
	var out bytes.Buffer
	for _, c := range []struct {
		name string
		spec appsv1.TargetCluster
	}{
		{"no cluster", appsv1.TargetCluster{}},
		{"a cluster", appsv1.TargetCluster{ClusterRef: ref("", "prod.eu")}},
		{"a cluster of another namespace", appsv1.TargetCluster{ClusterRef: ref("clusters", "prod")}},
		{"a kubeconfig", appsv1.TargetCluster{KubeConfig: secret("prod", "")}},
		{"a kubeconfig with a key", appsv1.TargetCluster{KubeConfig: secret("prod.eu", "config.yaml")}},
		{"both", appsv1.TargetCluster{ClusterRef: ref("clusters", "prod"), KubeConfig: secret("prod", "config")}},
	} {
		id, listed := ID("team", &c.spec), &appsv1.Inventory{}
		fmt.Fprintf(&out, "%s: %s\n", c.name, id)
		fmt.Fprintf(&out, "%s, status: %q\n", c.name, StatusCluster(id, listed))
		key := plan.OwnerKey{Installation: "prod", Cluster: id, Kind: "KsctlInstall", Namespace: "team", Name: "web"}
		if again, ok := plan.ParseOwnerKey(key.String()); !ok || again != key {
			t.Errorf("%s is read as %+v", key, again)
		}
		if again := InstalledCluster("team", &c.spec, listed, StatusCluster(id, listed)); again != id {
			t.Errorf("the status of %s is read as %s", id, again)
		}
	}
	namespace, name, ok := ParseClusterID(ClusterID("team", "prod.eu"))
	fmt.Fprintf(&out, "team.prod.eu is read as: %s, %s, %t\n", namespace, name, ok)
	golden.Equal(t, "ids.txt", out.Bytes())
}
