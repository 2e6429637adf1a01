package stacks

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/ksctl/gitops/stacks/internal/manifest"
)

// namespacesToCreate returns the namespace to create for each component, or an empty string. A
// namespace that the stack itself renders is not created: the component, or one that it depends on,
// must render it.
func (r *renderRun) namespacesToCreate(rendered [][]*manifest.Object) ([]string, error) {
	renderedBy := map[string]int{}
	for i, objects := range rendered {
		for _, o := range objects {
			if o.Group == "" && o.Kind == "Namespace" {
				renderedBy[o.Name] = i
			}
		}
	}
	dependencies := r.transitiveDependencies()
	out := make([]string, len(rendered))
	var errs Errors
	for i, p := range r.resolved.Components {
		if !p.Component.CreateNamespace {
			continue
		}
		by, there := renderedBy[p.Namespace]
		if !there {
			out[i] = p.Namespace
			continue
		}
		other := r.resolved.Components[by].Component
		if by != i && !dependencies[p.Component.Name].Has(other.Name) {
			errs = append(errs, &Error{
				File: r.def.file, Component: p.Component.Name, Field: "createNamespace",
				Message: fmt.Sprintf("the namespace %q is rendered by component %q; add that component to dependsOn",
					p.Namespace, other.Name),
			})
		}
	}
	return out, errs.Err()
}

// transitiveDependencies returns the direct and transitive dependencies of each component.
func (r *renderRun) transitiveDependencies() map[string]sets.Set[string] {
	out := map[string]sets.Set[string]{}
	for _, p := range r.resolved.Components { // each comes after its dependencies
		all := sets.New(p.Component.DependsOn...)
		for _, dep := range p.Component.DependsOn {
			all = all.Union(out[dep])
		}
		out[p.Component.Name] = all
	}
	return out
}
