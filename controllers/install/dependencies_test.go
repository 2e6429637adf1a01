package install

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/internal/clusters/dependency"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/internal/sources/content"
	"github.com/ksctl/gitops/internal/sources/sourceref"
)

// configMapDiscovery resolves every kind to ConfigMaps.
type configMapDiscovery struct{ engine.Discovery }

func (configMapDiscovery) Resolve(_ context.Context, _, _, kind string) (*apimeta.RESTMapping, error) {
	gvk := corev1.SchemeGroupVersion.WithKind(kind)
	return &apimeta.RESTMapping{GroupVersionKind: gvk, Resource: corev1.SchemeGroupVersion.WithResource("configmaps"),
		Scope: apimeta.RESTScopeNamespace}, nil
}

// fakeDependencyWatcher records the watched objects, and returns the same version for each.
type fakeDependencyWatcher struct {
	DependencyWatcher
	objects []dependency.Object
	version string
}

func (w *fakeDependencyWatcher) SetDependencies(_ types.NamespacedName, objects []dependency.Object) {
	w.objects = slices.Compact(objects)
}

func (w *fakeDependencyWatcher) Version(dependency.Object) (string, bool) { return w.version, true }

// spec.dependsOn can have the same object twice, with different ready expressions. The object is
// watched once, each expression is evaluated, and the object is read again only when it changes.
func TestDependenciesOnSameObjectAreReadOncePerVersion(t *testing.T) {
	r := newValuesTest(t, configMap("x", "1", "yes"))
	w := &fakeDependencyWatcher{version: "1"}
	r.Dependencies, r.Content = w, &content.Loader{Sources: &sourceref.Resolver{}}
	r.Targets = &target.Resolver{Local: &engine.Target{Discovery: configMapDiscovery{}}}
	dependencyWith := func(expr string) appsv1.Dependency {
		return appsv1.Dependency{APIVersion: "v1", Kind: "ConfigMap", Name: "x", ReadyExpr: expr}
	}
	r.o.req.Object.Spec.DependsOn = []appsv1.Dependency{dependencyWith("self.data['values.yaml'] == 'yes'"),
		dependencyWith("self.data['values.yaml'] == 'no'"), dependencyWith("self.data['values.yaml'] == 'yes'")}
	unmet := func() []string {
		t.Helper()
		notReady, err := r.unmetDependencies(t.Context(), r.o, &engine.Client{Interface: r.server})
		if err != nil {
			t.Fatal(err)
		}
		return messagesOf(notReady)
	}
	for range 3 {
		if notReady := unmet(); len(notReady) != 1 || !strings.Contains(notReady[0], "ConfigMap") {
			t.Errorf("not ready: %q", notReady)
		}
	}
	if r.reads > 3 {
		t.Errorf("%d reads of an object that did not change", r.reads)
	}
	if want := (dependency.Object{Resource: corev1.SchemeGroupVersion.WithResource("configmaps"),
		NamespacedName: types.NamespacedName{Namespace: "ns", Name: "x"}}); !slices.Equal(w.objects,
		[]dependency.Object{want}) {
		t.Errorf("watched objects: %v", w.objects)
	}
	before := r.reads
	if w.version = "2"; len(unmet()) != 1 || r.reads == before {
		t.Error("the changed object was not read again")
	}
}
