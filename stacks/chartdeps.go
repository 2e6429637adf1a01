package stacks

import (
	"fmt"
	"slices"

	"github.com/ksctl/gitops/stacks/internal/helm"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/problem"
)

// dependencies are the charts of repositories that the chart of a component needs,
// which is in the source; none when something is wrong with it.
func dependencies(look *helm.Look, def *Definition, c *Component) []ChartRef {
	dir, err := source.Clean(def.dir, c.Helm.Chart)
	if err != nil || c.Helm.Chart == "" {
		return nil
	}
	needs, err := look.Needed(dir)
	if err != nil {
		return nil // Render says so
	}
	var out []ChartRef
	for _, d := range needs {
		if checkDependency(d) != nil {
			return nil
		}
		out = append(out, dependencyRef(c, dir, d))
	}
	return out
}

func dependencyRef(c *Component, dir string, d helm.Dependency) ChartRef {
	return ChartRef{Component: c.Name, DependencyOf: dir, Repository: d.Repository, Name: d.Name, Version: d.Version}
}

// checkDependency says why a dependency can't be fetched. An address is not repeated:
// there may be a password in it.
func checkDependency(d helm.Dependency) error {
	if err := checkRepository(d.Repository); err != nil {
		return fmt.Errorf("the address of its repository %w", err)
	}
	switch {
	case !chartNamePattern.MatchString(d.Name):
		return fmt.Errorf("its name must be that of a chart (letters, digits, dashes, dots and underscores), not %q", d.Name)
	case !exactVersion(d.Version):
		return fmt.Errorf("its version must be one exact version such as 1.4.0, not %q", d.Version)
	}
	return nil
}

// dependencies checks that what a chart in the source needs can be fetched.
func (v *validator) dependencies(chart *helm.Chart, field place) {
	if v.fetches += len(chart.Needs()); v.fetches > helm.MaxDependencies {
		v.add(field.must("names %s, with whose dependencies more than %d charts would have to be fetched that charts in the source depend on; vendor some (helm dependency build) and commit them", chart.Path, helm.MaxDependencies))
		v.fetches = 0
		return
	}
	for _, d := range chart.Needs() {
		if err := checkDependency(d); err != nil {
			v.add(field.must("names %s, whose dependency %s can't be fetched: %s; correct Chart.yaml and run helm dependency update, or vendor it (helm dependency build) and commit it", chart.Path, d.Name, err))
		}
	}
}

// takeDependencies gives the chart of a component what was fetched for it. Without
// that, a render that may leave charts out leaves this one out.
func (r *resolver) takeDependencies(p *PlannedComponent) {
	needs := p.chart.Needs()
	if len(needs) == 0 {
		return
	}
	c, chart := p.Component, p.chart
	p.chart = nil
	var fetched []helm.Fetched
	for _, d := range needs {
		want := dependencyRef(c, chart.Path, d)
		at := slices.IndexFunc(r.fetched, func(f FetchedChart) bool {
			have := f.ChartRef
			have.Digest = ""
			return have == want
		})
		switch {
		case at >= 0:
			fetched = append(fetched, helm.Fetched{Dependency: d, Root: r.fetched[at].Root})
			p.dependencies = append(p.dependencies, r.fetched[at].ChartRef)
		case r.withoutCharts:
			r.plan.Warnings = append(r.plan.Warnings, fmt.Sprintf("component %q: %s is not fetched here, so neither %s nor its values are checked", c.Name, want, chart.Path))
		default:
			r.add(c.Name, "helm.chart", "%s was not fetched", want)
		}
	}
	if len(fetched) < len(needs) {
		return
	}
	whole, err := chart.With(fetched)
	for _, e := range problem.All(err) {
		own := *e
		own.Component = c.Name
		r.errs = append(r.errs, &own)
	}
	p.chart = whole
}
