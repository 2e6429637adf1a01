package target

import (
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
)

func TestID(t *testing.T) {
	for want, tc := range map[string]struct {
		spec   appsv1.TargetCluster
		people string
	}{
		plan.LocalCluster: {people: "this cluster"},
		"team.prod.eu": {spec: appsv1.TargetCluster{ClusterRef: &appsv1.ClusterReference{Name: "prod.eu"}},
			people: "KsctlCluster team/prod.eu"},
		"other.prod": {spec: appsv1.TargetCluster{ClusterRef: &appsv1.ClusterReference{Name: "prod",
			Namespace: "other"}}, people: "KsctlCluster other/prod"},
		"secret:team.prod": {spec: appsv1.TargetCluster{
			KubeConfig: &appsv1.KubeConfigReference{SecretRef: appsv1.SecretKeyReference{Name: "prod"}}},
			people: "the cluster of Secret team/prod"},
		"secret:team.prod:config": {spec: appsv1.TargetCluster{
			KubeConfig: &appsv1.KubeConfigReference{SecretRef: appsv1.SecretKeyReference{Name: "prod", Key: "config"}}},
			people: "the cluster of Secret team/prod, key config"},
	} {
		id := ID("team", &tc.spec)
		if id != want || DisplayName(id) != tc.people {
			t.Errorf("got %q, %q; want %q, %q", id, DisplayName(id), want, tc.people)
		}
		key := plan.OwnerKey{Installation: "x", Cluster: id, Kind: "K", Namespace: "team", Name: "n"}
		if back, ok := plan.ParseOwnerKey(key.String()); !ok || back != key {
			t.Errorf("an ownership mark can't hold %s", id)
		}
		ns, name, ok := ParseClusterID(id)
		if ok != (tc.spec.ClusterRef != nil) || ok && ClusterID(ns, name) != id {
			t.Errorf("%s is read as %s/%s, %t", id, ns, name, ok)
		}
	}
}

func TestInstalledCluster(t *testing.T) {
	spec := &appsv1.TargetCluster{ClusterRef: &appsv1.ClusterReference{Name: "new"}}
	for want, got := range map[string]string{
		"team.new":        InstalledCluster("team", spec, nil, "team.old"),
		"team.old":        InstalledCluster("team", spec, &appsv1.Inventory{}, "team.old"),
		plan.LocalCluster: InstalledCluster("team", spec, &appsv1.Inventory{}, ""),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if StatusCluster(plan.LocalCluster, &appsv1.Inventory{}) != "" || StatusCluster("team.old", nil) != "" ||
		StatusCluster("team.old", &appsv1.Inventory{}) != "team.old" {
		t.Error("a status must hold the ID of a remote cluster only, and only with an inventory")
	}
}
