package stacks

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"

	"github.com/ksctl/gitops/stacks/internal/expr"
	"github.com/ksctl/gitops/stacks/internal/fieldpath"
	"github.com/ksctl/gitops/stacks/internal/kustomize"
	"github.com/ksctl/gitops/stacks/internal/manifest"
)

// Field sets a field of the rendered objects to the value of an expression.
type Field struct {
	Target PatchTarget `json:"target"`
	// Path of the field as in a kustomization, such as spec.containers.[name=app].image.
	Path string `json:"path"`
	// Value is a CEL expression over `stack`, `params`, `cluster`, `version`, `name` and
	// `namespace`. Its type stays.
	Value string `json:"value"`
	// When is a CEL expression: the field is set when it is true.
	When string `json:"when,omitempty"`
	// Create adds the field where it is missing, which is an error otherwise.
	Create bool `json:"create,omitempty"`
}

// maxFieldBytes bounds the value of a field as JSON: the API server stores at most 1.5 MiB for an
// object.
const maxFieldBytes = 512 << 10

// resolvedField is a field with its value for one install.
type resolvedField struct {
	// at is the field in the stack file.
	at     fieldRef
	target PatchTarget
	path   fieldpath.Path
	value  any
	create bool
}

// checkFields checks the fields of a component, and compiles their expressions.
func (x *expressions) checkFields() {
	v := x.v
	for i := range x.component.Fields {
		f := &x.component.Fields[i]
		at := func(name string) fieldRef { return x.at("fields[" + strconv.Itoa(i) + "]." + name) }
		if f.Target == (PatchTarget{}) {
			v.fail(at("target"), "selects nothing: it needs a kind, a name or another field")
		} else if _, err := f.Target.matcher(); err != nil {
			v.addAll(at("target"), err)
		}
		if _, err := fieldpath.Parse(f.Path); err != nil {
			v.addAll(at("path"), err)
		}
		x.compile(at("value"), f.Value, (*expr.Compiler).Compile)
		if f.When != "" {
			x.compile(at("when"), f.When, (*expr.Compiler).CompileBool)
		}
	}
}

// resolveFields returns the fields of a component with their values.
func (r *resolver) resolveFields(index int, c *Component, vars expr.Variables) (out []resolvedField) {
	for i := range c.Fields {
		f := &c.Fields[i]
		at := func(name string) fieldRef { return r.def.componentField(index, "fields["+strconv.Itoa(i)+"]."+name) }
		if f.When != "" {
			when, err := r.def.expressions[at("when").path].Eval(r.ctx, vars)
			if err != nil {
				r.errs = append(r.errs, at("when").fieldErrorf("%s", err))
				continue
			}
			if secret := expr.FindSecret(when); secret != nil {
				r.errs = append(r.errs, at("when").fieldErrorf("%s", secretUse(secret)))
				continue
			}
			if when != true {
				continue
			}
		}
		value, err := r.def.expressions[at("value").path].Eval(r.ctx, vars)
		if err == nil {
			err = checkFieldSize(value)
		}
		path, pathErr := fieldpath.Parse(f.Path)
		if err = cmp.Or(err, pathErr); err != nil {
			r.errs = append(r.errs, at("value").fieldErrorf("%s", err))
			continue
		}
		out = append(out, resolvedField{at: at("path"), target: f.Target, path: path, value: value, create: f.Create})
	}
	return out
}

func checkFieldSize(value any) error {
	raw, err := json.Marshal(expr.Reveal(value))
	if err == nil && len(raw) > maxFieldBytes {
		err = fmt.Errorf("has %d bytes; %d are allowed", len(raw), maxFieldBytes)
	}
	return err
}

// setFields sets the fields of a component in its objects.
func setFields(p *ResolvedComponent, objects []*manifest.Object) error {
	var errs Errors
	for i := range p.fields {
		f := &p.fields[i]
		matches, err := f.target.matcher()
		if err != nil {
			errs = append(errs, f.at.fieldErrorf("%s", err))
			continue
		}
		found := false
		for _, o := range objects {
			if !matches(o) {
				continue
			}
			found = true
			value, err := fieldValue(o, f)
			if err == nil {
				err = f.path.Set(o.Value, value, f.create)
			}
			if root, _ := f.path.Root(); err == nil && root == "metadata" {
				err = checkMetadata(o)
			}
			if err != nil {
				errs = append(errs, f.at.fieldErrorf("in %s: %s", o, err))
			}
		}
		if !found {
			errs = append(errs,
				f.at.fieldErrorf("matches no rendered object: its target is %s",
					kustomize.DescribeTarget(f.target.selector())))
		}
	}
	return errs.Err()
}

// matcher returns a function that reports whether the target selects an object.
func (t *PatchTarget) matcher() (func(*manifest.Object) bool, error) {
	regex, err := types.NewSelectorRegex(t.selector())
	if err != nil {
		return nil, err
	}
	byLabels, err := labels.Parse(t.LabelSelector)
	if err != nil {
		return nil, err
	}
	byAnnotations, err := labels.Parse(t.AnnotationSelector)
	if err != nil {
		return nil, err
	}
	return func(o *manifest.Object) bool {
		return regex.MatchGvk(resid.Gvk{Group: o.Group, Version: o.Version, Kind: o.Kind}) &&
			regex.MatchName(o.Name) && regex.MatchNamespace(o.Namespace) &&
			byLabels.Matches(metadataOf(o, "labels")) && byAnnotations.Matches(metadataOf(o, "annotations"))
	}, nil
}

// metadataOf returns the labels or the annotations of an object.
func metadataOf(o *manifest.Object, field string) labels.Set {
	metadata, _ := o.Value["metadata"].(map[string]any)
	all, _ := metadata[field].(map[string]any)
	out := labels.Set{}
	for key, value := range all {
		out[key], _ = value.(string)
	}
	return out
}

// selector returns the target as kustomize has it.
func (t *PatchTarget) selector() *types.Selector {
	return &types.Selector{
		ResId: resid.ResId{Gvk: resid.Gvk{Group: t.Group, Version: t.Version, Kind: t.Kind},
			Name: t.Name, Namespace: t.Namespace},
		LabelSelector: t.LabelSelector, AnnotationSelector: t.AnnotationSelector,
	}
}

// digestedFields returns the fields of a component for the digest of its release.
func digestedFields(p *ResolvedComponent) (out []any) {
	for i := range p.fields {
		f := &p.fields[i]
		out = append(out, []any{f.target, f.path.String(), expr.Reveal(f.value), f.create})
	}
	return out
}
