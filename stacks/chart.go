package stacks

import (
	"strconv"

	"github.com/ksctl/gitops/stacks/internal/helm"
	"github.com/ksctl/gitops/stacks/internal/kustomize"
)

// maxReleaseName is Helm's.
const maxReleaseName = 53

// releaseName of a chart component.
func releaseName(c *Component) string {
	if c.Helm.ReleaseName != "" {
		return c.Helm.ReleaseName
	}
	return c.Name
}

// helm checks what a component says of its chart, and opens it.
func (v *validator) helm(c *Component, at func(string) place) {
	h := c.Helm
	if name := releaseName(c); !releasePattern.MatchString(name) || len(name) > maxReleaseName {
		field := "helm.releaseName"
		if h.ReleaseName == "" {
			field = "name"
		}
		v.add(at(field).must("is the name of the Helm release, which must be a DNS name of at most %d characters, and %q is not", maxReleaseName, name))
	}
	for i, rel := range h.ValuesFiles {
		field := at("helm.valuesFiles[" + strconv.Itoa(i) + "]")
		if file, ok := v.exists(field, rel); ok {
			if _, err := readValues(v.tree, file); err != nil {
				v.addAll(field, err)
			}
		}
	}
	if h.Repository != "" {
		v.repository(c, at)
		return
	}
	if h.Name != "" || h.Digest != "" {
		v.add(at("helm").must("has the name or the digest of a chart in a repository, and no repository"))
		return
	}
	field := at("helm.chart")
	dir, ok := v.exists(field, h.Chart)
	if !ok {
		return
	}
	chart, err := helm.Open(v.tree, dir, v.def.limits)
	if err != nil {
		v.addAll(field, err)
		return
	}
	if c.Version != "" && c.Version != chart.Version() {
		v.add(at("version").must("is %s, and the chart %s in the source is %s", c.Version, dir, chart.Version()))
	}
	v.dependencies(chart, field)
	if v.def.charts == nil {
		v.def.charts = map[string]*helm.Chart{}
	}
	v.def.charts[c.Name] = chart
}

// kustomize checks the kustomization of a component without building it.
func (v *validator) kustomize(c *Component, at func(string) place) {
	field := at("kustomize.path")
	dir, ok := v.exists(field, c.Kustomize.Path)
	if !ok {
		return
	}
	if !v.tree.IsDir(dir) {
		v.add(field.must("names %s, which is a file; a folder with a kustomization is expected", dir))
		return
	}
	if err := kustomize.Scan(v.tree, dir); err != nil {
		v.addAll(field, err)
	}
}

// openChart finds the chart of a component and its exact version.
func (r *resolver) openChart(p *PlannedComponent, choice *ComponentChoice) {
	if p.Component.Helm.Repository != "" {
		r.openFetched(p, choice)
		return
	}
	pinned := choice.Version
	if choice.Digest != "" {
		r.add(p.Component.Name, "digest", "a digest is wanted, and the chart is not of a repository but in the source")
	}
	p.chart = r.def.charts[p.Component.Name]
	have := p.chart.Version()
	if pinned != "" && pinned != have {
		r.add(p.Component.Name, "version", "version %s is wanted, and the chart in the source is %s", pinned, have)
	}
	p.Version = have
	r.takeDependencies(p)
}
