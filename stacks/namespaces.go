package stacks

import (
	"fmt"
	"slices"

	"github.com/ksctl/gitops/stacks/internal/manifest"
)

// namespaces are those to create for each component. One that the stack renders
// itself is not: it must then come before the component, or with it.
func (r *renderer) namespaces(rendered [][]*manifest.Object) ([]string, error) {
	renderedBy := map[string]int{}
	for i, objects := range rendered {
		for _, o := range objects {
			if o.Group == "" && o.Kind == "Namespace" {
				renderedBy[o.Name] = i
			}
		}
	}
	comesAfter := r.comesAfter()
	out := make([]string, len(rendered))
	var errs Errors
	for i := range r.plan.Components {
		p := &r.plan.Components[i]
		if !p.Component.CreateNamespace {
			continue
		}
		by, there := renderedBy[p.Namespace]
		if !there {
			out[i] = p.Namespace
			continue
		}
		other := r.plan.Components[by].Component
		if by != i && !comesAfter(p.Component.Name, other.Name) {
			errs = append(errs, &Error{
				File: r.def.file, Component: p.Component.Name, Field: "createNamespace",
				Message: fmt.Sprintf("the namespace %q is rendered by component %q; depend on that component", p.Namespace, other.Name),
			})
		}
	}
	return out, errs.Err()
}

// comesAfter says whether a component comes after another, directly or not.
func (r *renderer) comesAfter() func(name, other string) bool {
	below := map[string][]string{}
	for i := range r.plan.Components {
		c := r.plan.Components[i].Component
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
