package stacks

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/ksctl/gitops/stacks/internal/helm"
	"github.com/ksctl/gitops/stacks/internal/source"
)

// ChartRef identifies one version of a chart in a repository.
type ChartRef struct {
	// Component that renders the chart.
	Component string `json:"component"`
	// DependencyOf is the path of the chart in the source that depends on this chart and does not
	// vendor it. Empty if the component itself names the chart.
	DependencyOf string `json:"dependencyOf,omitempty"`
	// Repository as written in the stack or in Chart.yaml: https://… with an index.yaml, or
	// oci://….
	Repository string `json:"repository"`
	Name       string `json:"name"`
	Version    string `json:"version"`
	// Digest of the archive, sha256:…. In a stack or install it may also be the digest of the
	// manifest in an OCI registry. Empty accepts any archive of that version.
	Digest string `json:"digest,omitempty"`
}

// String describes the chart for messages.
func (r ChartRef) String() string {
	if r.DependencyOf != "" {
		return fmt.Sprintf("chart %s %s of %s (which %s depends on)", r.Name, r.Version, r.Repository, r.DependencyOf)
	}
	return fmt.Sprintf("chart %s %s of %s", r.Name, r.Version, r.Repository)
}

// FetchedChart is a chart from a repository that was fetched for a render. Its Digest is the digest
// of the archive.
type FetchedChart struct {
	ChartRef
	// Root is the folder with the unpacked archive.
	Root string `json:"root"`
}

var (
	chartNamePattern = regexp.MustCompile(`^[A-Za-z0-9]([-._A-Za-z0-9]{0,126}[A-Za-z0-9])?$`)
	digestPattern    = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// maxRepositoryURL is the maximum length of a repository URL in bytes.
const maxRepositoryURL = 1024

// RequiredCharts returns the charts from repositories that a render of req needs, whatever the
// values are: charts that its components name, and dependencies that charts in the source do not
// vendor. The caller fetches them into req.Charts before Render, which returns a
// *MissingChartsError for dependencies that conditions and tags enable, and for charts whose name
// or version is an expression. RequiredCharts skips invalid stacks and components: Render reports
// their errors.
func RequiredCharts(req Request) ([]ChartRef, error) {
	tree, err := source.Open(req.Root)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	file, err := findFile(tree, req.Path, req.Stack)
	if err != nil {
		return nil, nil //nolint:nilerr // Render reports the error
	}
	data, err := tree.Read(file, maxStackFile)
	if err != nil {
		return nil, nil //nolint:nilerr // Render reports the error
	}
	def, err := parseDefinition(file, data)
	if err != nil {
		return nil, nil //nolint:nilerr // Render reports the error
	}
	finder := helm.NewDependencyFinder(tree, helm.Limits(req.ChartLimits))
	var out []ChartRef
	needed := 0
	for i := range def.Spec.Components {
		c := &def.Spec.Components[i]
		choice := req.Choices.forComponent(c.Name)
		if c.Helm == nil || choice.Enabled != nil && !*choice.Enabled {
			continue
		}
		if c.Helm.Repository == "" {
			more := requiredDependencies(finder, def, c)
			if needed += len(more); needed > helm.MaxDependencies {
				return nil, nil // Render reports it
			}
			out = append(out, more...)
			continue
		}
		if c.Helm.Name.Expr != "" || c.Version.Expr != "" {
			continue // Render returns it in a *MissingChartsError
		}
		ref := requestedChart(c, &choice, c.Helm.Name.Text, c.Version.Text)
		if c.Helm.Chart == "" && validateRepositoryURL(ref.Repository) == nil &&
			chartNamePattern.MatchString(ref.Name) && exactVersion(ref.Version) && validDigest(ref.Digest) {
			out = append(out, ref)
		}
	}
	return out, nil
}

// requestedChart returns the chart of a component with the choices of an install applied. name and
// version are those of the stack, and its digest is only for that version.
func requestedChart(c *Component, choice *ComponentChoice, name, version string) ChartRef {
	ref := ChartRef{Component: c.Name, Repository: c.Helm.Repository, Name: name, Version: version,
		Digest: c.Helm.Digest}
	if choice.Version != "" && choice.Version != version {
		ref.Version, ref.Digest = choice.Version, ""
	}
	ref.Digest = cmp.Or(choice.Digest, ref.Digest)
	return ref
}

// exactVersion returns true for a single version and false for a range. A leading v is allowed,
// because some charts have it.
func exactVersion(s string) bool {
	_, err := semver.StrictNewVersion(strings.TrimPrefix(s, "v"))
	return err == nil
}

func validDigest(digest string) bool { return digest == "" || digestPattern.MatchString(digest) }

// validateRepositoryURL returns an error if a repository URL is invalid.
func validateRepositoryURL(s string) error {
	if len(s) > maxRepositoryURL {
		return fmt.Errorf("has %d characters; %d are allowed", len(s), maxRepositoryURL)
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		return fmt.Errorf("must be a URL such as https://charts.example.com or oci://registry.example.com/charts")
	case u.Scheme != "https" && u.Scheme != "oci":
		return fmt.Errorf("must begin with https:// or oci://, not %s://", u.Scheme)
	case u.User != nil:
		// The message must not contain the password.
		return fmt.Errorf("must not contain a user or password; reference a Secret in spec.charts of the install")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return fmt.Errorf("must not have a query or a fragment")
	}
	return nil
}

// checkRepositoryChart checks the settings of a component for a chart in a repository.
func (v *validator) checkRepositoryChart(c *Component, x *expressions, at func(string) fieldRef) {
	h := c.Helm
	if h.Chart != "" {
		v.fail(at("helm"), "has both chart, which is in the source, and repository; set only one of them")
		return
	}
	if err := validateRepositoryURL(h.Repository); err != nil {
		v.fail(at("helm.repository"), "%s", err)
	}
	if !h.Name.isSet() {
		v.fail(at("helm.name"), "is required: the name of the chart in the repository")
	}
	x.checkText(at("helm.name"), &h.Name, chartNameRule)
	if !validDigest(h.Digest) {
		v.fail(at("helm.digest"), "must be sha256: followed by 64 lowercase hexadecimal digits, not %q", h.Digest)
	}
	if !c.Version.isSet() {
		v.fail(at("version"), "is required: the version of the chart in the repository")
	}
	x.checkText(at("version"), &c.Version, chartVersionRule)
	if h.Digest != "" && (c.Version.Expr != "" || h.Name.Expr != "") {
		v.fail(at("helm.digest"), "is that of one chart and version, but name or version is an expression; "+
			"an install can set digest beside version")
	}
}

func chartNameRule(name string) string {
	if chartNamePattern.MatchString(name) {
		return ""
	}
	return fmt.Sprintf("must be a chart name (letters, digits, dashes, dots and underscores), not %q", name)
}

func chartVersionRule(version string) string {
	if exactVersion(version) {
		return ""
	}
	return fmt.Sprintf("must be one exact version of the chart such as 1.4.0, not %q", version)
}

// openFetched opens the fetched chart of a component. If it was not fetched, openFetched skips the
// chart with a warning under Request.WithoutCharts, and fails otherwise. A chart whose name or
// version is an expression is reported as missing.
func (r *resolver) openFetched(p *ResolvedComponent, choice *ComponentChoice, name, version string) {
	c := p.Component
	want := requestedChart(c, choice, name, version)
	p.Version = want.Version
	switch {
	case !exactVersion(want.Version):
		r.add(c.Name, "version", "version %q is not an exact version; set one exact version of the chart such as 1.4.0",
			want.Version)
		return
	case !validDigest(want.Digest):
		r.add(c.Name, "digest", "digest %q is invalid; set sha256: followed by 64 lowercase hexadecimal digits",
			want.Digest)
		return
	case want.Digest == "" && c.Helm.Digest != "":
		r.warn("stack %q: component %q: chart version %s is requested without a digest, and the stack's digest is "+
			"for version %s: any archive of the version is accepted; set digest beside version",
			r.def.Metadata.Name, c.Name, want.Version, version)
	}
	f := r.findFetched(want)
	if f == nil {
		if r.withoutCharts {
			r.warn("component %q: %s is not fetched here, so neither it nor its values are checked", c.Name, want)
			return
		}
		if c.Helm.Name.Expr != "" || c.Version.Expr != "" {
			r.missing = append(r.missing, want)
			return
		}
		r.add(c.Name, "helm.repository", "%s was not fetched", want)
		return
	}
	chart, err := r.def.loader.OpenFetched(f.Root, want.Name+"-"+want.Version)
	if err != nil {
		r.errs = append(r.errs, errorsOf(c, err)...)
		return
	}
	if chart.Name() != want.Name || chart.Version() != want.Version {
		r.add(c.Name, "helm.repository", "the repository %s returned chart %s %s for %s %s", want.Repository,
			chart.Name(), chart.Version(), want.Name, want.Version)
		return
	}
	p.chart, p.fetched = chart, &f.ChartRef
}
