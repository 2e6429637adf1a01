package helm

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"

	"github.com/ksctl/gitops/stacks/internal/manifest"
	"github.com/ksctl/gitops/stacks/internal/values"
)

// content is a loaded chart: everything that follows from its files. Renders share it, so it is
// read-only. A render modifies a copy, see copyChart.
type content struct {
	files []*archive.BufferedFile
	// digest of the files.
	digest string
	chart  *chart.Chart
	// readsCluster, readsRelease and hasHooks report whether a template or a default value mentions
	// the cluster, the revision of the release, and the events of hooks.
	readsCluster, readsRelease, hasHooks func() bool
	// topLevelKeys returns the top-level keys of the values that the chart knows.
	topLevelKeys func() []string
	// crds are the parsed objects of files in crds/: []*manifest.Object by *common.File.
	crds sync.Map
	// schemas are the compiled schemas: *valuesSchema by the first *byte of their text.
	schemas sync.Map
}

// loadContent loads a chart from its files. It returns no content if there is no Chart.yaml.
func loadContent(files []*archive.BufferedFile, digest string) (*content, error) {
	if !slices.ContainsFunc(files, func(f *archive.BufferedFile) bool { return f.Name == "Chart.yaml" }) {
		return nil, nil
	}
	loaded, err := loader.LoadFiles(files)
	if err != nil {
		return nil, fmt.Errorf("the chart cannot be loaded: %w", err)
	}
	sortSubcharts(loaded)
	return &content{files: files, digest: digest, chart: loaded,
		readsCluster: sync.OnceValue(func() bool { return chartMentions(loaded, mentionsCluster) }),
		readsRelease: sync.OnceValue(func() bool { return chartMentions(loaded, releaseState.Match) }),
		hasHooks:     sync.OnceValue(func() bool { return chartMentions(loaded, releaseHook.Match) }),
		topLevelKeys: sync.OnceValue(func() []string { return topLevelKeys(loaded) })}, nil
}

// Estimates of memory: bytes per file in addition to its text, and parsed bytes per byte of CRDs,
// and of values, metadata and schemas.
const (
	fileOverhead = 512
	crdFactor    = 4
	valuesFactor = 10
)

// memoryBytes estimates the memory of the content, including what is parsed later.
func (c *content) memoryBytes() int64 {
	var total int64
	for _, f := range c.files {
		n := int64(len(f.Data))
		total += n + fileOverhead
		switch path.Base(f.Name) {
		case "Chart.yaml", "values.yaml", "values.schema.json":
			total += n * valuesFactor
		default:
			if strings.HasPrefix(f.Name, "crds/") || strings.Contains(f.Name, "/crds/") {
				total += n * crdFactor
			}
		}
	}
	return total
}

// parseCRDs returns the objects of a file in crds/. name is the path of the file for messages.
func (c *content) parseCRDs(file *common.File, name string) ([]*manifest.Object, error) {
	var parsed []*manifest.Object
	if found, ok := c.crds.Load(file); ok {
		parsed, _ = found.([]*manifest.Object) // the map has no other type
	} else {
		var err error
		if parsed, err = manifest.Parse(name, file.Data); err != nil {
			return parsed, err
		}
		c.crds.Store(file, parsed)
	}
	out := make([]*manifest.Object, len(parsed))
	for i, o := range parsed {
		own := *o
		own.File, own.Value = name, values.Copy(o.Value)
		out[i] = &own
	}
	return out, nil
}

// copyChart returns a copy of a chart that Helm may modify. It shares the text of the files.
func copyChart(ch *chart.Chart) *chart.Chart {
	out := *ch
	out.Metadata = copyMetadata(ch.Metadata)
	if ch.Values != nil {
		out.Values = values.Copy(ch.Values)
	}
	out.Templates, out.Files = slices.Clone(ch.Templates), slices.Clone(ch.Files)
	subs := make([]*chart.Chart, len(ch.Dependencies()))
	for i, sub := range ch.Dependencies() {
		subs[i] = copyChart(sub)
	}
	out.SetDependencies(subs...)
	return &out
}

func copyMetadata(m *chart.Metadata) *chart.Metadata {
	out := *m
	out.Annotations, out.Sources, out.Keywords = maps.Clone(m.Annotations), slices.Clone(m.Sources),
		slices.Clone(m.Keywords)
	out.Maintainers, out.Dependencies = copyItems(m.Maintainers), copyItems(m.Dependencies)
	for _, d := range out.Dependencies {
		if d != nil {
			d.Tags, d.ImportValues = slices.Clone(d.Tags), slices.Clone(d.ImportValues)
		}
	}
	return &out
}

// copyItems copies a list and its items.
func copyItems[T any](items []*T) []*T {
	out := slices.Clone(items)
	for i, item := range out {
		if item != nil {
			own := *item
			out[i] = &own
		}
	}
	return out
}
