package stacks

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/ksctl/gitops/stacks/internal/expr"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/internal/values"
	"github.com/ksctl/gitops/stacks/problem"
	"github.com/ksctl/gitops/stacks/readyexpr"
)

// maxComponents bounds a stack.
const maxComponents = 256

var (
	labelPattern   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	releasePattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
)

func isLabel(s string) bool { return labelPattern.MatchString(s) }

// place is where something in a stack file stands.
type place struct {
	def   *Definition
	path  string
	field string
}

// at is a field of the stack, or with prefix spec.components[i] one of a component.
func (d *Definition) at(prefix, field string) place {
	p := place{def: d, path: prefix, field: field}
	if prefix != "" && field != "" {
		p.path = prefix + "." + field
	} else if prefix == "" {
		p.path = field
	}
	return p
}

func (p place) fail(format string, args ...any) *Error {
	component, field := p.def.split(p.path)
	return &Error{File: p.def.file, Line: p.def.lines.Of(p.path), Component: component, Field: field, Message: fmt.Sprintf(format, args...)}
}

// must is fail with a message that begins with the name of the field.
func (p place) must(format string, args ...any) *Error {
	_, field := p.def.split(p.path)
	return p.fail("field %q %s", field, fmt.Sprintf(format, args...))
}

// validator collects what is wrong with one definition.
type validator struct {
	def  *Definition
	tree *source.Tree
	errs Errors
	// fetches counts the charts that charts in the source need fetched.
	fetches int
}

func (v *validator) add(e *Error) { v.errs = append(v.errs, e) }

func (v *validator) addAll(p place, err error) {
	for _, e := range problem.All(err) {
		if e.File != "" {
			// About another file, because of this component.
			other := *e
			other.Component, _ = v.def.split(p.path)
			v.add(&other)
			continue
		}
		own := p.must("%s", e.Message)
		own.Suggestion = e.Suggestion
		v.add(own)
	}
}

// validate checks what a definition says, against the files beside it.
func validate(def *Definition, tree *source.Tree) Errors {
	v := &validator{def: def, tree: tree}
	v.head()
	if len(def.Spec.Components) == 0 {
		v.add(def.at("spec", "components").must("must list at least one component"))
	}
	if len(def.Spec.Components) > maxComponents {
		v.add(def.at("spec", "components").must("has %d components; %d are allowed", len(def.Spec.Components), maxComponents))
		return v.errs
	}
	for i := range def.Spec.Components {
		v.component(i)
	}
	v.names()
	if _, err := order(def); err != nil {
		v.add(err)
	}
	return v.errs
}

func (v *validator) head() {
	d := v.def
	if d.APIVersion != APIVersion {
		v.add(d.at("", "apiVersion").must("must be %q, not %q", APIVersion, d.APIVersion))
	}
	if d.Kind != Kind {
		v.add(d.at("", "kind").must("must be %q, not %q", Kind, d.Kind))
	}
	if !isLabel(d.Metadata.Name) {
		v.add(d.at("metadata", "name").must("must be a DNS label (lower case letters, digits and dashes, at most 63), not %q", d.Metadata.Name))
	}
	if _, err := semver.StrictNewVersion(d.Spec.Version); err != nil {
		v.add(d.at("spec", "version").must("must be a semantic version such as 1.4.0, not %q", d.Spec.Version))
	}
	if d.Spec.Kubernetes != "" {
		if _, err := semver.NewConstraint(d.Spec.Kubernetes); err != nil {
			v.add(d.at("spec", "kubernetes").must("must be a range of versions such as \">=1.28\", not %q", d.Spec.Kubernetes))
		}
	}
	if d.Spec.Parameters != nil {
		v.schema(d.at("spec", "parameters.schema"), d.Spec.Parameters.Schema, true)
	}
}

func (v *validator) component(i int) {
	c := &v.def.Spec.Components[i]
	v.tree.For(c.Name)
	at := func(field string) place { return v.def.at("spec.components["+strconv.Itoa(i)+"]", field) }
	if !isLabel(c.Name) {
		v.add(at("name").must("must be a DNS label (lower case letters, digits and dashes, at most 63), not %q", c.Name))
	}
	if c.Namespace != "" && !isLabel(c.Namespace) {
		v.add(at("namespace").must("must be a DNS label, not %q", c.Namespace))
	}
	v.content(c, at)
	if c.Schema != nil {
		if c.Helm == nil {
			v.add(at("schema").must("is about Helm values, and this component is not a chart"))
		}
		v.schema(at("schema"), c.Schema, false)
	}
	if c.ReadyExpr != "" {
		if err := readyexpr.Check(c.ReadyExpr); err != nil {
			v.add(at("readyExpr").must("%s", readyProblem(err)))
		}
	}
	v.parameters(c, at)
}

// readyProblem says in one line why an expression can't judge.
func readyProblem(err error) string {
	var nb *readyexpr.NotBoolError
	if errors.As(err, &nb) {
		return "must return true or false, not " + nb.Type
	}
	return "does not compile: " + strings.Join(strings.Fields(err.Error()), " ")
}

func (v *validator) content(c *Component, at func(string) place) {
	var given []string
	if c.Helm != nil {
		given = append(given, "helm")
		v.helm(c, at)
	}
	if c.Kustomize != nil {
		given = append(given, "kustomize")
		v.kustomize(c, at)
	}
	if c.Manifests != nil {
		given = append(given, "manifests")
		for i, p := range c.Manifests {
			v.exists(at("manifests["+strconv.Itoa(i)+"]"), p)
		}
		if len(c.Manifests) == 0 {
			v.add(at("manifests").must("must list at least one file or folder"))
		}
	}
	if len(given) != 1 {
		message := "needs exactly one of helm, kustomize and manifests"
		if len(given) > 1 {
			message += ", and has " + strings.Join(given, " and ")
		}
		v.add(at("").fail("the component %s", message))
	}
}

func (v *validator) exists(p place, rel string) (string, bool) {
	if rel == "" {
		v.add(p.must("is required"))
		return "", false
	}
	clean, err := source.Clean(v.def.dir, rel)
	if err != nil {
		v.add(p.must("is wrong: %s", err))
		return "", false
	}
	if _, err := v.tree.Stat(clean); err != nil {
		v.add(p.must("names %s, which is not in the source", clean))
		return "", false
	}
	return clean, true
}

func (v *validator) parameters(c *Component, at func(string) place) {
	if c.Parameters == nil {
		return
	}
	v.schema(at("parameters.schema"), c.Parameters.Schema, true)
	if properties, ok := c.Parameters.Schema["properties"].(map[string]any); ok {
		for _, key := range ReservedKeys {
			if _, taken := properties[key]; taken {
				v.add(at("parameters.schema").must("declares %q, which is a reserved override key", key))
			}
		}
	}
	if c.Parameters.Map != "" {
		if _, err := expr.NewMap(c.Parameters.Map); err != nil {
			v.addAll(at("parameters.map"), err)
		}
	}
}

func (v *validator) schema(p place, schema map[string]any, defaults bool) {
	compiled, err := values.Compile(schema, values.Closed)
	if err != nil {
		v.addAll(p, err)
		return
	}
	if !defaults {
		return
	}
	if err := compiled.CheckDefaults(); err != nil {
		v.addAll(p, err)
	}
}

// names checks that components are unique and depend on each other.
func (v *validator) names() {
	first := map[string]int{}
	var names []string
	for i := range v.def.Spec.Components {
		c := &v.def.Spec.Components[i]
		at := v.def.at("spec.components["+strconv.Itoa(i)+"]", "name")
		if before, twice := first[c.Name]; twice && c.Name != "" {
			v.add(at.must("is that of component %d, too; names must be unique", before+1))
			continue
		}
		first[c.Name] = i
		names = append(names, c.Name)
	}
	for i := range v.def.Spec.Components {
		c := &v.def.Spec.Components[i]
		for j, dep := range c.DependsOn {
			at := v.def.at("spec.components["+strconv.Itoa(i)+"]", "dependsOn["+strconv.Itoa(j)+"]")
			switch {
			case !slices.Contains(names, dep):
				e := at.must("names component %q, which the stack doesn't have", dep)
				e.Suggestion = problem.Nearest(dep, names)
				v.add(e)
			case slices.Contains(c.DependsOn[:j], dep):
				v.add(at.must("names component %q twice", dep))
			case v.def.Spec.Components[first[dep]].PreRemove && !c.PreRemove:
				v.add(at.must("names component %q, whose Jobs run before it is removed (preRemove): nothing can wait for them here", dep))
			}
		}
	}
}
