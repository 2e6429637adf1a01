package stacks

import (
	"slices"
	"strconv"

	"github.com/ksctl/gitops/stacks/internal/manifest"
)

// suspend makes the Jobs of a component that run before it is removed wait for
// that. They are applied with the rest, so that a removal needs neither source
// nor stack.
func (r *renderer) suspend(p *PlannedComponent, objects []*manifest.Object) error {
	jobs := 0
	for _, o := range objects {
		if p.Component.PreRemove && o.Hook == nil && isJob(o) {
			o.Hook = &manifest.Hook{PreRemove: true}
		}
		if o.Hook == nil || !o.Hook.PreRemove {
			continue
		}
		jobs++
		spec, ok := o.Value["spec"].(map[string]any)
		if !ok {
			return r.blame(p, &Error{File: o.File, Line: o.Line, Message: o.String() + " has no spec"})
		}
		spec["suspend"] = true
		delete(spec, "ttlSecondsAfterFinished") // whether it succeeded has to be seen
	}
	if p.Component.PreRemove && jobs == 0 && (p.Component.Helm == nil || p.chart != nil) {
		i := slices.IndexFunc(r.def.Spec.Components, func(c Component) bool { return c.Name == p.Component.Name })
		return r.def.at("spec.components["+strconv.Itoa(i)+"]", "preRemove").must("is set, and the component renders no Job: nothing would run")
	}
	return nil
}

func isJob(o *manifest.Object) bool { return o.Group == "batch" && o.Kind == "Job" }
