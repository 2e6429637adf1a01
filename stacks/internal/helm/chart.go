// Package helm loads charts and renders them client-side and deterministically.
package helm

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/ignore"

	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/internal/values"
	"github.com/ksctl/gitops/stacks/problem"
)

// Limits are the limits of one unpacked chart, including its subcharts.
type Limits struct {
	Bytes int64
	Files int
}

// DefaultLimits returns limits that are far above the size of usual charts.
func DefaultLimits() Limits { return Limits{Bytes: 64 << 20, Files: 20_000} }

// orDefaults returns l with the defaults for limits that are 0.
func (l Limits) orDefaults() Limits {
	d := DefaultLimits()
	return Limits{Bytes: cmp.Or(l.Bytes, d.Bytes), Files: cmp.Or(l.Files, d.Files)}
}

func (l Limits) tooManyBytes() error {
	return fmt.Errorf("the chart has more than %d bytes (--chart-max-bytes)", l.Bytes)
}

// Chart is a chart in the source, or a fetched chart.
type Chart struct {
	// Path below the root of the source. For a fetched chart, its name and version.
	Path string
	// Digest of the chart's files.
	Digest string

	limits Limits
	files  []*archive.BufferedFile
	// required are the dependencies to fetch.
	required []Dependency
	// pristine is the parsed chart. It is read-only: render a copy from load, because rendering
	// modifies a chart.
	pristine *chart.Chart
}

// Open reads a chart from a folder or a .tgz. A chart in a folder may have RequiredDependencies:
// fetch them and call WithDependencies before Render. Limits that are 0 mean the defaults.
func Open(tree *source.Tree, dir string, limits Limits) (*Chart, error) {
	c := &Chart{Path: dir, limits: limits.orDefaults()}
	left := c.limits.Bytes
	folder := tree.IsDir(dir)
	var err error
	if folder {
		c.files, err = readFolder(tree, dir, c.limits, &left)
	} else {
		c.files, err = readArchive(tree, dir, c.limits)
	}
	if err != nil {
		return nil, err
	}
	if err := c.parse(); err != nil {
		return nil, err
	}
	if err := c.checkNotLibrary(); err != nil {
		return nil, err
	}
	if folder {
		return c, c.resolveDependencies(tree, &left)
	}
	return c, c.checkComplete("which is not in the archive; package the chart again (helm dependency build, then " +
		"helm package), or commit the chart as a folder")
}

// OpenFetched reads a chart from the folder with its unpacked archive. called is the chart's Path
// in messages.
func OpenFetched(root, called string, limits Limits) (*Chart, error) {
	limits = limits.orDefaults()
	left := limits.Bytes
	c, err := openUnpacked(root, called, limits, &left)
	if err != nil {
		return nil, err
	}
	return c, c.checkNotLibrary()
}

// openUnpacked reads an unpacked chart of at most left bytes. It may be a library chart.
func openUnpacked(root, called string, limits Limits, left *int64) (*Chart, error) {
	tree, err := source.Open(root)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	c := &Chart{Path: called, limits: limits}
	top, err := tree.ReadDir(".")
	if err != nil {
		return nil, err
	}
	if len(top) != 1 || !top[0].IsDir() {
		return nil, c.errorf("", "this is not a chart archive: it must have exactly one folder, with the chart")
	}
	if c.files, err = readFiles(tree, top[0].Name(), ignore.Empty(), limits, left); err != nil {
		return nil, err
	}
	if err := c.parse(); err != nil {
		return nil, err
	}
	// The user cannot change the chart in its repository, so the advice is another one.
	return c, c.checkComplete("which is not in the archive; ask the publisher to include it (helm dependency build, " +
		"then helm package), or vendor the chart in the source with its dependencies")
}

// parse unpacks vendored archives in the files, and sets Digest and pristine.
func (c *Chart) parse() (err error) {
	if c.files, err = unpackSubcharts(c.Path, c.files, c.limits); err != nil {
		return err
	}
	c.Digest = digest(c.files)
	c.pristine, err = c.load()
	return err
}

// checkNotLibrary returns an error for a library chart.
func (c *Chart) checkNotLibrary() error {
	if c.pristine.Metadata.Type == "library" {
		return c.errorf("Chart.yaml", "this is a library chart, which renders nothing")
	}
	return nil
}

func (c *Chart) errorf(file, format string, args ...any) *problem.Error {
	return problem.Errorf(path.Join(c.Path, file), 0, format, args...)
}

func digest(files []*archive.BufferedFile) string {
	sorted := slices.Clone(files)
	slices.SortFunc(sorted, func(a, b *archive.BufferedFile) int { return strings.Compare(a.Name, b.Name) })
	h := sha256.New()
	for _, f := range sorted {
		_, _ = fmt.Fprintf(h, "%d %s %d\n", len(f.Name), f.Name, len(f.Data))
		_, _ = h.Write(f.Data)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// load parses the files again, because rendering modifies a chart.
func (c *Chart) load() (*chart.Chart, error) {
	if !slices.ContainsFunc(c.files, func(f *archive.BufferedFile) bool { return f.Name == "Chart.yaml" }) {
		return nil, c.errorf("", "there is no Chart.yaml: this is not a chart")
	}
	loaded, err := loader.LoadFiles(c.files)
	if err != nil {
		return nil, c.errorf("", "the chart cannot be loaded: %w", err)
	}
	sortSubcharts(loaded)
	return loaded, nil
}

// sortSubcharts sorts subcharts by name, the newest version first. Helm loads them in random order,
// and uses the first one whose version a dependency allows.
func sortSubcharts(ch *chart.Chart) {
	subs := slices.Clone(ch.Dependencies())
	for _, sub := range subs {
		sortSubcharts(sub)
	}
	slices.SortStableFunc(subs, func(a, b *chart.Chart) int {
		if c := strings.Compare(a.Name(), b.Name()); c != 0 {
			return c
		}
		if c := compareNewestFirst(a.Metadata.Version, b.Metadata.Version); c != 0 {
			return c
		}
		return bytes.Compare(contentDigest(a), contentDigest(b))
	})
	ch.SetDependencies(subs...)
}

// contentDigest returns a digest of the chart's files, to distinguish charts with the same name and
// version.
func contentDigest(ch *chart.Chart) []byte {
	sum := sha256.New()
	for _, f := range slices.SortedFunc(slices.Values(ch.Raw), func(a, b *common.File) int {
		return strings.Compare(a.Name, b.Name)
	}) {
		_, _ = fmt.Fprintf(sum, "%q %d\n", f.Name, len(f.Data))
		_, _ = sum.Write(f.Data)
	}
	return sum.Sum(nil)
}

// compareNewestFirst compares two versions, the newer one first. Versions that cannot be parsed are
// compared as strings.
func compareNewestFirst(a, b string) int {
	v, err := semver.NewVersion(a)
	w, err2 := semver.NewVersion(b)
	if err != nil || err2 != nil {
		return strings.Compare(b, a)
	}
	// Versions that differ only in build metadata have the same precedence.
	return cmp.Or(w.Compare(v), strings.Compare(b, a))
}

// Name returns the name of the chart.
func (c *Chart) Name() string { return c.pristine.Metadata.Name }

// Version returns the version of the chart.
func (c *Chart) Version() string { return c.pristine.Metadata.Version }

// HasSchemas returns true if the chart or one of its subcharts has a values.schema.json.
func (c *Chart) HasSchemas() bool {
	return slices.ContainsFunc(c.files, func(f *archive.BufferedFile) bool {
		return path.Base(f.Name) == "values.schema.json"
	})
}

// TopLevelKeys returns the top-level keys of the values that the chart knows.
func (c *Chart) TopLevelKeys() []string {
	known := []string{"global", "tags"}
	for key := range c.pristine.Values {
		known = append(known, key)
	}
	if schema, err := values.ParseSchema(c.pristine.Schema); err == nil {
		known = append(known, values.Properties(schema)...)
	}
	for _, sub := range c.pristine.Dependencies() {
		known = append(known, sub.Name())
	}
	for _, dep := range c.pristine.Metadata.Dependencies {
		known = append(known, dep.Name)
		if dep.Alias != "" {
			known = append(known, dep.Alias)
		}
		for condition := range strings.SplitSeq(dep.Condition, ",") {
			key, _, _ := strings.Cut(strings.TrimSpace(condition), ".")
			known = append(known, key)
		}
	}
	slices.Sort(known)
	return slices.DeleteFunc(slices.Compact(known), func(s string) bool { return s == "" })
}
