package bysource

import (
	"slices"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

func TestDependents(t *testing.T) {
	entry := func(r stacks.Ref) appsv1.InventoryEntry { return appsv1.InventoryEntry{ID: r.ID()} }
	set := []appsv1.InventoryEntry{entry(stacks.Ref{Kind: "ConfigMap", Namespace: "ns", Name: "a"}),
		entry(stacks.Ref{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "b.x.io"})}
	install := func(ns, name string, on ...appsv1.Dependency) appsv1.KsctlInstall {
		in := appsv1.KsctlInstall{}
		in.Namespace, in.Name, in.Spec.DependsOn = ns, name, on
		return in
	}
	cm := appsv1.Dependency{APIVersion: "v1", Kind: "ConfigMap", Name: "a"}
	there := cm
	there.Namespace = "ns"
	got := dependentMessages(set, []appsv1.KsctlInstall{
		install("other", "elsewhere", cm), install("other", "two", there), install("ns", "one", cm),
		install("ns", "three",
			appsv1.Dependency{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition", Name: "b.x.io"}),
		install("ns", "none", appsv1.Dependency{Name: "a"}),
	})
	want := []string{"KsctlInstall ns/one depends on ConfigMap ns/a",
		"KsctlInstall ns/three depends on CustomResourceDefinition b.x.io",
		"KsctlInstall other/two depends on ConfigMap ns/a"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
