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

// onlyConfigMaps is a cluster that serves those.
type onlyConfigMaps struct{ engine.Discovery }

func (onlyConfigMaps) Resolve(_ context.Context, _, _, kind string) (*apimeta.RESTMapping, error) {
	gvk := corev1.SchemeGroupVersion.WithKind(kind)
	return &apimeta.RESTMapping{GroupVersionKind: gvk, Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Scope: apimeta.RESTScopeNamespace}, nil
}

// watched knows objects by their version.
type watched struct {
	used    []dependency.Target
	version string
}

func (w *watched) Use(_ types.NamespacedName, targets []dependency.Target) { w.used = targets }

func (w *watched) Version(dependency.Target) (string, bool) { return w.version, true }

// One object may be named twice, with other words for what is ready: it is watched
// once, and each is answered for itself, without asking again while it does not change.
func TestDependenciesOnOneObject(t *testing.T) {
	r := newValuesRig(t, configMap("x", "1", "yes"))
	w := &watched{version: "1"}
	r.Depends, r.Content = w, &content.Loader{Sources: &sourceref.Resolver{}}
	r.Targets = &target.Targets{Local: &engine.Target{Discovery: onlyConfigMaps{}}}
	on := func(expr string) appsv1.Dependency {
		return appsv1.Dependency{APIVersion: "v1", Kind: "ConfigMap", Name: "x", ReadyExpr: expr}
	}
	r.o.req.Object.Spec.DependsOn = []appsv1.Dependency{on("self.data['values.yaml'] == 'yes'"), on("self.data['values.yaml'] == 'no'"), on("self.data['values.yaml'] == 'yes'")}
	ask := func() []string {
		t.Helper()
		not, err := r.dependencies(t.Context(), r.o, &engine.Client{Interface: r.server})
		if err != nil {
			t.Fatal(err)
		}
		return not
	}
	for range 3 {
		if not := ask(); len(not) != 1 || !strings.Contains(not[0], "ConfigMap") {
			t.Errorf("not ready: %q", not)
		}
	}
	if r.reads > 3 {
		t.Errorf("%d reads of an object that did not change", r.reads)
	}
	if want := (dependency.Target{Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), NamespacedName: types.NamespacedName{Namespace: "ns", Name: "x"}}); !slices.Equal(w.used, []dependency.Target{want}) {
		t.Errorf("watched are %v", w.used)
	}
	before := r.reads
	if w.version = "2"; len(ask()) != 1 || r.reads == before {
		t.Error("it changed, and was not read again")
	}
}
