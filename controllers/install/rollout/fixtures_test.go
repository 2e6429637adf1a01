package rollout

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/golden"
	"github.com/ksctl/gitops/stacks"
)

func idOf(ns, name string) string {
	return stacks.Ref{Kind: "ConfigMap", Namespace: ns, Name: name}.ID()
}

// newInstall returns a ready install of namespace "ns" with one object in each of the namespaces
// in. The locations of its objects are unknown if in is nil.
func newInstall(name, source string, in []string, change ...func(*appsv1.KsctlInstall)) *appsv1.KsctlInstall {
	x := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Generation: 1}}
	x.Spec.SourceRef = appsv1.SourceRef{Kind: "GitRepository", Name: source}
	x.Status.Conditions = []metav1.Condition{{Type: appsv1.ReadyCondition, Status: metav1.ConditionTrue,
		ObservedGeneration: 1}}
	if in != nil {
		x.Status.Inventory = &appsv1.Inventory{}
	}
	for _, ns := range in {
		x.Status.Inventory.Entries = append(x.Status.Inventory.Entries, appsv1.InventoryEntry{ID: idOf(ns, name)})
	}
	for _, f := range change {
		f(x)
	}
	return x
}

func goldenRead(t *testing.T, name string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(golden.Read(t, name), into); err != nil {
		t.Fatal(err)
	}
}
