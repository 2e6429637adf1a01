package stacks

import (
	"fmt"
	"strings"

	"github.com/ksctl/gitops/stacks/internal/helm"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/problem"
)

// MissingChartsError is the error of a render that needs charts that are not in Request.Charts:
// dependencies of charts in the source that the values enable. RequiredCharts does not return them,
// because it does not evaluate values.
type MissingChartsError struct {
	Stack  string     `json:"stack,omitempty"`
	Charts []ChartRef `json:"charts"`
	// Trace is that of a Result.
	Trace map[string]string `json:"trace,omitempty"`
}

// Error lists the charts.
func (e *MissingChartsError) Error() string {
	var lines []string
	for _, ref := range e.Charts {
		lines = append(lines, fmt.Sprintf("stack %q: component %q: %s was not fetched", e.Stack, ref.Component, ref))
	}
	return strings.Join(lines, "\n")
}

// requiredDependencies returns the charts to fetch for a component whose chart is in the source,
// whatever the values are. It returns none if the chart or a dependency is invalid: Render reports
// that.
func requiredDependencies(finder *helm.DependencyFinder, def *Definition, c *Component) []ChartRef {
	dir, err := source.Clean(def.dir, c.Helm.Chart)
	if err != nil || c.Helm.Chart == "" {
		return nil
	}
	needs, err := finder.Required(dir)
	if err != nil {
		return nil // Render reports it
	}
	var out []ChartRef
	for _, d := range needs {
		if validateDependency(d) != nil {
			return nil
		}
		out = append(out, dependencyRef(c, dir, d))
	}
	return out
}

func dependencyRef(c *Component, dir string, d helm.Dependency) ChartRef {
	return ChartRef{Component: c.Name, DependencyOf: dir, Repository: d.Repository, Name: d.Name, Version: d.Version}
}

// validateDependency returns an error if a dependency cannot be fetched. The error does not contain
// the repository URL, which may contain a password.
func validateDependency(d helm.Dependency) error {
	if err := validateRepositoryURL(d.Repository); err != nil {
		return fmt.Errorf("its repository URL %w", err)
	}
	switch {
	case !chartNamePattern.MatchString(d.Name):
		return fmt.Errorf("its name must be a chart name (letters, digits, dashes, dots and underscores), not %q",
			d.Name)
	case !exactVersion(d.Version):
		return fmt.Errorf("its version must be one exact version such as 1.4.0, not %q", d.Version)
	}
	return nil
}

// dependencyAdvice is a message about a dependency that cannot be fetched.
const dependencyAdvice = "names %s, whose dependency %s cannot be fetched: %s; correct Chart.yaml and run helm " +
	"dependency update, or vendor it (helm dependency build) and commit it"

// checkDependencies checks that the missing dependencies of a chart in the source can be fetched.
// Those that values can disable are checked when the values are known.
func (v *validator) checkDependencies(chart *helm.Chart, field fieldRef) {
	if v.fetches += len(chart.RequiredDependencies()); v.fetches > helm.MaxDependencies {
		v.fail(field, "names %s, with which the charts in the source have more than %d dependencies to fetch; vendor "+
			"some of them (helm dependency build) and commit them", chart.Path, helm.MaxDependencies)
		v.fetches = 0
		return
	}
	for _, d := range chart.RequiredDependencies() {
		if err := validateDependency(d); err != nil {
			v.fail(field, dependencyAdvice, chart.Path, d.Name, err)
		}
	}
}

// findFetched returns the chart that was fetched for a reference, with any digest, or nil.
func (r *resolver) findFetched(want ChartRef) *FetchedChart {
	want.Digest = ""
	for i, f := range r.fetched {
		if f.Digest = ""; f.ChartRef == want {
			return &r.fetched[i]
		}
	}
	return nil
}

// attachDependencies adds the fetched dependencies that the values enable to the chart of a
// component. If one was not fetched, it skips the chart with a warning under Request.WithoutCharts,
// and fails otherwise.
func (r *resolver) attachDependencies(p *ResolvedComponent) {
	needs, err := p.chart.EnabledDependencies(p.Values)
	if r.fetches += len(needs); err == nil && r.fetches > helm.MaxDependencies {
		err = problem.Newf("with the chart %s, the charts in the source have more than %d dependencies to fetch; "+
			"vendor some of them (helm dependency build) and commit them", p.chart.Path, helm.MaxDependencies)
	}
	if len(needs) == 0 && err == nil {
		return
	}
	c, chart := p.Component, p.chart
	p.chart = nil
	if err != nil {
		r.errs = append(r.errs, errorsOf(c, err)...)
		return
	}
	var fetched []helm.FetchedDependency
	for _, d := range needs {
		if err := validateDependency(d); err != nil {
			r.add(c.Name, "helm.chart", dependencyAdvice, chart.Path, d.Name, err)
			continue
		}
		want := dependencyRef(c, chart.Path, d)
		f := r.findFetched(want)
		switch {
		case f != nil:
			fetched = append(fetched, helm.FetchedDependency{Dependency: d, Root: f.Root})
			p.dependencies = append(p.dependencies, f.ChartRef)
		case r.withoutCharts:
			r.warn("component %q: %s is not fetched here, so neither %s nor its values are checked", c.Name, want,
				chart.Path)
		default:
			r.missing = append(r.missing, want)
		}
	}
	if len(fetched) < len(needs) {
		return
	}
	whole, err := chart.WithDependencies(fetched)
	if err == nil {
		_, err = whole.EnabledDependencies(p.Values) // a fetched chart may lack a dependency of its own
	}
	if err != nil {
		r.errs = append(r.errs, errorsOf(c, err)...)
		return
	}
	p.chart = whole
}
