package stacks

import (
	"slices"
	"strings"

	"github.com/ksctl/gitops/stacks/internal/expr"
	"github.com/ksctl/gitops/stacks/internal/manifest"
	"github.com/ksctl/gitops/stacks/problem"
)

// maxRetained bounds the objects of one kind that a component retains: each is in the inventory.
const maxRetained = 100

// checkRetain checks the field retain of a component, and compiles its expression.
func (x *expressions) checkRetain(c *Component) {
	if c.Retain == nil {
		return
	}
	x.checkNumber(x.at("retain.last"), &c.Retain.Last, 0, maxRetained)
	if c.PreRemove {
		x.v.fail(x.at("retain"), "is set, and so is preRemove; remove one of them")
	}
}

// resolveRetain sets how many objects stay after they left the render.
func (r *resolver) resolveRetain(index int, p *ResolvedComponent, vars expr.Variables) {
	if retain := p.Component.Retain; retain != nil {
		at := r.def.componentField(index, "retain.last")
		p.retain = new(r.number(at, &retain.Last, vars, 0, maxRetained))
	}
}

// checkRetained checks that a component with retain renders at most one object of each kind: else
// it is unknown which of them an object follows that left the render.
func (r *renderRun) checkRetained(p *ResolvedComponent, objects []*manifest.Object) error {
	if p.Component.Retain == nil {
		return nil
	}
	first := map[string]*manifest.Object{}
	for _, o := range objects {
		if o.Hook != nil && o.Hook.Inactive {
			continue
		}
		kind := o.Group + "/" + o.Kind
		if before := first[kind]; before != nil {
			i := slices.IndexFunc(r.def.Spec.Components, func(c Component) bool { return c.Name == p.Component.Name })
			return r.def.componentField(i, "retain").fieldErrorf("allows one object of each kind, but the component "+
				"renders several of kind %s: %s and %s", strings.TrimSuffix(o.Kind+"."+o.Group, "."), before, o)
		}
		first[kind] = o
	}
	return nil
}

// withNames returns a function that passes rendered objects on, and checks their names.
func withNames(c *Component) func([]*manifest.Object, error) ([]*manifest.Object, error) {
	return func(objects []*manifest.Object, err error) ([]*manifest.Object, error) {
		if err == nil {
			err = checkGenerateName(c, objects)
		}
		return objects, err
	}
}

// checkGenerateName refuses generateName where other content would be another object, and the
// former one is removed at once.
func checkGenerateName(c *Component, objects []*manifest.Object) error {
	var errs Errors
	for _, o := range objects {
		if o.NameHash == "" || c.Retain != nil || o.IsHook() || o.Group == "batch" && o.Kind == "Job" {
			continue
		}
		errs = append(errs, problem.Errorf(o.File, o.Line,
			"the %s uses metadata.generateName; set metadata.name instead", o.Kind))
	}
	return errs.Err()
}
