package client_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/api/client/clientset/versioned"
	"github.com/ksctl/gitops/api/client/clientset/versioned/fake"
	"github.com/ksctl/gitops/api/client/informers/externalversions"
)

// suspended suspends an install, like a program under test.
func suspended(t *testing.T, c versioned.Interface, ns, name string) {
	t.Helper()
	in, err := c.AppsV1().KsctlInstalls(ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	in.Spec.Suspend = true
	if _, err := c.AppsV1().KsctlInstalls(ns).Update(t.Context(), in, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestFakeClientReadsAndUpdatesObjects(t *testing.T) {
	c := fake.NewSimpleClientset(
		&appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Spec: appsv1.KsctlInstallSpec{Stack: "shop"}},
		&appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "web"}})
	suspended(t, c, "shop", "web")
	in, err := c.AppsV1().KsctlInstalls("shop").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || !in.Spec.Suspend || in.Spec.Stack != "shop" {
		t.Errorf("got %+v, %v", in.Spec, err)
	}
	other, err := c.AppsV1().KsctlInstalls("other").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || other.Spec.Suspend {
		t.Errorf("namespace other: got %+v, %v", other.Spec, err)
	}
	if _, err := c.AppsV1().KsctlInstalls("shop").
		Get(t.Context(), "missing", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want NotFound", err)
	}
}

// TestFakeClientServesEveryAppsKind reads each kind by the resource name of its CRD.
func TestFakeClientServesEveryAppsKind(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "one"}
	c := fake.NewSimpleClientset(&appsv1.KsctlInstall{ObjectMeta: meta}, &appsv1.KsctlRemove{ObjectMeta: meta},
		&appsv1.KsctlSource{ObjectMeta: meta}, &appsv1.KsctlInventory{ObjectMeta: meta})
	apps := c.AppsV1()
	for kind, get := range map[string]func() error{
		"KsctlInstall": func() error {
			_, err := apps.KsctlInstalls("shop").Get(t.Context(), "one", metav1.GetOptions{})
			return err
		},
		"KsctlRemove": func() error {
			_, err := apps.KsctlRemoves("shop").Get(t.Context(), "one", metav1.GetOptions{})
			return err
		},
		"KsctlSource": func() error {
			_, err := apps.KsctlSources("shop").Get(t.Context(), "one", metav1.GetOptions{})
			return err
		},
		"KsctlInventory": func() error {
			_, err := apps.KsctlInventories("shop").Get(t.Context(), "one", metav1.GetOptions{})
			return err
		},
	} {
		if err := get(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestInformersListFromFakeClient(t *testing.T) {
	c := fake.NewSimpleClientset(&appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
	factory := externalversions.NewSharedInformerFactory(c, 0)
	installs := factory.Apps().V1().KsctlInstalls()
	lister := installs.Lister()
	factory.Start(t.Context().Done())
	for kind, synced := range factory.WaitForCacheSync(t.Context().Done()) {
		if !synced {
			t.Fatalf("the cache of %s is not synced", kind)
		}
	}
	all, err := lister.KsctlInstalls("shop").List(labels.Everything())
	if err != nil || len(all) != 1 || all[0].Name != "web" {
		t.Errorf("got %v, %v", all, err)
	}
}
