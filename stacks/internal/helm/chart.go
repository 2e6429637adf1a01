// Package helm renders charts, client-side and deterministically.
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

// Limits of one chart, its subcharts included and unpacked.
type Limits struct {
	Bytes int64
	Files int
}

// DefaultLimits are far above what charts need.
func DefaultLimits() Limits { return Limits{Bytes: 64 << 20, Files: 20_000} }

// orDefaults has the default in place of what is 0.
func (l Limits) orDefaults() Limits {
	d := DefaultLimits()
	if l.Bytes == 0 {
		l.Bytes = d.Bytes
	}
	if l.Files == 0 {
		l.Files = d.Files
	}
	return l
}

func (l Limits) tooManyBytes() string {
	return fmt.Sprintf("the chart has more than %d bytes (--chart-max-bytes)", l.Bytes)
}

// Chart is a chart of the source, or one that was fetched.
type Chart struct {
	// Path below the root of the source; what a fetched one is called.
	Path string
	// Digest of its files.
	Digest string

	limits Limits
	files  []*archive.BufferedFile
	// needs are the charts of repositories that it does not bring.
	needs []Dependency
	// pristine is for reading only; rendering changes a chart.
	pristine *chart.Chart
}

// Open reads a chart: a folder, or a .tgz. A folder may lack charts of repositories;
// its Needs have to be given to With before it renders. Limits that are 0 are the defaults.
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
	if err := c.open(); err != nil {
		return nil, err
	}
	if err := c.renders(); err != nil {
		return nil, err
	}
	if folder {
		return c, c.complete(tree, &left)
	}
	return c, c.lacksNothing("which is not packed with it; pack it (helm dependency build, then helm package), or commit the chart as a folder")
}

// OpenFetched reads a chart from the folder that its archive was unpacked in.
func OpenFetched(root, called string, limits Limits) (*Chart, error) {
	limits = limits.orDefaults()
	left := limits.Bytes
	c, err := openUnpacked(root, called, limits, &left)
	if err != nil {
		return nil, err
	}
	return c, c.renders()
}

// openUnpacked reads a chart of at most left bytes, which is not one that renders by itself, perhaps.
func openUnpacked(root, called string, limits Limits, left *int64) (*Chart, error) {
	tree, err := source.Open(root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tree.Close() }()
	c := &Chart{Path: called, limits: limits}
	top, err := tree.ReadDir(".")
	if err != nil {
		return nil, err
	}
	if len(top) != 1 || !top[0].IsDir() {
		return nil, c.fail("", "this is not a chart archive: one folder is expected in it, with the chart")
	}
	if c.files, err = readFiles(tree, top[0].Name(), ignore.Empty(), limits, left); err != nil {
		return nil, err
	}
	if err := c.open(); err != nil {
		return nil, err
	}
	// Nobody can change it where it came from.
	return c, c.lacksNothing("which is not packed with it; who publishes it has to (helm dependency build, then helm package), or vendor the chart in the source with its dependencies")
}

// open makes a chart of its files.
func (c *Chart) open() (err error) {
	if c.files, err = expand(c.Path, c.files, c.limits); err != nil {
		return err
	}
	c.Digest = digest(c.files)
	c.pristine, err = c.load()
	return err
}

// renders refuses a chart that is only for others to depend on.
func (c *Chart) renders() error {
	if c.pristine.Metadata.Type == "library" {
		return c.fail("Chart.yaml", "this is a library chart, which renders nothing")
	}
	return nil
}

func (c *Chart) fail(file, format string, args ...any) *problem.Error {
	return &problem.Error{File: path.Join(c.Path, file), Message: fmt.Sprintf(format, args...)}
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

// load parses the files anew, because rendering changes a chart.
func (c *Chart) load() (*chart.Chart, error) {
	if !slices.ContainsFunc(c.files, func(f *archive.BufferedFile) bool { return f.Name == "Chart.yaml" }) {
		return nil, c.fail("", "there is no Chart.yaml: this is not a chart")
	}
	loaded, err := loader.LoadFiles(c.files)
	if err != nil {
		return nil, &problem.Error{File: c.Path, Message: "the chart cannot be loaded: " + err.Error(), Err: err}
	}
	arrange(loaded)
	return loaded, nil
}

// arrange puts subcharts in order, the newest of one name first: Helm loads them in
// any, and takes the first whose version a dependency allows.
func arrange(ch *chart.Chart) {
	subs := slices.Clone(ch.Dependencies())
	for _, sub := range subs {
		arrange(sub)
	}
	slices.SortStableFunc(subs, func(a, b *chart.Chart) int {
		if c := strings.Compare(a.Name(), b.Name()); c != 0 {
			return c
		}
		if c := newer(a.Metadata.Version, b.Metadata.Version); c != 0 {
			return c
		}
		return bytes.Compare(content(a), content(b))
	})
	ch.SetDependencies(subs...)
}

// content tells charts of one name and version apart.
func content(ch *chart.Chart) []byte {
	sum := sha256.New()
	for _, f := range slices.SortedFunc(slices.Values(ch.Raw), func(a, b *common.File) int { return strings.Compare(a.Name, b.Name) }) {
		_, _ = fmt.Fprintf(sum, "%q %d\n", f.Name, len(f.Data))
		_, _ = sum.Write(f.Data)
	}
	return sum.Sum(nil)
}

// newer orders versions that Helm took for such.
func newer(a, b string) int {
	v, err := semver.NewVersion(a)
	w, err2 := semver.NewVersion(b)
	if err != nil || err2 != nil {
		return strings.Compare(b, a)
	}
	// What is built differently is of one precedence.
	return cmp.Or(w.Compare(v), strings.Compare(b, a))
}

// Name of the chart.
func (c *Chart) Name() string { return c.pristine.Metadata.Name }

// Version of the chart.
func (c *Chart) Version() string { return c.pristine.Metadata.Version }

// HasSchemas says whether the chart or one of its subcharts has a values.schema.json.
func (c *Chart) HasSchemas() bool {
	return slices.ContainsFunc(c.files, func(f *archive.BufferedFile) bool { return path.Base(f.Name) == "values.schema.json" })
}

// TopLevel are the top-level values that the chart knows.
func (c *Chart) TopLevel() []string {
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
