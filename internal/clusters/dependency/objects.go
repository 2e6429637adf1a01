package dependency

import (
	"cmp"

	"k8s.io/apimachinery/pkg/runtime/schema"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// Objects are what an install depends on beside other installs. Whether a kind has
// namespaces is not known here: each is there with one and without.
func Objects(in *appsv1.KsctlInstall) []stacks.Ref {
	var out []stacks.Ref
	for i := range in.Spec.DependsOn {
		d := &in.Spec.DependsOn[i]
		if d.OfInstall() {
			continue // that is what it has, not an object
		}
		ref := stacks.Ref{Group: schema.FromAPIVersionAndKind(d.APIVersion, d.Kind).Group, Kind: d.Kind, Name: d.Name}
		inNamespace := ref
		inNamespace.Namespace = cmp.Or(d.Namespace, in.Namespace)
		out = append(out, ref, inNamespace)
	}
	return out
}

// On are the objects of a set that an install depends on.
func On(in *appsv1.KsctlInstall, has func(id string) bool) []stacks.Ref {
	var out []stacks.Ref
	for _, r := range Objects(in) {
		if has(r.ID()) {
			out = append(out, r)
		}
	}
	return out
}
