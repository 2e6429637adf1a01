package stacks

import (
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/ksctl/gitops/stacks/internal/expr"
	"github.com/ksctl/gitops/stacks/internal/manifest"
	"github.com/ksctl/gitops/stacks/internal/variables"
	"github.com/ksctl/gitops/stacks/problem"
)

// checkVariables checks the variables of a component.
func (x *expressions) checkVariables() {
	for _, name := range slices.Sorted(maps.Keys(x.component.Variables)) {
		at := x.at("variables." + name)
		if !variables.NamePattern.MatchString(name) {
			x.v.fail(at, "must be a name of letters, digits and underscores that does not begin with a digit")
			continue
		}
		value := x.component.Variables[name]
		if _, empty := x.v.def.lines[at.path+".expr"]; empty && value.Expr == "" {
			x.v.fail(at, "needs an expression in expr")
		}
		if value.Expr != "" {
			x.compile(at, value.Expr, (*expr.Compiler).Compile)
		}
	}
}

// resolveVariables sets the variables of a component with their values.
func (r *resolver) resolveVariables(index int, p *ResolvedComponent, vars expr.Variables) {
	c := p.Component
	if c.Variables == nil {
		return
	}
	out := variables.Variables{}
	p.variables, p.secretVariables = out, sets.Set[string]{}
	for _, name := range slices.Sorted(maps.Keys(c.Variables)) {
		value := c.Variables[name]
		if out[name] = value.Text; value.Expr == "" {
			continue
		}
		at := r.def.componentField(index, "variables."+name)
		result, err := r.def.expressions[at.path].Eval(r.ctx, vars)
		if expr.FindSecret(result) != nil {
			p.secretVariables.Insert(name)
			p.sensitive = true
			result = expr.Reveal(result)
		}
		if err == nil {
			out[name], err = variableText(result)
		}
		if err != nil {
			r.errs = append(r.errs, at.fieldErrorf("%s", err))
		}
	}
}

// variableText returns the text of a scalar.
func variableText(value any) (string, error) {
	switch value := value.(type) {
	case string:
		return value, nil
	case bool:
		return strconv.FormatBool(value), nil
	case int64:
		return strconv.FormatInt(value, 10), nil
	case float64:
		return strconv.FormatFloat(value, 'g', -1, 64), nil
	}
	return "", problem.Newf("must return a text, a number, or true or false")
}

// substitute replaces the variables of a component in its objects.
func (p *ResolvedComponent) substitute(objects []*manifest.Object) ([]*manifest.Object, error) {
	if p.variables == nil {
		return objects, nil
	}
	var errs Errors
	out := make([]*manifest.Object, 0, len(objects))
	for _, o := range objects {
		value, err := p.variables.Substitute(o.Value, p.secretVariables)
		var changed *manifest.Object
		if err == nil {
			changed, err = manifest.New(o.File, o.Line, value)
		}
		for _, e := range problem.Flatten(err) {
			own := *e
			if own.File == "" {
				own.File, own.Line, own.Message = o.File, o.Line, o.String()+": "+own.Message
			}
			errs = append(errs, &own)
		}
		if err == nil {
			changed.Hook, changed.Initial, changed.NameHash = o.Hook, o.Initial, o.NameHash
			out = append(out, changed)
		}
	}
	return out, errs.Err()
}
