package stacks

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/ksctl/gitops/stacks/generated"
	"github.com/ksctl/gitops/stacks/internal/helm"
	"github.com/ksctl/gitops/stacks/internal/kustomize"
	"github.com/ksctl/gitops/stacks/internal/manifest"
	"github.com/ksctl/gitops/stacks/internal/values"
	"github.com/ksctl/gitops/stacks/problem"
)

// renderRelease renders a chart of a kustomization. Its objects cannot keep generated values: the
// transformers of the kustomization may change their names.
func (r *renderRun) renderRelease(p *ResolvedComponent, release kustomize.Release) ([]*manifest.Object, error) {
	c := p.Component
	chart, err := r.openRelease(c, release)
	if err != nil || r.discoveryPass() {
		return nil, err
	}
	rendered, err := chart.Render(r.ctx, helm.Options{
		Release: release.Name, Namespace: cmp.Or(release.Namespace, p.Namespace), Values: release.Values,
		KubeVersion:  cmp.Or(release.KubeVersion, r.req.Capabilities.KubeVersion),
		APIVersions:  slices.Concat(r.req.Capabilities.APIVersions, release.APIVersions),
		WithoutHooks: true, WithoutCRDs: !release.IncludeCRDs,
		Generation: helm.Generation{Stored: generated.NewValues([]byte{}), RefuseRandom: true},
	})
	r.warn(c, rendered.Warnings)
	if chart.ReadsCluster(release.Values) {
		r.readsCluster[c.Name] = true
	}
	if located, ok := errors.AsType[*problem.Error](err); ok && located.File == "" {
		located.File, located.Line = release.File, release.Line
	}
	return rendered.Objects, err
}

// openRelease opens the chart of a release, and checks the name and the values of the release.
func (r *renderRun) openRelease(c *Component, release kustomize.Release) (*helm.Chart, error) {
	at := func(format string, args ...any) *Error {
		return &Error{File: release.File, Line: release.Line, Field: "helmCharts",
			Message: fmt.Sprintf("chart %s: "+format, append([]any{release.Chart}, args...)...)}
	}
	if !isReleaseName(release.Name) {
		return nil, at("releaseName must be a DNS name of at most %d characters, not %q", maxReleaseName, release.Name)
	}
	chart, err := r.def.loader.Open(r.tree, release.Chart)
	if err != nil {
		return nil, err
	}
	missing, err := chart.EnabledDependencies(release.Values)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		return nil, at("its dependency %s %s is not in its folder charts/, and nothing is fetched for a "+
			"kustomization; vendor it (helm dependency build) and commit it", missing[0].Name, missing[0].Version)
	}
	if !chart.HasSchemas() {
		return chart, nil
	}
	violations, warnings, err := chart.CheckValues(release.Values)
	if err != nil {
		return nil, err
	}
	r.warn(c, warnings)
	var errs Errors
	for _, v := range violations {
		if v.Unknown != "" {
			e := at("value %q is not in its schema", values.Dotted(append(slices.Clone(v.Path), v.Unknown)))
			e.Suggestion = v.Suggestion
			errs = append(errs, e)
			continue
		}
		errs = append(errs, at("value %s", v))
	}
	return chart, errs.Err()
}
