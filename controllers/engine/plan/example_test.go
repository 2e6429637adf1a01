package plan_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/stacks"
)

// A plan is computed from a snapshot, without a cluster: here, an object is new, and another one
// has left the stack.
func ExampleReconcile() {
	configMap := func(name string) stacks.Ref { return stacks.Ref{Kind: "ConfigMap", Namespace: "shop", Name: name} }
	mapping := &meta.RESTMapping{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Scope: meta.RESTScopeNamespace}
	added := plan.Item{Object: stacks.Object{Ref: configMap("new"), Version: "v1"}, ID: configMap("new").ID(),
		Mapping: mapping, ContentHash: "hash", Component: "web"}
	left := appsv1.InventoryEntry{ID: configMap("old").ID(), Version: "v1", State: appsv1.EntryApplied, UID: "1"}

	p := plan.Reconcile(&plan.Snapshot{
		Owner:      plan.OwnerKey{Installation: "ksctl", Kind: "KsctlInstall", Namespace: "shop", Name: "web"},
		Components: []plan.Component{{Name: "web", Items: []plan.Item{added}}},
		Inventory:  plan.NewInventory(&appsv1.Inventory{Entries: []appsv1.InventoryEntry{left}}, nil),
		Policies:   plan.DefaultPolicies,
	})
	for _, a := range p.Actions {
		fmt.Println(a.Verb, a.Ref())
	}
	for _, w := range p.Waits {
		fmt.Println(w.Verb, w.Ref(), w.Message)
	}
	// Output:
	// create ConfigMap shop/new
	// wait ConfigMap shop/old 1 object is removed after everything else is applied
}
