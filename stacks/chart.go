package stacks

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/ksctl/gitops/stacks/internal/kustomize"
	"github.com/ksctl/gitops/stacks/internal/values"
)

// maxReleaseName is Helm's limit for release names.
const maxReleaseName = 53

func isReleaseName(name string) bool {
	return releasePattern.MatchString(name) && len(name) <= maxReleaseName
}

func releaseNameRule(name string) string {
	if isReleaseName(name) {
		return ""
	}
	return fmt.Sprintf("is the Helm release name, which must be a DNS name of at most %d characters, not %q",
		maxReleaseName, name)
}

// checkHelm checks the chart settings of a component, and opens a chart in the source.
func (v *validator) checkHelm(c *Component, x *expressions, at func(string) fieldRef) {
	h := c.Helm
	x.checkText(at("helm.releaseName"), &h.ReleaseName, releaseNameRule)
	if why := releaseNameRule(c.Name); why != "" && !h.ReleaseName.isSet() {
		v.fail(at("name"), "%s", why)
	}
	v.checkHelmPolicies(h, at)
	for i, rel := range h.ValuesFiles {
		field := at("helm.valuesFiles[" + strconv.Itoa(i) + "]")
		if file, ok := v.checkPath(field, rel); ok {
			_, err := values.Read(v.tree, file)
			v.addAll(field, err)
		}
	}
	if h.Repository != "" {
		v.checkRepositoryChart(c, x, at)
		return
	}
	x.checkText(at("version"), &c.Version, anyText)
	if h.Name.isSet() || h.Digest != "" {
		v.fail(at("helm"), "has name or digest, which are for a chart in a repository, but no repository")
		return
	}
	field := at("helm.chart")
	dir, ok := v.checkPath(field, h.Chart)
	if !ok {
		return
	}
	chart, err := v.def.loader.Open(v.tree, dir)
	if err != nil {
		v.addAll(field, err)
		return
	}
	if text := c.Version.Text; text != "" && text != chart.Version() {
		v.fail(at("version"), "is %s, but the chart %s in the source has version %s", text, dir, chart.Version())
	}
	v.checkDependencies(chart, field)
	v.def.charts[c.Name] = chart
}

// checkKustomize checks the kustomization of a component without building it.
func (v *validator) checkKustomize(c *Component, at func(string) fieldRef) {
	field := at("kustomize.path")
	dir, ok := v.checkPath(field, c.Kustomize.Path)
	if !ok {
		return
	}
	if !v.tree.IsDir(dir) {
		v.fail(field, "names %s, which is a file; a folder with a kustomization is expected", dir)
		return
	}
	v.addAll(field, kustomize.Scan(v.tree, dir))
}

// openChart sets the chart of a component and its exact version. attachDependencies completes the
// chart when the values are known. version is that of the stack.
func (r *resolver) openChart(p *ResolvedComponent, choice *ComponentChoice, name, version string) {
	if p.Component.Helm.Repository != "" {
		r.openFetched(p, choice, name, version)
		return
	}
	pinned := cmp.Or(choice.Version, version)
	if choice.Digest != "" {
		r.add(p.Component.Name, "digest", "digest is set, but the chart is in the source and not in a repository")
	}
	p.chart = r.def.charts[p.Component.Name]
	have := p.chart.Version()
	if pinned != "" && pinned != have {
		r.add(p.Component.Name, "version", "version %s is requested, but the chart in the source has version %s",
			pinned, have)
	}
	p.Version = have
}
