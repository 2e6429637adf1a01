package stacks

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/types"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/expr"
	"github.com/ksctl/gitops/stacks/internal/kustomize"
	"github.com/ksctl/gitops/stacks/internal/values"
	"github.com/ksctl/gitops/stacks/problem"
)

// ReservedKeys are the reserved keys of an override. Every other key is a parameter of the
// component.
var ReservedKeys = []string{"values", "images", "replicas", "patches"}

// override has the reserved keys of an override.
type override struct {
	Values   map[string]any `json:"values"`
	Images   []Image        `json:"images"`
	Replicas []Replica      `json:"replicas"`
	Patches  []Patch        `json:"patches"`
}

// resolveComponent applies the choices for one component.
func (r *resolver) resolveComponent(index, wave int) ResolvedComponent {
	c := &r.def.Spec.Components[index]
	choice := r.choices.forComponent(c.Name)
	p := ResolvedComponent{Component: c, Wave: wave}
	params, own := map[string]any{}, map[string]any{}
	for k, v := range choice.Override {
		if slices.Contains(ReservedKeys, k) {
			own[k] = v
		} else {
			params[k] = v
		}
	}
	explicit := r.decodeReserved(c.Name, "override", own)
	before := len(r.errs)
	r.resolveParameters(c, &p, params)
	valid := len(r.errs) == before && !r.invalidParameters
	if !valid && c.hasNameExpressions() {
		return p // the other errors would be consequences
	}
	vars := r.resolveNames(index, &p, &choice)
	var mapped override
	if valid {
		mapped = r.mapParameters(index, &p, vars)
		r.resolveVariables(index, &p, vars)
		p.fields = r.resolveFields(index, c, vars)
		r.resolveRetain(index, &p, vars)
		p.sensitive = p.sensitive || hasSecretFields(p.fields)
	}
	if c.Helm == nil && (explicit.Values != nil || mapped.Values != nil) {
		r.add(c.Name, "override.values",
			"override key \"values\" is for Helm charts, but this component is not a Helm chart")
	}
	p.Images = mergeByName(mapped.Images, explicit.Images, func(i Image) string { return i.Name })
	p.Replicas = mergeByName(mapped.Replicas, explicit.Replicas, func(r Replica) string { return r.Name })
	p.mappedPatches = len(mapped.Patches)
	p.Patches = slices.Concat(c.Patches, mapped.Patches, explicit.Patches)
	r.mergeValues(&p, mapped.Values, explicit.Values)
	return p
}

// decodeReserved decodes the reserved keys of an override strictly.
func (r *resolver) decodeReserved(component, name string, m map[string]any) override {
	var out override
	if len(m) == 0 {
		return out
	}
	var node yaml.Node
	if err := node.Encode(m); err != nil {
		r.add(component, name, "%s cannot be read", name)
		return out
	}
	_, problems := document.Decode("", &node, &out)
	for _, p := range problems {
		r.add(component, document.Join(name, p.Field), "%s: %s", name, p.Message).Suggestion = p.Suggestion
	}
	for i, image := range out.Images {
		if image.Name == "" || image.NewName == "" && image.NewTag == "" && image.Digest == "" {
			r.add(component, name+".images", "%s: images[%d] needs name, and one of newName, newTag and digest",
				name, i)
		}
	}
	for i, replica := range out.Replicas {
		if replica.Name == "" || replica.Count < 0 {
			r.add(component, name+".replicas", "%s: replicas[%d] needs name and a non-negative count", name, i)
		}
	}
	for i := range out.Patches {
		if why := out.Patches[i].invalid(); why != "" {
			r.add(component, name+".patches", "%s: patches[%d] %s", name, i, why)
		}
	}
	return out
}

// invalid returns why a patch cannot be applied; empty for a valid one.
func (p *Patch) invalid() string {
	switch patch := p.Patch.(type) {
	case string:
		if patch != "" {
			return ""
		}
	case map[string]any:
		if len(patch) > 0 {
			return ""
		}
	case []any:
		if len(patch) > 0 {
			return ""
		}
	case nil:
	default:
		return "needs an object, a list or a text as patch"
	}
	return "needs patch"
}

// resolveParameters checks the parameters of a component, and sets them with their defaults.
func (r *resolver) resolveParameters(c *Component, p *ResolvedComponent, params map[string]any) {
	if c.Parameters == nil {
		for _, key := range slices.Sorted(maps.Keys(params)) {
			r.add(c.Name, "override."+key, "override key %q is not known: the component declares no parameters",
				key).Suggestion = problem.Nearest(key, ReservedKeys)
		}
		return
	}
	schema, err := values.Compile(c.Parameters.Schema, values.Closed)
	if err != nil {
		r.add(c.Name, "override", "the schema of the parameters %s", err)
		return
	}
	p.Parameters = schema.Defaults(params)
	for _, v := range schema.Validate(p.Parameters) {
		if v.Unknown != "" && len(v.Path) == 0 {
			v.Suggestion = problem.Nearest(v.Unknown, append(values.Properties(c.Parameters.Schema), ReservedKeys...))
		}
		r.addViolation(c.Name, "override", "override key", v)
	}
}

// mapParameters maps the parameters of a component to an override.
func (r *resolver) mapParameters(index int, p *ResolvedComponent, vars expr.Variables) override {
	c := p.Component
	if c.Parameters == nil || c.Parameters.Map == "" {
		return override{}
	}
	out, err := r.def.expressions[r.def.componentField(index, "parameters.map").path].EvalMap(r.ctx, vars)
	if err != nil {
		r.add(c.Name, "parameters.map", "parameters.map %s", err)
		return override{}
	}
	return r.decodeReserved(c.Name, "parameters.map", r.revealValues(p, out))
}

// mergeByName replaces items of base with items of over that have the same name, and appends the
// others.
func mergeByName[T any](base, over []T, name func(T) string) []T {
	out := slices.Clone(base)
	for _, item := range over {
		at := slices.IndexFunc(out, func(b T) bool { return name(b) == name(item) })
		if at >= 0 {
			out[at] = item
			continue
		}
		out = append(out, item)
	}
	return out
}

// text returns the text of a patch, as in a kustomization. An object gets the names that kustomize
// demands, and does not use where there is a target.
func (p *Patch) text() string {
	patch := p.Patch
	switch own := patch.(type) {
	case string:
		return own
	case map[string]any:
		if p.Target != nil {
			patch = withPlaceholders(own)
		}
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		panic(err) // it was decoded from JSON or YAML
	}
	return string(raw)
}

// withPlaceholders returns a patch with a kind and a name.
func withPlaceholders(patch map[string]any) map[string]any {
	out := maps.Clone(patch)
	for _, field := range []string{"apiVersion", "kind"} {
		if out[field] == nil {
			out[field] = "any"
		}
	}
	metadata, isMap := out["metadata"].(map[string]any)
	if out["metadata"] == nil || isMap && metadata["name"] == nil {
		metadata = maps.Clone(metadata)
		if metadata == nil {
			metadata = map[string]any{}
		}
		metadata["name"] = "any"
		out["metadata"] = metadata
	}
	return out
}

// kustomizeOverride returns the part of an override that changes rendered objects.
func kustomizeOverride(p *ResolvedComponent) kustomize.Override {
	var out kustomize.Override
	for _, i := range p.Images {
		out.Images = append(out.Images,
			types.Image{Name: i.Name, NewName: i.NewName, NewTag: i.NewTag, Digest: i.Digest})
	}
	for _, r := range p.Replicas {
		out.Replicas = append(out.Replicas, types.Replica(r))
	}
	stack := len(p.Component.Patches)
	for i, patch := range p.Patches {
		own := kustomize.Patch{Field: fmt.Sprintf("patches[%d]", i), Text: patch.text()}
		switch {
		case i >= stack+p.mappedPatches:
			own.Field = fmt.Sprintf("override.patches[%d]", i-stack-p.mappedPatches)
		case i >= stack:
			own.Field = fmt.Sprintf("parameters.map: patches[%d]", i-stack)
		}
		if patch.Target != nil {
			own.Target = patch.Target.selector()
		}
		out.Patches = append(out.Patches, own)
	}
	return out
}
