package dependency

import (
	"cmp"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// KeyOf returns the namespace and the name of a dependency of an install.
func KeyOf(in *appsv1.KsctlInstall, d *appsv1.Dependency) types.NamespacedName {
	return types.NamespacedName{Namespace: cmp.Or(d.Namespace, in.Namespace), Name: d.Name}
}

// Installs returns the keys of the installs that an install depends on.
func Installs(in *appsv1.KsctlInstall) []types.NamespacedName {
	var out []types.NamespacedName
	for i := range in.Spec.DependsOn {
		if d := &in.Spec.DependsOn[i]; d.OfInstall() {
			out = append(out, KeyOf(in, d))
		}
	}
	return out
}

// ObjectRefs returns the objects that an install depends on, without other installs. Whether a kind
// is namespaced is unknown here, so each object is returned both with and without a namespace.
func ObjectRefs(in *appsv1.KsctlInstall) []stacks.Ref {
	var out []stacks.Ref
	for i := range in.Spec.DependsOn {
		d := &in.Spec.DependsOn[i]
		if d.OfInstall() {
			continue // a dependency on another install, not on an object
		}
		ref := stacks.Ref{Group: schema.FromAPIVersionAndKind(d.APIVersion, d.Kind).Group, Kind: d.Kind, Name: d.Name}
		inNamespace := ref
		inNamespace.Namespace = cmp.Or(d.Namespace, in.Namespace)
		out = append(out, ref, inNamespace)
	}
	return out
}

// ObjectRefsIn returns the objects of a set that an install depends on. has reports whether an ID
// is in the set.
func ObjectRefsIn(in *appsv1.KsctlInstall, has func(id string) bool) []stacks.Ref {
	var out []stacks.Ref
	for _, r := range ObjectRefs(in) {
		if has(r.ID()) {
			out = append(out, r)
		}
	}
	return out
}
