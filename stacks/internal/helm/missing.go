package helm

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/util"

	"github.com/ksctl/gitops/stacks/internal/values"
	"github.com/ksctl/gitops/stacks/problem"
)

// missingDependency is an entry of a chart's dependencies whose chart is not in its folder charts/.
type missingDependency struct {
	spec chart.Dependency
	// of is the subchart that has the entry. It is zero for the chart itself.
	of struct{ name, version string }
	// local is true for a chart elsewhere in the source.
	local bool
	// fetch is the chart to fetch. If err is set, there is none: it is an error to enable the
	// dependency.
	fetch Dependency
	err   error
}

// isOptional returns true if values can disable a dependency.
func isOptional(dep *chart.Dependency) bool { return dep.Condition != "" || len(dep.Tags) > 0 }

// name returns the name of the subchart, which is also the key of its values.
func (m *missingDependency) name() string {
	if m.spec.Alias != "" {
		return m.spec.Alias
	}
	return m.spec.Name
}

func (m *missingDependency) refersTo(d Dependency) bool { return m.of.name == "" && m.fetch == d }

// missingBelow returns the missing dependencies of a chart that becomes a subchart.
func (c *Chart) missingBelow() []missingDependency {
	out := slices.Clone(c.missing)
	for i := range out {
		out[i].of.name, out[i].of.version = c.Name(), c.Version()
	}
	return out
}

// required returns the charts to fetch of dependencies that no values can disable, without
// duplicates.
func required(missing []missingDependency) (out []Dependency) {
	for _, m := range missing {
		if !m.local && !isOptional(&m.spec) && !slices.Contains(out, m.fetch) {
			out = append(out, m.fetch)
		}
	}
	return out
}

// EnabledDependencies returns the dependencies to fetch for vals: the missing ones that conditions
// and tags do not disable. Where only the default values of a missing chart can tell, it is
// enabled. The error has the enabled ones that cannot be fetched.
func (c *Chart) EnabledDependencies(vals map[string]any) ([]Dependency, error) {
	if !slices.ContainsFunc(c.missing, func(m missingDependency) bool { return m.err != nil || isOptional(&m.spec) }) {
		return c.RequiredDependencies(), nil
	}
	whole := copyChart(c.chart)
	if err := checkTables(whole, vals, ""); err != nil {
		return nil, err
	}
	c.addStandIns(whole, "", "")
	if err := util.ProcessDependencies(whole, values.Copy(vals)); err != nil {
		return nil, &problem.Error{File: c.Path, Message: "the chart's dependencies cannot be processed", Err: err}
	}
	enabled := standIns(whole)
	var out []Dependency
	var errs problem.Errors
	for i, m := range c.missing {
		switch {
		case !enabled[i]:
		case m.err != nil:
			errs.Add(m.err)
		case !slices.Contains(out, m.fetch):
			out = append(out, m.fetch)
		}
	}
	return out, errs.Err()
}

// standInType is the chart type of a stand-in for a missing chart. Its annotation of the same name
// is the index in Chart.missing. Helm accepts no chart of that type.
const standInType = "stand-in"

// addStandIns adds a chart for each missing dependency of ch and its subcharts, so that Helm itself
// decides which ones the values enable. Each has a name of its own, with the real one as its alias,
// because entries for the same chart may have different conditions.
func (c *Chart) addStandIns(ch *chart.Chart, name, version string) {
	const anyVersion = "0.0.0"
	for _, sub := range ch.Dependencies() {
		c.addStandIns(sub, sub.Name(), sub.Metadata.Version)
	}
	for i, m := range c.missing {
		if m.of.name != name || m.of.version != version {
			continue
		}
		at := slices.IndexFunc(ch.Metadata.Dependencies, func(d *chart.Dependency) bool {
			return d.Name == m.spec.Name && d.Alias == m.spec.Alias && d.Version == m.spec.Version &&
				d.Condition == m.spec.Condition
		})
		if at < 0 {
			continue // the chart that brings the entry is not used
		}
		index := strconv.Itoa(i)
		standIn := &chart.Chart{Metadata: &chart.Metadata{Name: standInType + index, Version: anyVersion,
			Type: standInType, Annotations: map[string]string{standInType: index}},
			Values: c.conditionValues(name, version, m.name())}
		dep := ch.Metadata.Dependencies[at]
		dep.Name, dep.Version, dep.Alias, dep.ImportValues = standIn.Name(), anyVersion, m.name(), nil
		ch.AddDependency(standIn)
	}
}

// conditionValues returns the default values that a missing chart may have, if it enables whatever
// depends on them. Values of its parent override them.
func (c *Chart) conditionValues(parentName, parentVersion, name string) map[string]any {
	out := map[string]any{}
	for _, m := range c.missing {
		if m.of.name != parentName || m.of.version != parentVersion {
			continue
		}
		for condition := range strings.SplitSeq(strings.TrimSpace(m.spec.Condition), ",") {
			if first, rest, deeper := strings.Cut(condition, "."); deeper && first == name {
				setTrue(out, strings.Split(rest, "."))
			}
		}
	}
	return out
}

func setTrue(vals map[string]any, keys []string) {
	for _, key := range keys[:len(keys)-1] {
		below, ok := vals[key].(map[string]any)
		if !ok {
			below = map[string]any{}
			vals[key] = below
		}
		vals = below
	}
	if last := keys[len(keys)-1]; vals[last] == nil {
		vals[last] = true
	}
}

// standIns returns the indexes of the stand-ins in a chart and its subcharts.
func standIns(ch *chart.Chart) map[int]bool {
	out := map[int]bool{}
	for _, sub := range ch.Dependencies() {
		if index, err := strconv.Atoi(sub.Metadata.Annotations[standInType]); err == nil &&
			sub.Metadata.Type == standInType {
			out[index] = true
			continue
		}
		maps.Copy(out, standIns(sub))
	}
	return out
}
