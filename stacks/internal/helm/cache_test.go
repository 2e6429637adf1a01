package helm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ksctl/gitops/stacks/internal/source"
)

// openCharts writes charts with a file of the given size, and opens each with the cache.
func openCharts(t *testing.T, cache *Cache, size int, names ...string) []*Chart {
	t.Helper()
	root := t.TempDir()
	tree, err := source.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tree.Close)
	var out []*Chart
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(root, name, "Chart.yaml"),
			fmt.Appendf(nil, "apiVersion: v2\nname: %s\nversion: 1.0.0\n", name))
		write(t, filepath.Join(root, name, "large"), make([]byte, size))
		c, err := Loader{Cache: cache}.Open(tree, name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

func TestCacheKeepsMostRecentlyUsedCharts(t *testing.T) {
	const size = 1 << 20
	cache := NewCache(2*size + size/2)
	first := openCharts(t, cache, size, "a", "b", "a", "c", "a", "b")
	same := func(i, j int) bool { return first[i].content == first[j].content }
	if !same(0, 2) || !same(2, 4) {
		t.Error("the chart a was used last, but it is loaded again")
	}
	if same(1, 5) {
		t.Error("the chart b exceeds the size of the cache, but it is kept")
	}
	if cache.bytes > cache.maxBytes || len(cache.entries) != 2 || cache.recent.Len() != 2 {
		t.Errorf("%d bytes, %d entries", cache.bytes, len(cache.entries))
	}
}

func TestCacheIgnoresChartsAboveItsSize(t *testing.T) {
	for _, cache := range []*Cache{nil, NewCache(0), NewCache(1 << 20)} {
		charts := openCharts(t, cache, 2<<20, "a", "a")
		if charts[0].content == charts[1].content {
			t.Errorf("%+v keeps a chart of 2 MiB", cache)
		}
	}
}

// A chart within larger limits may exceed smaller ones.
func TestCacheDistinguishesLimits(t *testing.T) {
	inner := gzipped(t, archiveOf(t, "sub/Chart.yaml", "apiVersion: v2\nname: sub\nversion: 1.0.0\n", "sub/a", "a"))
	root := t.TempDir()
	write(t, filepath.Join(root, "c.tgz"), gzipped(t, archiveOf(t, "c/Chart.yaml",
		"apiVersion: v2\nname: c\nversion: 1.0.0\n", "c/charts/sub-1.0.0.tgz", string(inner))))
	tree, err := source.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	cache := NewCache(1 << 20)
	if _, err := (Loader{Cache: cache}).Open(tree, "c.tgz"); err != nil {
		t.Fatal(err)
	}
	if _, err := (Loader{Cache: cache, Limits: Limits{Files: 2}}).Open(tree, "c.tgz"); err == nil {
		t.Error("the chart has three files, but two are allowed")
	}
}

// Objects of CRDs are copied, because a render changes them.
func TestParsedCRDsAreCopied(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "c", "crds"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "c", "Chart.yaml"), []byte("apiVersion: v2\nname: c\nversion: 1.0.0\n"))
	write(t, filepath.Join(root, "c", "crds", "x.yaml"), []byte("apiVersion: v1\nkind: X\nmetadata: {name: x}\n"))
	tree, err := source.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	c, err := Loader{}.Open(tree, "c")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		rendered, err := c.Render(t.Context(), fuzzOptions)
		if err != nil {
			t.Fatal(err)
		}
		o := rendered.Objects[0]
		meta, _ := o.Value["metadata"].(map[string]any)
		if o.File != "c/crds/x.yaml" || !slices.Equal([]any{o.Name, meta["name"], meta["namespace"]},
			[]any{"x", "x", nil}) {
			t.Fatalf("%s: %v", o.File, o.Value)
		}
		o.Name, meta["name"], meta["namespace"] = "changed", "changed", "changed"
	}
}
