package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/setup"
)

func TestALabelledNamespaceGetsItsStack(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := setup.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant", Labels: map[string]string{stackLabel: "shop"}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}).Build()
	n := &namespaces{client: c, options: options{source: "fleet", sourceKind: "GitRepository"}}
	// the second reconcile of a namespace changes nothing
	for _, name := range []string{"tenant", "tenant", "other", "gone"} {
		if _, err := n.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: name}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var all appsv1.KsctlInstallList
	if err := c.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Items) != 1 || all.Items[0].Namespace != "tenant" || all.Items[0].Spec.Stack != "shop" ||
		all.Items[0].Spec.SourceRef.Name != "fleet" {
		t.Errorf("got %+v", all.Items)
	}
	for _, in := range all.Items {
		if !installLabels.AsSelector().Matches(labels.Set(in.Labels)) {
			t.Errorf("%s has the labels %v, which the manager's cache does not select", in.Name, in.Labels)
		}
	}
}
