package stacks

import (
	"fmt"

	"github.com/ksctl/gitops/stacks/internal/manifest"
	"github.com/ksctl/gitops/stacks/problem"
)

// maxContributedFields is the maximum number of fields of a contribution. The inventory has a hash
// of each.
const maxContributedFields = 128

// checkContribute checks the settings of a component that contributes to objects of others.
func (v *validator) checkContribute(c *Component, at func(string) fieldRef) {
	if !c.Contribute {
		return
	}
	for _, f := range []struct {
		name string
		set  bool
	}{{"helm", c.Helm != nil}, {"createNamespace", c.CreateNamespace}, {"readyExpr", c.ReadyExpr != ""},
		{"commonMetadata", c.CommonMetadata != nil}, {"preRemove", c.PreRemove},
		{"retain", c.Retain != nil}} {
		if f.set {
			v.fail(at("contribute"), "is for fields of objects that others own, so the component cannot have %s",
				f.name)
		}
	}
}

// checkContributions checks that the objects of a component that contributes are fields of objects.
func (r *renderRun) checkContributions(p *ResolvedComponent, objects []*manifest.Object) error {
	if !p.Component.Contribute {
		return nil
	}
	if r.generated[p.Component.Name] != nil {
		return r.withComponent(p, problem.Newf("the component contributes to objects of others, but its charts "+
			"generate values: render them in a component of their own"))
	}
	for _, o := range objects {
		var why string
		n := countContributedFields(o.Value)
		switch {
		case o.Hook != nil:
			why = "is a hook, but its component contributes to objects of others: remove the annotations of hooks"
		case n == 0:
			why = "sets no field in the object to which its component contributes: add fields, or remove it"
		case n > maxContributedFields:
			why = fmt.Sprintf("has %d fields, but a contribution has at most %d: split it", n, maxContributedFields)
		default:
			continue
		}
		return r.withComponent(p, problem.Errorf(o.File, o.Line, "%s %s", o, why))
	}
	return nil
}

// countContributedFields returns the number of fields of a manifest without its identity.
func countContributedFields(value map[string]any) int {
	n := 0
	for name, v := range value {
		switch metadata, _ := v.(map[string]any); name {
		case "apiVersion", "kind":
		case "metadata":
			n += countFields(metadata["labels"]) + countFields(metadata["annotations"]) +
				countFields(metadata["finalizers"])
		default:
			n += countFields(v)
		}
	}
	return n
}

// countFields returns the number of values in a value that are no maps and no lists.
func countFields(v any) int {
	n := 0
	switch v := v.(type) {
	case nil:
	case map[string]any:
		for _, child := range v {
			n += countFields(child)
		}
	case []any:
		for _, child := range v {
			n += countFields(child)
		}
	default:
		n = 1
	}
	return n
}
