package stacks

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ksctl/gitops/stacks/internal/helm"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/internal/values"
	"github.com/ksctl/gitops/stacks/problem"
)

// Plan is a stack with the choices of one install applied: components in order,
// exact versions, merged overrides.
type Plan struct {
	Definition *Definition
	// Parameters are the stack-wide choices, with defaults.
	Parameters map[string]any
	// Components that are enabled, each after those it depends on.
	Components []PlannedComponent
	Warnings   []string
}

// PlannedComponent is a component and what the install made of it.
type PlannedComponent struct {
	Component *Component
	// Version is exact.
	Version string
	// Namespace for objects that name none.
	Namespace string
	// Wave is the length of the longest chain of dependencies below the component.
	Wave int
	// Parameters of the component, with defaults.
	Parameters map[string]any
	// Values for the chart, above its own defaults.
	Values   map[string]any
	Images   []Image
	Replicas []Replica
	Patches  []Patch

	// chart is nil when it was not fetched and need not be.
	chart *helm.Chart
	// fetched is which chart of a repository it is, dependencies which it was given.
	fetched      *ChartRef
	dependencies []ChartRef
}

// Resolve applies choices to a definition. Precedence, low to high: the stack's
// defaults, values from ConfigMaps and Secrets, parameters, component override.
// Charts of repositories must be among those fetched. Where values are encrypted the error
// is an *EncryptedError.
func Resolve(ctx context.Context, def *Definition, install Identity, choices Choices, fetched ...FetchedChart) (*Plan, error) {
	tree, err := source.Open(def.root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tree.Close() }()
	req := Request{Stack: def.Metadata.Name, Install: install, Choices: choices, Charts: fetched}
	plan, err := resolve(ctx, tree, def, req)
	if files := encryptedIn(tree, &req); len(files) > 0 {
		return nil, &EncryptedError{Stack: req.Stack, Files: files}
	}
	return plan, err
}

// resolver collects what is wrong with the choices of one install.
type resolver struct {
	ctx     context.Context
	tree    *source.Tree
	def     *Definition
	install Identity
	choices Choices
	// fetched are the charts of repositories; withoutCharts leaves out what is not among them.
	fetched       []FetchedChart
	withoutCharts bool
	plan          *Plan
	errs          Errors
}

func resolve(ctx context.Context, tree *source.Tree, def *Definition, req Request) (*Plan, error) {
	r := &resolver{ctx: ctx, tree: tree, def: def, install: req.Install, choices: req.Choices,
		fetched: req.Charts, withoutCharts: req.WithoutCharts, plan: &Plan{Definition: def}}
	if want := req.Choices.StackVersion; want != "" && want != def.Spec.Version {
		r.add("", "spec.stackVersion", "version %s is wanted, and the source has %s", want, def.Spec.Version)
	}
	r.names()
	r.stackParameters()
	nodes, cycle := order(def)
	if cycle != nil {
		return nil, cycle
	}
	disabled := r.disabled()
	for _, n := range nodes {
		c := &def.Spec.Components[n.index]
		if disabled[c.Name] {
			continue
		}
		r.plan.Components = append(r.plan.Components, r.component(c, n.wave))
	}
	slices.Sort(r.plan.Warnings)
	r.plan.Warnings = slices.Compact(r.plan.Warnings)
	if len(r.errs) > 0 {
		return nil, r.errs.Err()
	}
	return r.plan, nil
}

func (r *resolver) add(component, field, format string, args ...any) {
	r.addNear("", component, field, format, args...)
}

// addNear is add with the name that was probably meant.
func (r *resolver) addNear(near, component, field, format string, args ...any) {
	r.errs = append(r.errs, &Error{
		Stack: r.def.Metadata.Name, Component: component, Field: field, Message: fmt.Sprintf(format, args...), Suggestion: near,
	})
}

// names finds choices for components that the stack doesn't have.
func (r *resolver) names() {
	var known []string
	for i := range r.def.Spec.Components {
		known = append(known, r.def.Spec.Components[i].Name)
	}
	seen := map[string]bool{}
	for i := range r.choices.Components {
		name := r.choices.Components[i].Name
		if !slices.Contains(known, name) {
			r.addNear(problem.Nearest(name, known), "", "spec.components", "there is no component %q", name)
		}
		if seen[name] {
			r.add(name, "spec.components", "the install lists the component twice")
		}
		seen[name] = true
	}
	for _, in := range r.choices.Values {
		if !slices.Contains(known, in.Component) {
			r.addNear(problem.Nearest(in.Component, known), "", "spec.valuesFrom", "%s is for component %q, which there is not", in.Source, in.Component)
		}
	}
}

func (r *resolver) stackParameters() {
	params := r.def.Spec.Parameters
	if params == nil {
		for _, key := range slices.Sorted(maps.Keys(r.choices.Parameters)) {
			r.add("", "spec.parameters", "parameter %q is not known: the stack declares no parameters", key)
		}
		return
	}
	schema, err := values.Compile(params.Schema, values.Closed)
	if err != nil {
		r.add("", "spec.parameters", "the schema of the parameters %s", err)
		return
	}
	r.plan.Parameters = schema.Defaults(r.choices.Parameters)
	for _, v := range schema.Validate(r.plan.Parameters) {
		r.violation("", "spec.parameters", "parameter", v)
	}
}

// violation reports a place in the choices that doesn't fit its schema.
func (r *resolver) violation(component, field, noun string, v values.Violation) {
	switch {
	case v.Unknown != "":
		r.addNear(v.Suggestion, component, field, "%s %q is not in its schema", noun, values.Dotted(append(slices.Clone(v.Path), v.Unknown)))
	case len(v.Path) == 0:
		r.add(component, field, "the %ss %s", noun, v.Message)
	default:
		r.add(component, field, "%s %q %s", noun, values.Dotted(v.Path), v.Message)
	}
}

// disabled are the components that the install doesn't want. One that depends on
// such a component must be disabled, too.
func (r *resolver) disabled() map[string]bool {
	out := map[string]bool{}
	for i := range r.choices.Components {
		if c := &r.choices.Components[i]; c.Enabled != nil && !*c.Enabled {
			out[c.Name] = true
		}
	}
	for i := range r.def.Spec.Components {
		c := &r.def.Spec.Components[i]
		for _, dep := range c.DependsOn {
			if out[dep] && !out[c.Name] {
				r.add(c.Name, "enabled", "it depends on component %q, which is disabled; enable that one, or disable both", dep)
			}
		}
	}
	return out
}

func (r *resolver) choice(name string) ComponentChoice {
	for i := range r.choices.Components {
		if r.choices.Components[i].Name == name {
			return r.choices.Components[i]
		}
	}
	return ComponentChoice{Name: name}
}

// namespace for objects of a component that name none.
func (r *resolver) namespace(c *Component) string {
	for _, ns := range []string{c.Namespace, r.choices.TargetNamespace, r.install.Namespace} {
		if ns != "" {
			return ns
		}
	}
	return "default"
}
