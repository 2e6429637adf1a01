package stacks

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/ksctl/gitops/stacks/internal/expr"
)

// Text is a text, or in a stack file also {expr: CEL}: the text that an expression over the
// variables of Field.Value returns.
type Text struct {
	Text string
	Expr string `json:"expr"`
}

// ScalarField returns the field for a text without an expression. It makes document.Decode accept
// both forms.
func (t *Text) ScalarField() any { return &t.Text }

// MarshalJSON encodes both forms as they are written in a stack file.
func (t Text) MarshalJSON() ([]byte, error) {
	if t.Expr == "" {
		return json.Marshal(t.Text)
	}
	return json.Marshal(map[string]string{"expr": t.Expr})
}

// isSet reports whether a stack has a text.
func (t *Text) isSet() bool { return *t != Text{} }

// textRule returns why a text is invalid; empty for a valid one.
type textRule func(text string) string

func anyText(string) string { return "" }

func labelRule(text string) string {
	if isLabel(text) {
		return ""
	}
	return fmt.Sprintf("must be a DNS label, not %q", text)
}

// checkText checks a text of a component, or compiles its expression.
func (x *expressions) checkText(at fieldRef, t *Text, rule textRule) {
	switch {
	case !t.isSet():
		if _, empty := x.v.def.lines[at.path+".expr"]; empty {
			x.v.fail(at, "needs an expression in expr")
		}
	case t.Expr != "":
		x.compile(at, t.Expr, (*expr.Compiler).CompileString)
	default:
		if why := rule(t.Text); why != "" {
			x.v.fail(at, "%s", why)
		}
	}
}

// text returns a text of a component, or what its expression returns. A text without an expression
// was checked when the stack was loaded.
func (r *resolver) text(at fieldRef, t *Text, vars expr.Variables, rule textRule) string {
	if t.Expr == "" {
		return t.Text
	}
	value, err := r.def.expressions[at.path].Eval(r.ctx, vars)
	out, isText := value.(string)
	var why string
	switch secret := expr.FindSecret(value); {
	case err != nil:
		why = err.Error()
	case secret != nil:
		why = secretUse(secret)
	case !isText:
		why = "must return a text"
	default:
		why = rule(out)
	}
	if why != "" {
		r.errs = append(r.errs, at.fieldErrorf("%s", why))
		return ""
	}
	return out
}

// hasNameExpressions reports whether the chart, the namespace or another name of a component
// depends on parameters.
func (c *Component) hasNameExpressions() bool {
	if h := c.Helm; h != nil && (h.Name.Expr != "" || h.ReleaseName.Expr != "") {
		return true
	}
	return c.Version.Expr != "" || c.Namespace.Expr != "" || c.NamePrefix.Expr != "" || c.NameSuffix.Expr != ""
}

// resolveNames sets the version, the names and the chart of a component, and returns the variables
// of its other expressions.
func (r *resolver) resolveNames(index int, p *ResolvedComponent, choice *ComponentChoice) expr.Variables {
	c := p.Component
	at := func(field string) fieldRef { return r.def.componentField(index, field) }
	vars := expr.Variables{Stack: r.stackVariables, Cluster: r.cluster, Params: p.Parameters,
		Version: r.def.Spec.Version,
		Name:    r.install.Name, Namespace: r.install.Namespace}
	versionRule := anyText
	if c.Helm != nil && c.Helm.Repository != "" {
		versionRule = chartVersionRule
	}
	failed := len(r.errs)
	version := r.text(at("version"), &c.Version, vars, versionRule)
	p.Version = cmp.Or(choice.Version, version)
	vars.Version = cmp.Or(p.Version, vars.Version)
	switch {
	case c.Helm != nil:
		name := r.text(at("helm.name"), &c.Helm.Name, vars, chartNameRule)
		if len(r.errs) > failed {
			return vars
		}
		r.openChart(p, choice, name, version)
		vars.Version = cmp.Or(p.Version, vars.Version)
		releaseName := cmp.Or(r.text(at("helm.releaseName"), &c.Helm.ReleaseName, vars, releaseNameRule), c.Name)
		p.helmSettings = r.resolveHelmSettings(c, choice, releaseName)
	case choice.Digest != "":
		r.add(c.Name, "digest", "digest is set, but this component is not a Helm chart")
	}
	if c.Helm == nil {
		r.resolveHelmSettings(c, choice, "")
	}
	p.Namespace = cmp.Or(r.text(at("namespace"), &c.Namespace, vars, labelRule), r.choices.TargetNamespace,
		r.install.Namespace, "default")
	r.resolveMetadata(index, p, choice, vars)
	return vars
}
