package stacks

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/ksctl/gitops/stacks/internal/helm"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/problem"
)

// ChartRef names one chart of a repository, exactly.
type ChartRef struct {
	// Component that is rendered from it.
	Component string `json:"component"`
	// DependencyOf is the path of the chart in the source that depends on it and does
	// not bring it; empty when the component names it.
	DependencyOf string `json:"dependencyOf,omitempty"`
	// Repository as the stack, or Chart.yaml, writes it: https://… with an index.yaml, or oci://….
	Repository string `json:"repository"`
	Name       string `json:"name"`
	Version    string `json:"version"`
	// Digest of the archive, sha256:…. In the wish of a stack it may be that of the
	// manifest in an OCI registry as well; empty: whatever the repository has.
	Digest string `json:"digest,omitempty"`
}

// String is how a chart is named in messages.
func (r ChartRef) String() string {
	if r.DependencyOf != "" {
		return fmt.Sprintf("chart %s %s of %s (which %s depends on)", r.Name, r.Version, r.Repository, r.DependencyOf)
	}
	return fmt.Sprintf("chart %s %s of %s", r.Name, r.Version, r.Repository)
}

// FetchedChart is a chart of a repository that was fetched for a render. Its Digest
// is that of the archive.
type FetchedChart struct {
	ChartRef
	// Root is the folder that the archive is unpacked in.
	Root string `json:"root"`
}

var (
	chartNamePattern = regexp.MustCompile(`^[A-Za-z0-9]([-._A-Za-z0-9]{0,126}[A-Za-z0-9])?$`)
	digestPattern    = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// maxRepository bounds the address of a repository.
const maxRepository = 1024

// Charts are the charts of repositories that a render of req needs: those that its
// components name, and those that charts in the source depend on and do not bring.
// They are fetched beforehand, into req.Charts. What is wrong with the stack is Render's to say; a
// component that is wrong needs no chart.
func Charts(req Request) ([]ChartRef, error) {
	tree, err := source.Open(req.Root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tree.Close() }()
	file, err := find(tree, req.Path, req.Stack)
	if err != nil {
		return nil, nil //nolint:nilerr // Render says so
	}
	data, err := tree.Read(file, maxStackFile)
	if err != nil {
		return nil, nil //nolint:nilerr // Render says so
	}
	def, err := parseDefinition(file, data)
	if err != nil {
		return nil, nil //nolint:nilerr // Render says so
	}
	r, look := &resolver{def: def, choices: req.Choices}, helm.NewLook(tree, helm.Limits(req.ChartLimits))
	var out []ChartRef
	needed := 0
	for i := range def.Spec.Components {
		c := &def.Spec.Components[i]
		choice := r.choice(c.Name)
		if c.Helm == nil || choice.Enabled != nil && !*choice.Enabled {
			continue
		}
		if c.Helm.Repository == "" {
			more := dependencies(look, def, c)
			if needed += len(more); needed > helm.MaxDependencies {
				return nil, nil // Render says so
			}
			out = append(out, more...)
			continue
		}
		ref := wantedChart(c, &choice)
		if c.Helm.Chart == "" && checkRepository(ref.Repository) == nil && chartNamePattern.MatchString(ref.Name) && exactVersion(ref.Version) && validPin(ref.Digest) {
			out = append(out, ref)
		}
	}
	return out, nil
}

// wantedChart is the chart of a component as an install wants it. The stack's digest
// is that of the stack's version.
func wantedChart(c *Component, choice *ComponentChoice) ChartRef {
	ref := ChartRef{Component: c.Name, Repository: c.Helm.Repository, Name: c.Helm.Name, Version: c.Version, Digest: c.Helm.Digest}
	if choice.Version != "" && choice.Version != c.Version {
		ref.Version, ref.Digest = choice.Version, ""
	}
	if choice.Digest != "" {
		ref.Digest = choice.Digest
	}
	return ref
}

// exactVersion is true for one version, never for a range. Some charts write a v before it.
func exactVersion(s string) bool {
	_, err := semver.StrictNewVersion(strings.TrimPrefix(s, "v"))
	return err == nil
}

func validPin(digest string) bool { return digest == "" || digestPattern.MatchString(digest) }

// checkRepository says what is wrong with the address of a repository.
func checkRepository(s string) error {
	if len(s) > maxRepository {
		return fmt.Errorf("has %d characters; %d are allowed", len(s), maxRepository)
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		return fmt.Errorf("must be an address such as https://charts.example.com or oci://registry.example.com/charts")
	case u.Scheme != "https" && u.Scheme != "oci":
		return fmt.Errorf("must begin with https:// or oci://, not %s://", u.Scheme)
	case u.User != nil:
		// Not repeated: it is a password.
		return fmt.Errorf("must not hold a user or a password; an install names a Secret with them in spec.charts")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return fmt.Errorf("must not have a query or a fragment")
	}
	return nil
}

// repository checks what a component says of a chart in a repository.
func (v *validator) repository(c *Component, at func(string) place) {
	h := c.Helm
	if h.Chart != "" {
		v.add(at("helm").must("has chart, which is in the source, and repository: one of them is expected"))
		return
	}
	if err := checkRepository(h.Repository); err != nil {
		v.add(at("helm.repository").must("%s", err))
	}
	switch {
	case h.Name == "":
		v.add(at("helm.name").must("is required: it is the name of the chart in the repository"))
	case !chartNamePattern.MatchString(h.Name):
		v.add(at("helm.name").must("must be the name of a chart (letters, digits, dashes, dots and underscores), not %q", h.Name))
	}
	if !validPin(h.Digest) {
		v.add(at("helm.digest").must("must be sha256: and 64 hexadecimal digits in lower case, not %q", h.Digest))
	}
	switch {
	case c.Version == "":
		v.add(at("version").must("is required: which version of the chart to take from the repository"))
	case !exactVersion(c.Version):
		v.add(at("version").must("must be one exact version of the chart such as 1.4.0, not %q", c.Version))
	}
}

// openFetched opens the chart that was fetched for a component. Without it a render
// that may leave charts out leaves this one out.
func (r *resolver) openFetched(p *PlannedComponent, choice *ComponentChoice) {
	c := p.Component
	want := wantedChart(c, choice)
	p.Version = want.Version
	switch {
	case !exactVersion(want.Version):
		r.add(c.Name, "version", "version %q is wanted; one exact version of the chart is expected", want.Version)
		return
	case !validPin(want.Digest):
		r.add(c.Name, "digest", "digest %q is wanted; sha256: and 64 hexadecimal digits are expected", want.Digest)
		return
	case want.Digest == "" && c.Helm.Digest != "":
		r.plan.Warnings = append(r.plan.Warnings, (&Error{Stack: r.def.Metadata.Name, Component: c.Name, Field: "version",
			Message: fmt.Sprintf("version %s of the chart is wanted, and the stack's digest is that of %s: whatever the repository has is taken; give the digest beside the version", want.Version, c.Version)}).Error())
	}
	at := slices.IndexFunc(r.fetched, func(f FetchedChart) bool {
		return f.Component == c.Name && f.DependencyOf == "" && f.Repository == want.Repository && f.Name == want.Name && f.Version == want.Version
	})
	if at < 0 {
		if r.withoutCharts {
			r.plan.Warnings = append(r.plan.Warnings, fmt.Sprintf("component %q: %s is not fetched here, so neither it nor its values are checked", c.Name, want))
			return
		}
		r.add(c.Name, "helm.repository", "%s was not fetched", want)
		return
	}
	f := &r.fetched[at]
	chart, err := helm.OpenFetched(f.Root, want.Name+"-"+want.Version, r.def.limits)
	if err != nil {
		for _, e := range problem.All(err) {
			own := *e
			own.Component = c.Name
			r.errs = append(r.errs, &own)
		}
		return
	}
	if chart.Name() != want.Name || chart.Version() != want.Version {
		r.add(c.Name, "helm.repository", "the repository %s gives the chart %s %s for %s %s", want.Repository, chart.Name(), chart.Version(), want.Name, want.Version)
		return
	}
	p.chart, p.fetched = chart, &f.ChartRef
}
