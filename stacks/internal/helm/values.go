package helm

import (
	"fmt"
	"path"
	"slices"
	"strings"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/util"

	commonutil "helm.sh/helm/v4/pkg/chart/common/util"

	"github.com/ksctl/gitops/stacks/internal/values"
	"github.com/ksctl/gitops/stacks/problem"
)

// CheckValues merges vals with the chart's own values and validates them against the schemas of the
// chart and its enabled subcharts. References to other documents are not fetched: that part of a
// schema is not checked, with a warning.
func (c *Chart) CheckValues(vals map[string]any) (violations []values.Violation, warnings []string, err error) {
	loaded, floats, err := c.prepare(vals)
	if err != nil {
		return nil, nil, err
	}
	coalesced, err := commonutil.CoalesceValues(loaded, floats)
	if err != nil {
		return nil, nil, &problem.Error{File: c.Path, Message: "the values cannot be merged with the chart's values",
			Err: err}
	}
	var walk func(ch *chart.Chart, vals map[string]any, prefix []string) error
	walk = func(ch *chart.Chart, vals map[string]any, prefix []string) error {
		if len(ch.Schema) > 0 {
			file := path.Join(c.Path, strings.TrimPrefix(ch.ChartFullPath(), loaded.Name()), "values.schema.json")
			found, remote, err := checkSchema(file, ch.Schema, vals)
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
	err = walk(loaded, coalesced, nil)
	return violations, warnings, err
}

// prepare loads the chart, removes subcharts that vals disable, and returns vals with numbers as in
// Helm.
func (c *Chart) prepare(vals map[string]any) (*chart.Chart, map[string]any, error) {
	loaded, err := c.load()
	if err != nil {
		return nil, nil, err
	}
	floats, err := values.Floats(vals)
	if err != nil {
		return nil, nil, c.errorf("", "the values cannot be encoded as JSON")
	}
	if err := checkTables(loaded, floats, ""); err != nil {
		return nil, nil, err
	}
	if err := util.ProcessDependencies(loaded, floats); err != nil {
		return nil, nil, &problem.Error{File: c.Path, Message: "the chart's dependencies cannot be processed", Err: err}
	}
	return loaded, floats, nil
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

func checkSchema(file string, data []byte, vals map[string]any) (found []values.Violation, remote []string, err error) {
	doc, err := values.ParseSchema(data)
	if err != nil {
		return nil, nil, problem.Errorf(file, 0, "this is not a JSON schema: %w", err)
	}
	remote = values.DropRemote(doc)
	schema, err := values.Compile(doc, values.AsWritten)
	if err != nil {
		return nil, nil, problem.Errorf(file, 0, "the schema %w", err)
	}
	if vals == nil {
		vals = map[string]any{}
	}
	return schema.Validate(vals), remote, nil
}
