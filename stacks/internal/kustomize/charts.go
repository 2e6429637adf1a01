package kustomize

import (
	"cmp"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/types"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/source"
)

// maxCharts is the maximum number of charts that the kustomizations of one build render.
const maxCharts = 100

// defaultRelease is the name that helm template gives a release without a name.
const defaultRelease = "release-name"

// Values of valuesMerge: what becomes of valuesFile if there is valuesInline.
const (
	overrideValues = "override"
	mergeValues    = "merge"
	replaceValues  = "replace"
)

// chartFields are the fields of a kustomization that render charts.
type chartFields struct {
	HelmGlobals *types.HelmGlobals `json:"helmGlobals"`
	HelmCharts  []types.HelmChart  `json:"helmCharts"`
	// HelmChartInflationGenerator is the deprecated form of the others.
	HelmChartInflationGenerator []types.HelmChartArgs `json:"helmChartInflationGenerator"`
}

// chartFieldNames are the names of the chartFields.
var _, chartFieldNames = document.FieldsOf(reflect.TypeFor[chartFields]())

// chartSet has the charts of one kustomization.
type chartSet struct {
	// dir and file are the folder and the path of the kustomization.
	dir, file string
	// namespace of releases that name none. It may depend on the overlay.
	namespace string
	charts    []*chart
}

// chart is an entry of helmCharts.
type chart struct {
	types.HelmChart
	// field is the entry's path in the kustomization, such as helmCharts[0].
	field string
	line  int
	// dir of the chart, valuesFile and additionalFiles are below the root of the source.
	dir             string
	valuesFile      string
	additionalFiles []string
}

// scanCharts checks the charts of a kustomization, and adds them to the scanner.
func (s *scanner) scanCharts(t *scanTarget, root *yaml.Node) {
	selected := &yaml.Node{Kind: yaml.MappingNode, Line: root.Line}
	for i := 0; i+1 < len(root.Content); i += 2 {
		if slices.Contains(chartFieldNames, root.Content[i].Value) {
			selected.Content = append(selected.Content, root.Content[i], root.Content[i+1])
		}
	}
	if len(selected.Content) == 0 {
		return
	}
	if t.plugins {
		key := selected.Content[0]
		s.fail(t, key, key.Value, "field %q is not allowed in a kustomization of generators, transformers or "+
			"validators: a chart cannot render plugins; write the plugin as a file", key.Value)
		return
	}
	var fields chartFields
	lines, problems := document.Decode(t.file, selected, &fields)
	if s.errs = append(s.errs, problems...); len(problems) > 0 {
		return
	}
	set, home := chartsOf(t, &fields)
	inline := slices.Concat(s.inlineValues(t, root, "helmCharts", "valuesInline"),
		s.inlineValues(t, root, "helmChartInflationGenerator", "valuesLocal"))
	for i, c := range set.charts {
		c.line, c.ValuesInline = lines.Of(c.field), inline[i]
		s.checkChart(t, c, home, lines)
	}
	s.addCharts(t, set)
}

// inlineValues returns the values of a list of charts, in the dialect of Helm.
func (s *scanner) inlineValues(t *scanTarget, root *yaml.Node, list, key string) (out []map[string]any) {
	charts := fieldOf(root, list)
	if charts == nil {
		return nil
	}
	s.forEach(charts, func(n *yaml.Node) {
		var vals map[string]any
		if inline := fieldOf(n, key); inline != nil && inline.Kind == yaml.MappingNode {
			var err error
			vals, err = document.Helm.Map(t.file, inline)
			s.errs.Add(err)
		}
		out = append(out, vals)
	})
	return out
}

// chartsOf returns the charts of a kustomization, and the folder that they are in.
func chartsOf(t *scanTarget, fields *chartFields) (set *chartSet, home string) {
	set = &chartSet{dir: t.dir, file: t.file, namespace: t.namespace}
	deprecated, globals := types.SplitHelmParameters(fields.HelmChartInflationGenerator)
	if fields.HelmGlobals != nil {
		globals = *fields.HelmGlobals
	}
	for i, c := range fields.HelmCharts {
		set.charts = append(set.charts, &chart{HelmChart: c, field: fmt.Sprintf("helmCharts[%d]", i)})
	}
	for i, c := range deprecated {
		set.charts = append(set.charts,
			&chart{HelmChart: c, field: fmt.Sprintf("helmChartInflationGenerator[%d]", i)})
	}
	return set, cmp.Or(globals.ChartHome, types.HelmDefaultHome)
}

// addCharts adds the charts of a kustomization. Several overlays may have it as their base.
func (s *scanner) addCharts(t *scanTarget, set *chartSet) {
	at := &yaml.Node{}
	if len(set.charts) > 0 {
		at.Line = set.charts[0].line
	}
	for _, known := range s.charts {
		if known.dir != set.dir {
			continue
		}
		if known.namespace != set.namespace &&
			slices.ContainsFunc(set.charts, func(c *chart) bool { return c.Namespace == "" }) {
			s.fail(t, at, "helmCharts", "field %q: overlays with the namespaces %q and %q have this kustomization as "+
				"their base; set the namespace of its charts, or make each overlay a component of the stack",
				"helmCharts", known.namespace, set.namespace)
		}
		return
	}
	s.charts = append(s.charts, set)
	count := 0
	for _, known := range s.charts {
		count += len(known.charts)
	}
	if count > maxCharts && count-len(set.charts) <= maxCharts {
		s.fail(t, at, "helmCharts", "field %q: the build renders more than %d charts", "helmCharts", maxCharts)
	}
}

// checkChart checks an entry of helmCharts, and sets its paths. home is the folder of all charts.
func (s *scanner) checkChart(t *scanTarget, c *chart, home string, lines document.Lines) {
	at := func(field string) (string, *yaml.Node) {
		field = document.Join(c.field, field)
		return field, &yaml.Node{Line: lines.Of(field)}
	}
	fail := func(name, format string, args ...any) {
		field, n := at(name)
		s.fail(t, n, field, "field %q %s", field, fmt.Sprintf(format, args...))
	}
	if c.Name == "" {
		fail("name", "is missing")
		return
	}
	legal := []string{"", overrideValues, mergeValues, replaceValues}
	if !slices.Contains(legal, c.ValuesMerge) {
		fail("valuesMerge", "must be %s, not %q", strings.Join(legal[1:], ", "), c.ValuesMerge)
	}
	switch {
	case c.NameTemplate != "" && c.ReleaseName != "":
		fail("nameTemplate", "is set, and so is releaseName; remove one of them")
	case strings.Contains(c.NameTemplate, "{{"):
		fail("nameTemplate", "is a template, which could make another name in each render; set releaseName")
	}
	c.ReleaseName = cmp.Or(c.ReleaseName, c.NameTemplate, defaultRelease)
	s.resolveChart(t, c, home, fail)
	if field, n := at("valuesFile"); c.ValuesFile == "" {
		c.valuesFile = path.Join(c.dir, "values.yaml")
	} else if s.checkPath(t, field, n, c.ValuesFile) {
		c.valuesFile = path.Join(t.dir, c.ValuesFile)
	}
	for i, name := range c.AdditionalValuesFiles {
		if field, n := at(fmt.Sprintf("additionalValuesFiles[%d]", i)); s.checkPath(t, field, n, name) {
			c.additionalFiles = append(c.additionalFiles, path.Join(t.dir, name))
		}
	}
}

// resolveChart sets the folder of a chart. It is the one that kustomize would download the chart
// to.
func (s *scanner) resolveChart(t *scanTarget, c *chart, home string, fail func(name, format string, args ...any)) {
	if c.Repo != "" && c.Version != "" {
		home = path.Join(home, c.Name+"-"+c.Version)
	}
	dir, err := source.Clean(t.dir, path.Join(home, c.Name))
	if err != nil {
		fail("name", "names a chart outside the source: %s", err)
		return
	}
	if c.dir = dir; !s.tree.IsDir(dir) {
		fail("name", "names a chart that is not in the source, and nothing is fetched while rendering: there is no "+
			"folder %s; vendor the chart (helm pull --untar --untardir %s) and commit it", dir, path.Dir(dir))
	}
}
