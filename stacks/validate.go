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

// maxComponents is the maximum number of components of a stack.
const maxComponents = 256

var (
	labelPattern   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	releasePattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
)

func isLabel(s string) bool { return labelPattern.MatchString(s) }

// fieldRef is a field of a stack file, for error messages.
type fieldRef struct {
	def  *Definition
	path string
}

func (d *Definition) fieldAt(path string) fieldRef { return fieldRef{def: d, path: path} }

// componentField returns a field of the component with an index in the spec. If field is empty, it
// returns the component itself.
func (d *Definition) componentField(i int, field string) fieldRef {
	return d.fieldAt(fmt.Sprintf("spec.components[%d].%s", i, field))
}

func (p fieldRef) errorf(format string, args ...any) *Error {
	component, field := p.def.splitComponentPath(p.path)
	return &Error{File: p.def.file, Line: p.def.lines.Of(p.path), Component: component, Field: field,
		Message: fmt.Sprintf(format, args...)}
}

// fieldErrorf is like errorf, but its message begins with the name of the field.
func (p fieldRef) fieldErrorf(format string, args ...any) *Error {
	e := p.errorf(format, args...)
	e.Message = fmt.Sprintf("field %q %s", e.Field, e.Message)
	return e
}

// validator collects the errors of one definition.
type validator struct {
	def  *Definition
	tree *source.Tree
	errs Errors
	// fetches counts the chart dependencies to fetch for charts in the source.
	fetches int
}

func (v *validator) add(e *Error) { v.errs = append(v.errs, e) }

// fail adds an error that begins with the name of a field.
func (v *validator) fail(p fieldRef, format string, args ...any) {
	v.add(p.fieldErrorf(format, args...))
}

func (v *validator) addAll(p fieldRef, err error) {
	for _, e := range problem.Flatten(err) {
		if e.File != "" {
			// The error is in another file that this component references.
			other := *e
			other.Component, _ = v.def.splitComponentPath(p.path)
			v.add(&other)
			continue
		}
		own := p.fieldErrorf("%s", e.Message)
		own.Suggestion = e.Suggestion
		v.add(own)
	}
}

// validate checks a definition and the files that it references.
func validate(def *Definition, tree *source.Tree) Errors {
	v := &validator{def: def, tree: tree}
	v.checkHeader()
	if len(def.Spec.Components) == 0 {
		v.fail(def.fieldAt("spec.components"), "must list at least one component")
	}
	if len(def.Spec.Components) > maxComponents {
		v.fail(def.fieldAt("spec.components"), "has %d components; %d are allowed", len(def.Spec.Components),
			maxComponents)
		return v.errs
	}
	if why := def.Spec.CommonMetadata.invalid(); why != "" {
		v.fail(def.fieldAt("spec.commonMetadata"), "is invalid: %s", why)
	}
	for i := range def.Spec.Components {
		v.checkComponent(i)
	}
	if def.Spec.Serves != nil {
		v.compileKind()
	}
	v.checkNames()
	if _, err := dependencyOrder(def); err != nil {
		v.add(err)
	}
	return v.errs
}

func (v *validator) checkHeader() {
	d := v.def
	if d.APIVersion != APIVersion {
		v.fail(d.fieldAt("apiVersion"), "must be %q, not %q", APIVersion, d.APIVersion)
	}
	if d.Kind != Kind {
		v.fail(d.fieldAt("kind"), "must be %q, not %q", Kind, d.Kind)
	}
	if !isLabel(d.Metadata.Name) {
		v.fail(d.fieldAt("metadata.name"),
			"must be a DNS label (lower case letters, digits and dashes, at most 63), not %q", d.Metadata.Name)
	}
	if _, err := semver.StrictNewVersion(d.Spec.Version); err != nil {
		v.fail(d.fieldAt("spec.version"), "must be a semantic version such as 1.4.0, not %q", d.Spec.Version)
	}
	if d.Spec.Kubernetes != "" {
		if _, err := semver.NewConstraint(d.Spec.Kubernetes); err != nil {
			v.fail(d.fieldAt("spec.kubernetes"), "must be a range of versions such as \">=1.28\", not %q",
				d.Spec.Kubernetes)
		}
	}
	if d.Spec.Parameters != nil {
		v.checkSchema(d.fieldAt("spec.parameters.schema"), d.Spec.Parameters.Schema, true)
	}
}

func (v *validator) checkComponent(i int) {
	c := &v.def.Spec.Components[i]
	v.tree.SetComponent(c.Name)
	at := func(field string) fieldRef { return v.def.componentField(i, field) }
	if !isLabel(c.Name) {
		v.fail(at("name"), "must be a DNS label (lower case letters, digits and dashes, at most 63), not %q", c.Name)
	}
	x := &expressions{v: v, component: c, at: at}
	x.checkText(at("namespace"), &c.Namespace, labelRule)
	v.checkContent(c, x, at)
	if c.Schema != nil {
		if c.Helm == nil {
			v.fail(at("schema"), "is for Helm values, but this component is not a Helm chart")
		}
		v.checkSchema(at("schema"), c.Schema, false)
	}
	if c.ReadyExpr != "" {
		if err := readyexpr.Check(c.ReadyExpr); err != nil {
			v.fail(at("readyExpr"), "%s", readyExprError(err))
		}
	}
	x.checkRetain(c)
	v.checkParameters(c, at)
	if c.Parameters != nil && c.Parameters.Map != "" {
		x.compile(at("parameters.map"), c.Parameters.Map, (*expr.Compiler).CompileMap)
	}
	x.checkVariables()
	x.checkFields()
	x.checkMetadata()
	v.checkContribute(c, at)
	for i := range c.Patches {
		if why := c.Patches[i].invalid(); why != "" {
			v.fail(at("patches["+strconv.Itoa(i)+"]"), "%s", why)
		}
	}
}

// readyExprError describes in one line why a readyExpr is invalid.
func readyExprError(err error) string {
	if nb, ok := errors.AsType[*readyexpr.NotBoolError](err); ok {
		return "must return true or false, not " + nb.Type
	}
	return "does not compile: " + strings.Join(strings.Fields(err.Error()), " ")
}

func (v *validator) checkContent(c *Component, x *expressions, at func(string) fieldRef) {
	var given []string
	if c.Helm != nil {
		given = append(given, "helm")
		v.checkHelm(c, x, at)
	} else {
		x.checkText(at("version"), &c.Version, anyText)
	}
	if c.Kustomize != nil {
		given = append(given, "kustomize")
		v.checkKustomize(c, at)
	}
	if c.Manifests != nil {
		given = append(given, "manifests")
		for i, p := range c.Manifests {
			v.checkPath(at("manifests["+strconv.Itoa(i)+"]"), p)
		}
		if len(c.Manifests) == 0 {
			v.fail(at("manifests"), "must list at least one file or folder")
		}
	}
	if len(given) != 1 {
		message := "needs exactly one of helm, kustomize and manifests"
		if len(given) > 1 {
			message += ", but has " + strings.Join(given, " and ")
		}
		v.add(at("").errorf("the component %s", message))
	}
}

func (v *validator) checkPath(p fieldRef, rel string) (string, bool) {
	if rel == "" {
		v.fail(p, "is required")
		return "", false
	}
	clean, err := source.Clean(v.def.dir, rel)
	if err != nil {
		v.fail(p, "is invalid: %s", err)
		return "", false
	}
	if _, err := v.tree.Stat(clean); err != nil {
		v.fail(p, "names %s, which is not in the source", clean)
		return "", false
	}
	return clean, true
}

func (v *validator) checkParameters(c *Component, at func(string) fieldRef) {
	if c.Parameters == nil {
		return
	}
	v.checkSchema(at("parameters.schema"), c.Parameters.Schema, true)
	if properties, ok := c.Parameters.Schema["properties"].(map[string]any); ok {
		for _, key := range ReservedKeys {
			if _, taken := properties[key]; taken {
				v.fail(at("parameters.schema"), "declares %q, which is a reserved override key", key)
			}
		}
	}
}

// expressions compiles the expressions of one component. Its compiler is made for the first one.
type expressions struct {
	v         *validator
	component *Component
	at        func(field string) fieldRef
	compiler  *expr.Compiler
}

// compile compiles the expression of a field.
func (x *expressions) compile(at fieldRef, source string,
	compile func(*expr.Compiler, string) (*expr.Expression, error)) {
	if x.compiler == nil {
		var scope expr.Scope
		if p := x.v.def.Spec.Parameters; p != nil {
			scope.Stack = p.Schema
		}
		if p := x.component.Parameters; p != nil {
			scope.Params = p.Schema
		}
		var err error
		if x.compiler, err = expr.NewCompiler(scope); err != nil {
			x.v.addAll(at, err)
			return
		}
	}
	compiled, err := compile(x.compiler, source)
	x.v.addAll(at, err)
	x.v.def.expressions[at.path] = compiled
}

func (v *validator) checkSchema(p fieldRef, schema map[string]any, defaults bool) {
	compiled, err := values.Compile(schema, values.Closed)
	if err == nil && defaults {
		err = compiled.CheckDefaults()
	}
	v.addAll(p, err)
}

// checkNames checks that component names are unique and that dependencies exist.
func (v *validator) checkNames() {
	first := map[string]int{}
	var names []string
	for i, c := range v.def.Spec.Components {
		at := v.def.componentField(i, "name")
		if before, twice := first[c.Name]; twice && c.Name != "" {
			v.fail(at, "is already used by component %d; names must be unique", before+1)
			continue
		}
		first[c.Name] = i
		names = append(names, c.Name)
	}
	for i, c := range v.def.Spec.Components {
		for j, dep := range c.DependsOn {
			at := v.def.componentField(i, "dependsOn["+strconv.Itoa(j)+"]")
			switch {
			case !slices.Contains(names, dep):
				e := at.fieldErrorf("names component %q, which is not in the stack", dep)
				e.Suggestion = problem.Nearest(dep, names)
				v.add(e)
			case slices.Contains(c.DependsOn[:j], dep):
				v.fail(at, "names component %q twice", dep)
			case v.def.Spec.Components[first[dep]].PreRemove && !c.PreRemove:
				v.fail(at, "names component %q, which has preRemove; only a component with preRemove can depend on it",
					dep)
			}
		}
	}
}
