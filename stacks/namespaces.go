package stacks

import (
	"fmt"
	"slices"

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
	dependsOn := r.dependencyChecker()
	out := make([]string, len(rendered))
	var errs Errors
	for i := range r.resolved.Components {
		p := &r.resolved.Components[i]
		if !p.Component.CreateNamespace {
			continue
		}
		by, there := renderedBy[p.Namespace]
		if !there {
			out[i] = p.Namespace
			continue
		}
		other := r.resolved.Components[by].Component
		if by != i && !dependsOn(p.Component.Name, other.Name) {
			errs = append(errs, &Error{
				File: r.def.file, Component: p.Component.Name, Field: "createNamespace",
				Message: fmt.Sprintf("the namespace %q is rendered by component %q; add that component to dependsOn", p.Namespace, other.Name),
			})
		}
	}
	return out, errs.Err()
}

// dependencyChecker returns a function that reports whether the component name depends on other,
// directly or transitively.
func (r *renderRun) dependencyChecker() func(name, other string) bool {
	below := map[string][]string{}
	for i := range r.resolved.Components {
		c := r.resolved.Components[i].Component
		below[c.Name] = c.DependsOn
	}
	return func(name, other string) bool {
		seen := map[string]bool{}
		var walk func(string) bool
		walk = func(at string) bool {
			if at == other {
				return true
			}
			if seen[at] {
				return false
			}
			seen[at] = true
			return slices.ContainsFunc(below[at], walk)
		}
		return slices.ContainsFunc(below[name], walk)
	}
}
