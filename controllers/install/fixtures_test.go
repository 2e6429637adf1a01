package install

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

func idOf(ns, name string) string {
	return stacks.Ref{Kind: "ConfigMap", Namespace: ns, Name: name}.ID()
}

// install returns a ready install of namespace "ns" with one object in each of the namespaces in.
// The locations of its objects are unknown if in is nil.
func install(name, source string, in []string, change ...func(*appsv1.KsctlInstall)) *appsv1.KsctlInstall {
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

func takesOverFrom(name string) func(*appsv1.KsctlInstall) {
	return func(in *appsv1.KsctlInstall) { in.Spec.TakeOver = &appsv1.TakeOver{Name: name} }
}

func deleting(in *appsv1.KsctlInstall) { in.DeletionTimestamp = &metav1.Time{} }

func key(name string) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: name} }

func removedByRequest(in *appsv1.KsctlInstall) { in.Status.Removals = []appsv1.InstallRemoval{{}} }
