package stacks

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/internal/values"
	"github.com/ksctl/gitops/stacks/problem"
)

// layer is one source of Helm values.
type layer struct {
	// name for messages: a file, ConfigMap site, key values.yaml, or the override.
	name   string
	values map[string]any
	// install is true for what the install brings.
	install bool
}

// blame finds the layer that a path of values came from: the highest that has it.
func blame(layers []layer, keys []string) *layer {
	for ; ; keys = keys[:len(keys)-1] {
		for i := len(layers) - 1; i >= 0; i-- {
			if has(layers[i].values, keys) && len(keys) > 0 {
				return &layers[i]
			}
		}
		if len(keys) == 0 {
			return nil
		}
	}
}

func has(v any, keys []string) bool {
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

// helmValues lays the values of a component over each other and checks them.
func (r *resolver) helmValues(p *PlannedComponent, mapped, explicit map[string]any) {
	c := p.Component
	inputs := r.inputs(c)
	if c.Helm == nil {
		return
	}
	var layers []layer
	r.tree.For(c.Name)
	for _, rel := range c.Helm.ValuesFiles {
		file := path.Join(r.def.dir, rel)
		m, err := readValues(r.tree, file)
		r.errs = append(r.errs, problem.All(err)...)
		layers = append(layers, layer{name: file, values: m})
	}
	layers = append(layers, layer{name: r.def.file, values: c.Helm.Values})
	layers = append(layers, inputs...)
	layers = append(layers,
		layer{name: "the map of the parameters", values: mapped},
		layer{name: "override", values: explicit, install: true})
	for _, l := range layers {
		p.Values = values.Merge(p.Values, l.values)
	}
	before := len(r.errs)
	r.checkSchema(c, layers)
	if p.chart == nil {
		return
	}
	r.checkChart(p, layers)
	if len(r.errs) == before && c.Schema == nil {
		r.checkKeys(p, layers)
	}
}

// inputs are the values from ConfigMaps and Secrets for one component.
func (r *resolver) inputs(c *Component) []layer {
	var out []layer
	for _, in := range r.choices.Values {
		if in.Component != c.Name {
			continue
		}
		if c.Helm == nil {
			r.add(c.Name, "spec.valuesFrom", "%s has values for charts, and this component is not one", in.Source)
			continue
		}
		m, err := parseValues(in)
		for _, e := range problem.All(err) {
			r.add(c.Name, "spec.valuesFrom", "%s", e.Message)
		}
		out = append(out, layer{name: in.Source, values: m, install: true})
	}
	return out
}

// parseValues reads a values document. What it says is not repeated: it may be secret.
func parseValues(in ValuesInput) (map[string]any, error) {
	docs, err := document.Parse("", in.Data)
	if err == nil && len(docs) == 0 {
		return nil, nil
	}
	if err == nil && len(docs) > 1 {
		return nil, &Error{Message: in.Source + ": one document is expected"}
	}
	if err == nil {
		var m map[string]any
		if m, err = document.Map("", docs[0].Root); err == nil {
			return m, nil
		}
	}
	line := 0
	for _, e := range problem.All(err) {
		line = e.Line
	}
	return nil, &Error{Message: fmt.Sprintf("%s: line %d: this is not a YAML mapping with unique keys", in.Source, line), Err: err}
}

// checkSchema checks what the install brings against the component's own schema.
func (r *resolver) checkSchema(c *Component, layers []layer) {
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
		r.mismatch(c, layers, v)
	}
}

// checkChart checks the values against the schemas of the chart and its subcharts.
func (r *resolver) checkChart(p *PlannedComponent, layers []layer) {
	if !p.chart.HasSchemas() {
		return
	}
	mismatches, warnings, err := p.chart.Check(p.Values)
	for _, e := range problem.All(err) {
		own := *e
		own.Component = p.Component.Name
		r.errs = append(r.errs, &own)
	}
	r.plan.Warnings = append(r.plan.Warnings, warnings...)
	for _, m := range mismatches {
		r.mismatch(p.Component, layers, m.Violation)
	}
}

// mismatch reports values that a schema doesn't allow, where they were written.
func (r *resolver) mismatch(c *Component, layers []layer, v values.Violation) {
	keys := slices.Clone(v.Path)
	if v.Unknown != "" {
		keys = append(keys, v.Unknown)
	}
	from := blame(layers, keys)
	switch {
	case from != nil && from.name == "override":
		v.Path = append([]string{"values"}, v.Path...)
		r.violation(c.Name, "override", "override key", v)
	case from != nil:
		r.violation(c.Name, "helm.values", from.name+": value", v)
	default:
		r.violation(c.Name, "helm.values", "value", v)
	}
}

// checkKeys finds top-level keys that the chart knows nothing of.
func (r *resolver) checkKeys(p *PlannedComponent, layers []layer) {
	known := p.chart.TopLevel()
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
				Message:    fmt.Sprintf("%s %q is not one of the chart %s", noun, shown, p.chart.Name()),
				Suggestion: problem.Nearest(key, known),
			}
			if l.install && r.choices.Strict {
				r.errs = append(r.errs, e)
				continue
			}
			r.plan.Warnings = append(r.plan.Warnings, e.Error())
		}
	}
}

func readValues(tree *source.Tree, file string) (map[string]any, error) {
	data, err := tree.Read(file, source.MaxFile)
	if err != nil {
		return nil, err
	}
	docs, err := document.Parse(file, data)
	if err != nil || len(docs) == 0 {
		return nil, err
	}
	if len(docs) > 1 {
		return nil, &problem.Error{File: file, Line: docs[1].Line, Message: "a values file holds one document, and this is another"}
	}
	return document.Map(file, docs[0].Root)
}
