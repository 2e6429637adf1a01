package stacks

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/ksctl/gitops/stacks/internal/expr"
	"github.com/ksctl/gitops/stacks/internal/helm"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/internal/values"
	"github.com/ksctl/gitops/stacks/internal/variables"
	"github.com/ksctl/gitops/stacks/problem"
)

// ResolvedStack is a stack with the choices of one install applied: components in order, exact
// versions, merged overrides.
type ResolvedStack struct {
	Definition *Definition
	// Parameters are the stack-wide choices, with defaults.
	Parameters map[string]any
	// Components are the enabled components, each after its dependencies.
	Components []ResolvedComponent
	Warnings   []string
}

// ResolvedComponent is a component with the choices of one install applied.
type ResolvedComponent struct {
	Component *Component
	// Version is exact.
	Version string
	// Namespace of objects without a namespace.
	Namespace string
	// Wave is the length of the longest chain of dependencies below the component.
	Wave int
	// Parameters of the component, with defaults.
	Parameters map[string]any
	// Values override the chart's own values.
	Values   map[string]any
	Images   []Image
	Replicas []Replica
	Patches  []Patch
	// mappedPatches is the number of patches that parameters.map returned: those after the patches
	// of the stack, and before those of the install.
	mappedPatches int
	// variables are those of the stack with their values; nil if it has none.
	variables variables.Variables
	// secretVariables are the names of those with values of a Secret.
	secretVariables sets.Set[string]
	// fields are the fields of the stack with their values.
	fields []resolvedField
	// metadata, namePrefix and nameSuffix are those that the objects get.
	metadata               CommonMetadata
	namePrefix, nameSuffix string
	kustomizeComponents    []string
	// retain is the number of objects of each kind that stay after they left the render; nil if
	// none do.
	retain *int32
	// sensitive is true if values of a Secret reach the component. The hashes of its objects are
	// keyed.
	sensitive bool

	helmSettings
	// chart is nil if the component is not a chart, or if Request.WithoutCharts leaves it out.
	chart *helm.Chart
	// fetched identifies a chart from a repository; dependencies are the fetched dependencies of
	// a chart in the source.
	fetched      *ChartRef
	dependencies []ChartRef
}

// Resolve applies choices to a definition. Precedence, lowest to highest: the stack's defaults,
// values and parameters from ConfigMaps and Secrets, parameters, component override. fetched must
// include all charts from repositories, else the error may be a *MissingChartsError. It is an
// *EncryptedError if values or files are encrypted.
func Resolve(ctx context.Context, def *Definition, install Identity, choices Choices,
	fetched ...FetchedChart) (*ResolvedStack, error) {
	tree, err := source.Open(def.root)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	req := Request{Stack: def.Metadata.Name, Install: install, Choices: choices, Charts: fetched}
	resolved, err := resolve(ctx, tree, def, req)
	if files := encryptedInputs(tree, &req); len(files) > 0 {
		return nil, &EncryptedError{Stack: req.Stack, Files: files}
	}
	return resolved, err
}

// resolver applies the choices of one install to a definition and collects the errors.
type resolver struct {
	ctx     context.Context
	tree    *source.Tree
	def     *Definition
	install Identity
	choices Choices
	// cluster is the variable of the expressions.
	cluster map[string]any
	// fetched are the charts from repositories. withoutCharts skips charts that are not in it.
	fetched       []FetchedChart
	withoutCharts bool
	// missing are charts that are not in fetched. fetches counts the dependencies to fetch for
	// charts in the source.
	missing  []ChartRef
	fetches  int
	resolved *ResolvedStack
	// stackVariables are the parameters of the stack as expressions read them: with the secret ones
	// as *expr.Secret.
	stackVariables map[string]any
	// invalidParameters is true if the parameters of the stack have errors: those of expressions
	// that read them would be consequences.
	invalidParameters bool
	errs              Errors
}

func resolve(ctx context.Context, tree *source.Tree, def *Definition, req Request) (*ResolvedStack, error) {
	r := &resolver{ctx: ctx, tree: tree, def: def, install: req.Install, choices: req.Choices,
		cluster: req.Cluster.clusterValues(),
		fetched: req.Charts, withoutCharts: req.WithoutCharts, resolved: &ResolvedStack{Definition: def}}
	if want := req.Choices.StackVersion; want != "" && want != def.Spec.Version {
		r.add("", "spec.stackVersion", "stack version %s is requested, but the source has %s", want, def.Spec.Version)
	}
	r.checkNames()
	before := len(r.errs)
	r.resolveStackParameters()
	r.invalidParameters = len(r.errs) > before
	nodes, cycle := dependencyOrder(def)
	if cycle != nil {
		return nil, cycle
	}
	disabled := r.disabledComponents()
	for _, n := range nodes {
		c := &def.Spec.Components[n.index]
		if disabled[c.Name] {
			continue
		}
		r.resolved.Components = append(r.resolved.Components, r.resolveComponent(n.index, n.wave))
	}
	r.checkReleases()
	slices.Sort(r.resolved.Warnings)
	r.resolved.Warnings = slices.Compact(r.resolved.Warnings)
	switch {
	case len(r.errs) > 0:
		return nil, r.errs.Err()
	case len(r.missing) > 0:
		return nil, &MissingChartsError{Stack: def.Metadata.Name, Charts: r.missing}
	}
	return r.resolved, nil
}

// add adds an error, and returns it so that the caller can set its suggestion.
func (r *resolver) add(component, field, format string, args ...any) *Error {
	e := &Error{Stack: r.def.Metadata.Name, Component: component, Field: field, Message: fmt.Sprintf(format, args...)}
	r.errs = append(r.errs, e)
	return e
}

func (r *resolver) warn(format string, args ...any) {
	r.resolved.Warnings = append(r.resolved.Warnings, fmt.Sprintf(format, args...))
}

// errorsOf returns copies of the errors in err, with their component set.
func errorsOf(c *Component, err error) (out Errors) {
	for _, e := range problem.Flatten(err) {
		own := *e
		own.Component = c.Name
		out = append(out, &own)
	}
	return out
}

// checkNames reports choices for components that are not in the stack, and duplicates.
func (r *resolver) checkNames() {
	var known []string
	for _, c := range r.def.Spec.Components {
		known = append(known, c.Name)
	}
	seen := map[string]bool{}
	for _, choice := range r.choices.Components {
		name := choice.Name
		if !slices.Contains(known, name) {
			r.add("", "spec.components", "there is no component %q", name).Suggestion = problem.Nearest(name, known)
		}
		if seen[name] {
			r.add(name, "spec.components", "the install lists the component twice")
		}
		seen[name] = true
	}
	for _, in := range r.choices.Values {
		if !slices.Contains(known, in.Component) {
			r.add("", "spec.valuesFrom", "%s is for component %q, which is not in the stack", in.Source,
				in.Component).Suggestion = problem.Nearest(in.Component, known)
		}
	}
}

func (r *resolver) resolveStackParameters() {
	params := r.def.Spec.Parameters
	if params == nil {
		r.readParameters(nil)
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
	given := mergeParameters(r.readParameters(params.Schema), r.choices.Parameters)
	plain, _ := expr.Reveal(given).(map[string]any)
	r.resolved.Parameters = schema.Defaults(plain)
	r.stackVariables, _ = concealAs(given, r.resolved.Parameters).(map[string]any)
	for _, v := range schema.Validate(r.resolved.Parameters) {
		if secret := secretAt(given, v.Path); secret != nil && isComposite(expr.Reveal(secret)) {
			r.add("", "spec.parameters", "%s, which is from a Secret, does not match its schema", secret.Name())
			continue
		}
		r.addViolation("", "spec.parameters", "parameter", v)
	}
}

// addViolation reports a choice that violates its schema.
func (r *resolver) addViolation(component, field, noun string, v values.Violation) {
	switch {
	case v.Unknown != "":
		r.add(component, field, "%s %q is not in its schema", noun,
			values.Dotted(append(slices.Clone(v.Path), v.Unknown))).Suggestion = v.Suggestion
	case len(v.Path) == 0:
		r.add(component, field, "the %ss %s", noun, v.Message)
	default:
		r.add(component, field, "%s %q %s", noun, values.Dotted(v.Path), v.Message)
	}
}

// disabledComponents returns the components that the install disables. It reports enabled
// components that depend on a disabled one.
func (r *resolver) disabledComponents() map[string]bool {
	out := r.choices.disabled()
	for _, c := range r.def.Spec.Components {
		for _, dep := range c.DependsOn {
			if out[dep] && !out[c.Name] {
				r.add(c.Name, "enabled",
					"depends on component %q, which is disabled; enable that component, or disable both", dep)
			}
		}
	}
	return out
}

func (c *Choices) forComponent(name string) ComponentChoice {
	for _, choice := range c.Components {
		if choice.Name == name {
			return choice
		}
	}
	return ComponentChoice{Name: name}
}
