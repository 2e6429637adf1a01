package engine

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

func readStored(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "stored", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil { // no field may be dropped
		t.Fatal(err)
	}
}

// Clusters contain objects that earlier versions wrote. They must be read with the same meaning.
func TestStoredFormatsStayReadable(t *testing.T) {
	var in appsv1.KsctlInstall
	var chunk appsv1.KsctlInventory
	var object unstructured.Unstructured
	readStored(t, "install.yaml", &in)
	readStored(t, "inventory.yaml", &chunk)
	readStored(t, "object.yaml", &object.Object)

	inv := plan.NewInventory(in.Status.Inventory, []appsv1.KsctlInventory{chunk})
	want := map[string]appsv1.EntryState{"team_a__ConfigMap": appsv1.EntryApplied,
		"team_b__Secret": appsv1.EntryIntended, "team_c_batch_Job": appsv1.EntryDone,
		"_shared__Namespace": appsv1.EntryShared, "team_d_apps_Deployment": appsv1.EntryAdopted}
	if inv.Len() != len(want) {
		t.Errorf("%d entries, not %d: %v", inv.Len(), len(want), inv.Entries())
	}
	for id, state := range want {
		e, ok := inv.Get(id)
		if !ok || e.State != state {
			t.Errorf("%s: %+v, %t", id, e, ok)
		}
		if ref, err := stacks.ParseID(id); err != nil || ref.ID() != id {
			t.Errorf("%s is parsed as %+v: %v", id, ref, err)
		}
	}
	if e, _ := inv.Get("team_a__ConfigMap"); e.UID != "7c1f" || e.Hash != "h1" || e.Baseline != "b1" {
		t.Errorf("the status does not override the chunk: %+v", e)
	}

	mark, err := live.ParseMark(object.GetAnnotations()[live.MarkAnnotation])
	if err != nil || mark.ID != "team_a__ConfigMap" {
		t.Fatalf("mark %+v: %v", mark, err)
	}
	me := plan.OwnerKey{Installation: "ksctl", Cluster: plan.LocalCluster, Kind: "KsctlInstall", Namespace: "team",
		Name: "web"}
	if key, ok := plan.ParseOwnerKey(mark.Owner); !ok || key != me {
		t.Errorf("owner %+v, %t", key, ok)
	}
	if object.GetLabels()[live.OwnerLabel] != me.Installation {
		t.Error("the label of watched objects differs")
	}
	ref, err := stacks.ParseID(mark.ID)
	if err != nil {
		t.Fatal(err)
	}
	if state, err := claim(me, ref, &appsv1.InventoryEntry{}, appsv1.AdoptNever, &object); err != nil ||
		state != appsv1.EntryApplied {
		t.Errorf("claim of the owner: %s, %v", state, err)
	}
	if in.Finalizers[0] != appsv1.Finalizer || chunk.Labels[InventoryOfLabel] == "" {
		t.Error("the finalizer or the label differs")
	}
}
