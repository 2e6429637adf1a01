package helm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	commonutil "helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/util"

	"github.com/ksctl/gitops/stacks/internal/values"
	"github.com/ksctl/gitops/stacks/problem"
)

// CheckValues merges vals with the chart's own values and validates them against the schemas of the
// chart and its enabled subcharts. References to other documents are not fetched: that part of a
// schema is not checked, with a warning.
func (c *Chart) CheckValues(vals map[string]any) (violations []values.Violation, warnings []string, err error) {
	p, err := c.prepare(vals)
	if err != nil {
		return nil, nil, err
	}
	c.checked = p
	var walk func(ch *chart.Chart, vals map[string]any, prefix []string) error
	walk = func(ch *chart.Chart, vals map[string]any, prefix []string) error {
		if len(ch.Schema) > 0 {
			file := path.Join(c.Path, strings.TrimPrefix(ch.ChartFullPath(), p.chart.Name()), "values.schema.json")
			found, remote, err := c.checkSchema(file, ch.Schema, vals)
			if err != nil {
				return err
			}
			for _, url := range remote {
				warnings = append(warnings,
					fmt.Sprintf("%s refers to %s, which is not fetched; that part of the values is not checked", file,
						url))
			}
			for _, v := range found {
				v.Path = slices.Concat(prefix, v.Path)
				violations = append(violations, v)
			}
		}
		for _, sub := range ch.Dependencies() {
			below, _ := vals[sub.Name()].(map[string]any)
			if err := walk(sub, below, append(slices.Clip(prefix), sub.Name())); err != nil {
				return err
			}
		}
		return nil
	}
	err = walk(p.chart, p.coalesced, nil)
	return violations, warnings, err
}

// prepared is a chart with the values of one install. Executing the templates modifies it.
type prepared struct {
	// chart has no subcharts that the values disable.
	chart *chart.Chart
	// json are the given values; coalesced are merged with those of the chart.
	json      []byte
	coalesced common.Values
}

// prepare copies the chart, removes subcharts that vals disable, and merges vals with the values of
// the chart, with numbers as in Helm. It reuses what CheckValues prepared for the same values.
func (c *Chart) prepare(vals map[string]any) (*prepared, error) {
	raw, err := json.Marshal(vals)
	if err != nil {
		return nil, c.errorf("", "the values cannot be encoded as JSON")
	}
	if p := c.checked; p != nil && bytes.Equal(p.json, raw) {
		c.checked = nil
		return p, nil
	}
	floats := map[string]any{}
	if err := json.Unmarshal(raw, &floats); err != nil {
		return nil, c.errorf("", "the values cannot be encoded as JSON")
	}
	p := &prepared{chart: copyChart(c.chart), json: raw}
	if err := checkTables(p.chart, floats, ""); err != nil {
		return nil, err
	}
	if err := util.ProcessDependencies(p.chart, floats); err != nil {
		return nil, &problem.Error{File: c.Path, Message: "the chart's dependencies cannot be processed", Err: err}
	}
	if p.coalesced, err = commonutil.CoalesceValues(p.chart, floats); err != nil {
		return nil, &problem.Error{File: c.Path, Message: "the values cannot be merged with the chart's values",
			Err: err}
	}
	return p, nil
}

// HasSameValues reports whether two values are the same once they are merged with those of the
// chart.
func (c *Chart) HasSameValues(a, b map[string]any) bool {
	first, err := c.prepare(a)
	if err != nil {
		return false
	}
	second, err := c.prepare(b)
	if err != nil {
		return false
	}
	x, errX := json.Marshal(first.coalesced)
	y, errY := json.Marshal(second.coalesced)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// checkTables returns an error if global or the values of a subchart are not a mapping. Helm would
// only log that, together with the value.
func checkTables(ch *chart.Chart, vals map[string]any, prefix string) error {
	names := []string{"global"}
	for _, sub := range ch.Dependencies() {
		names = append(names, sub.Name())
	}
	for _, name := range names {
		v, there := vals[name]
		if _, isTable := v.(map[string]any); there && v != nil && !isTable {
			return problem.Newf("values: %q must be a mapping", prefix+name)
		}
	}
	for _, sub := range ch.Dependencies() {
		if below, ok := vals[sub.Name()].(map[string]any); ok {
			if err := checkTables(sub, below, prefix+sub.Name()+"."); err != nil {
				return err
			}
		}
	}
	return nil
}

// valuesSchema is a compiled values.schema.json. remote are the references to other documents.
type valuesSchema struct {
	schema *values.Schema
	remote []string
}

func (c *Chart) checkSchema(file string, data []byte,
	vals map[string]any) (found []values.Violation, remote []string, err error) {
	var s *valuesSchema
	if known, ok := c.schemas.Load(&data[0]); ok {
		s, _ = known.(*valuesSchema) // the map has no other type
	} else if s, err = compileSchema(file, data); err != nil {
		return nil, nil, err
	} else {
		c.schemas.Store(&data[0], s)
	}
	if vals == nil {
		vals = map[string]any{}
	}
	return s.schema.Validate(vals), s.remote, nil
}

func compileSchema(file string, data []byte) (*valuesSchema, error) {
	doc, err := values.ParseSchema(data)
	if err != nil {
		return nil, problem.Errorf(file, 0, "this is not a JSON schema: %w", err)
	}
	remote := values.DropRemote(doc)
	schema, err := values.Compile(doc, values.AsWritten)
	if err != nil {
		return nil, problem.Errorf(file, 0, "the schema %w", err)
	}
	return &valuesSchema{schema: schema, remote: remote}, nil
}
