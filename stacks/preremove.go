package stacks

import (
	"slices"

	"github.com/ksctl/gitops/stacks/internal/manifest"
	"github.com/ksctl/gitops/stacks/problem"
)

// suspendPreRemoveJobs suspends the Jobs of a component that run before its removal. The Jobs are
// applied with the other objects, so that a removal needs neither source nor stack.
func (r *renderRun) suspendPreRemoveJobs(p *ResolvedComponent, objects []*manifest.Object) error {
	jobs := 0
	for _, o := range objects {
		if p.Component.PreRemove && o.Hook == nil && o.Group == "batch" && o.Kind == "Job" {
			o.Hook = &manifest.Hook{PreRemove: true}
		}
		if o.Hook == nil || !o.Hook.PreRemove {
			continue
		}
		jobs++
		spec, ok := o.Value["spec"].(map[string]any)
		if !ok {
			return r.withComponent(p, problem.Errorf(o.File, o.Line, "%s has no spec", o))
		}
		spec["suspend"] = true
		delete(spec, "ttlSecondsAfterFinished") // the removal has to see whether the Job succeeded
	}
	if p.Component.PreRemove && jobs == 0 && (p.Component.Helm == nil || p.chart != nil) {
		i := slices.IndexFunc(r.def.Spec.Components, func(c Component) bool { return c.Name == p.Component.Name })
		return r.def.componentField(i, "preRemove").fieldErrorf("is set, but the component renders no Job")
	}
	return nil
}
