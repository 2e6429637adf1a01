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

	*content
	loader Loader
	// missing are the dependencies that the chart does not include.
	missing []missingDependency
	// checked is what CheckValues prepared. Render takes it.
	checked *prepared
}

// Loader loads charts. Limits that are 0 mean the defaults. Cache may be nil.
type Loader struct {
	Limits Limits
	Cache  *Cache
}

// Open reads a chart from a folder or a .tgz. It may lack dependencies: fetch those that
// EnabledDependencies returns for the values, and call WithDependencies before Render.
func (l Loader) Open(tree *source.Tree, dir string) (*Chart, error) {
	l.Limits = l.Limits.orDefaults()
	c := &Chart{Path: dir, loader: l}
	left := l.Limits.Bytes
	folder := tree.IsDir(dir)
	var files []*archive.BufferedFile
	var err error
	if folder {
		files, err = readFolder(tree, dir, l.Limits, &left)
	} else {
		files, err = readArchive(tree, dir, l.Limits)
	}
	if err != nil {
		return nil, err
	}
	if err := c.load(files); err != nil {
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
func (l Loader) OpenFetched(root, called string) (*Chart, error) {
	l.Limits = l.Limits.orDefaults()
	left := l.Limits.Bytes
	c, err := l.openUnpacked(root, called, &left)
	if err != nil {
		return nil, err
	}
	return c, c.checkNotLibrary()
}

// openUnpacked reads an unpacked chart of at most left bytes. It may be a library chart.
func (l Loader) openUnpacked(root, called string, left *int64) (*Chart, error) {
	tree, err := source.Open(root)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	c := &Chart{Path: called, loader: l}
	top, err := tree.ReadDir(".")
	if err != nil {
		return nil, err
	}
	if len(top) != 1 || !top[0].IsDir() {
		return nil, c.errorf("", "this is not a chart archive: it must have exactly one folder, with the chart")
	}
	files, err := readFiles(tree, top[0].Name(), ignore.Empty(), l.Limits, left)
	if err != nil {
		return nil, err
	}
	if err := c.load(files); err != nil {
		return nil, err
	}
	// The user cannot change the chart in its repository, so the advice is another one.
	return c, c.checkComplete("which is not in the archive; ask the publisher to include it (helm dependency build, " +
		"then helm package), or vendor the chart in the source with its dependencies")
}

// load sets the content of the chart: from the cache, or by loading the files. It unpacks vendored
// archives.
func (c *Chart) load(files []*archive.BufferedFile) error {
	key := cacheKey{digest: digest(files), limits: c.loader.Limits}
	if c.content = c.loader.Cache.get(key); c.content != nil {
		return nil
	}
	unpacked, err := unpackSubcharts(c.Path, files, c.loader.Limits)
	if err != nil {
		return err
	}
	unpackedDigest := key.digest
	if len(unpacked) != len(files) {
		unpackedDigest = digest(unpacked)
	}
	c.content, err = loadContent(unpacked, unpackedDigest)
	switch {
	case err != nil:
		return c.errorf("", "%w", err)
	case c.content == nil:
		return c.errorf("", "there is no Chart.yaml: this is not a chart")
	}
	c.loader.Cache.put(key, c.content)
	return nil
}

// checkNotLibrary returns an error for a library chart.
func (c *Chart) checkNotLibrary() error {
	if c.chart.Metadata.Type == "library" {
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
func (c *Chart) Name() string { return c.chart.Metadata.Name }

// Digest returns a hash of the files of the chart, with those of its subcharts.
func (c *Chart) Digest() string { return c.digest }

// Version returns the version of the chart.
func (c *Chart) Version() string { return c.chart.Metadata.Version }

// HasSchemas returns true if the chart or one of its subcharts has a values.schema.json.
func (c *Chart) HasSchemas() bool {
	return slices.ContainsFunc(c.files, func(f *archive.BufferedFile) bool {
		return path.Base(f.Name) == "values.schema.json"
	})
}

// TopLevelKeys returns the top-level keys of the values that the chart knows. It is read-only.
func (c *Chart) TopLevelKeys() []string { return c.topLevelKeys() }

func topLevelKeys(ch *chart.Chart) []string {
	known := []string{"global", "tags"}
	for key := range ch.Values {
		known = append(known, key)
	}
	if schema, err := values.ParseSchema(ch.Schema); err == nil {
		known = append(known, values.Properties(schema)...)
	}
	for _, sub := range ch.Dependencies() {
		known = append(known, sub.Name())
	}
	for _, dep := range ch.Metadata.Dependencies {
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
