package stacks

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/helm"
	"github.com/ksctl/gitops/stacks/internal/values"
	"github.com/ksctl/gitops/stacks/problem"
)

// valuesLayer is one source of Helm values.
type valuesLayer struct {
	// name for messages, such as a file, "ConfigMap site, key values.yaml" or "override".
	name   string
	values map[string]any
	// install is true for values that the install sets.
	install bool
}

// originOf returns the layer that set a path of the values: the highest layer that has the path or
// its longest existing prefix. It returns nil if no layer has any.
func originOf(layers []valuesLayer, keys []string) *valuesLayer {
	for ; len(keys) > 0; keys = keys[:len(keys)-1] {
		for i, l := range slices.Backward(layers) {
			if hasPath(l.values, keys) {
				return &layers[i]
			}
		}
	}
	return nil
}

func hasPath(v any, keys []string) bool {
	for _, key := range keys {
		switch at := v.(type) {
		case map[string]any:
			next, ok := at[key]
			if !ok {
				return false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(at) {
				return false
			}
			v = at[i]
		default:
			return false
		}
	}
	return true
}

// mergeValues merges the values of a component, completes its chart, and checks the values.
func (r *resolver) mergeValues(p *ResolvedComponent, mapped, explicit map[string]any) {
	c := p.Component
	inputs := r.valuesInputs(p)
	if c.Helm == nil {
		return
	}
	var layers []valuesLayer
	r.tree.SetComponent(c.Name)
	for _, rel := range c.Helm.ValuesFiles {
		file := path.Join(r.def.dir, rel)
		m, err := values.Read(r.tree, file)
		r.errs.Add(err)
		layers = append(layers, valuesLayer{name: file, values: m})
	}
	layers = append(layers, valuesLayer{name: r.def.file, values: c.Helm.Values})
	layers = append(layers, inputs...)
	layers = append(layers,
		valuesLayer{name: "parameters.map", values: mapped},
		valuesLayer{name: "override", values: explicit, install: true})
	for _, l := range layers {
		p.Values = values.Merge(p.Values, l.values)
	}
	before := len(r.errs)
	r.checkSchema(c, layers)
	if p.chart != nil {
		r.attachDependencies(p)
	}
	if p.chart == nil {
		return
	}
	r.checkChart(p, layers)
	if len(r.errs) == before && c.Schema == nil {
		r.checkKeys(p, layers)
	}
}

// valuesInputs returns the values from ConfigMaps and Secrets for one component.
func (r *resolver) valuesInputs(p *ResolvedComponent) []valuesLayer {
	c := p.Component
	var out []valuesLayer
	var merged map[string]any
	for _, in := range r.choices.Values {
		if in.Component != c.Name {
			continue
		}
		if c.Helm == nil {
			r.add(c.Name, "spec.valuesFrom", "%s has Helm values, but this component is not a Helm chart", in.Source)
			continue
		}
		m, err := parseValues(in, merged)
		for _, e := range problem.Flatten(err) {
			r.add(c.Name, "spec.valuesFrom", "%s", e.Message)
		}
		merged = values.Merge(merged, m)
		p.sensitive = p.sensitive || !in.Public
		out = append(out, valuesLayer{name: in.Source, values: m, install: true})
	}
	return out
}

// parseValues parses a values document, or the value of a target path. before are the values of
// earlier inputs: an index of the path may lead into one of their lists. Errors do not contain the
// content, which may be secret.
func parseValues(in ValuesInput, before map[string]any) (map[string]any, error) {
	if in.TargetPath != "" {
		m, err := helm.SetValue(before, in.TargetPath, string(in.Data))
		if err != nil {
			return nil, problem.Newf("%s: targetPath %q %s", in.Source, in.TargetPath, err)
		}
		return m, nil
	}
	docs, err := document.Parse("", in.Data)
	var m map[string]any
	switch {
	case len(docs) > 1:
		return nil, problem.Newf("%s: must have one YAML document", in.Source)
	case len(docs) == 1:
		m, err = document.Helm.Map("", docs[0].Root)
	}
	if err == nil {
		return m, nil
	}
	line := 0
	for _, e := range problem.Flatten(err) {
		line = e.Line
	}
	return nil, &Error{Message: fmt.Sprintf("%s: line %d: not a YAML mapping with unique keys", in.Source, line),
		Err: err}
}

// checkSchema checks the install's values against the component's own schema.
func (r *resolver) checkSchema(c *Component, layers []valuesLayer) {
	if c.Schema == nil {
		return
	}
	schema, err := values.Compile(c.Schema, values.Closed)
	if err != nil {
		r.add(c.Name, "schema", "the schema of the values %s", err)
		return
	}
	var brought map[string]any
	for _, l := range layers {
		if l.install {
			brought = values.Merge(brought, l.values)
		}
	}
	if len(brought) == 0 {
		return
	}
	for _, v := range schema.Validate(brought) {
		r.addMismatch(c, layers, v)
	}
}

// checkChart checks the values against the schemas of the chart and its subcharts.
func (r *resolver) checkChart(p *ResolvedComponent, layers []valuesLayer) {
	if p.skipSchemaValidation || !p.chart.HasSchemas() {
		return
	}
	violations, warnings, err := p.chart.CheckValues(p.Values)
	r.errs = append(r.errs, errorsOf(p.Component, err)...)
	r.resolved.Warnings = append(r.resolved.Warnings, warnings...)
	for _, v := range violations {
		r.addMismatch(p.Component, layers, v)
	}
}

// addMismatch reports a value that a schema does not allow, with the layer that set the value.
func (r *resolver) addMismatch(c *Component, layers []valuesLayer, v values.Violation) {
	keys := slices.Clone(v.Path)
	if v.Unknown != "" {
		keys = append(keys, v.Unknown)
	}
	from := originOf(layers, keys)
	switch {
	case from != nil && from.name == "override":
		v.Path = append([]string{"values"}, v.Path...)
		r.addViolation(c.Name, "override", "override key", v)
	case from != nil:
		r.addViolation(c.Name, "helm.values", from.name+": value", v)
	default:
		r.addViolation(c.Name, "helm.values", "value", v)
	}
}

// checkKeys reports top-level keys that the chart does not know.
func (r *resolver) checkKeys(p *ResolvedComponent, layers []valuesLayer) {
	known := p.chart.TopLevelKeys()
	for _, l := range layers {
		for _, key := range slices.Sorted(maps.Keys(l.values)) {
			if slices.Contains(known, key) {
				continue
			}
			noun, shown, field := l.name+": value", key, "helm.values"
			if l.name == "override" {
				noun, shown, field = "override key", "values."+key, "override.values."+key
			}
			e := &Error{
				Stack: r.def.Metadata.Name, Component: p.Component.Name, Field: field,
				Message:    fmt.Sprintf("%s %q is not a value of the chart %s", noun, shown, p.chart.Name()),
				Suggestion: problem.Nearest(key, known),
			}
			if l.install && r.choices.Strict {
				r.errs = append(r.errs, e)
				continue
			}
			r.warn("%s", e)
		}
	}
}
