package helm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ksctl/gitops/stacks/generated"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/problem"
)

var fuzzOptions = Options{Release: "r", Namespace: "n", KubeVersion: "v1.36.0", Seed: []byte("seed"),
	Generation: Generation{Stored: generated.NewValues([]byte("key"))}}

// renderTwice opens a chart and renders it twice. Both results are equal, or the error has a file.
func renderTwice(t *testing.T, root, dir string) {
	t.Helper()
	tree, err := source.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	c, err := Loader{}.Open(tree, dir)
	if err != nil {
		checkTyped(t, err)
		return
	}
	if _, _, err := c.CheckValues(map[string]any{"a": "b"}); err != nil {
		checkTyped(t, err)
		return
	}
	first, err := c.Render(t.Context(), fuzzOptions)
	if err != nil {
		checkTyped(t, err)
		return
	}
	second, err := c.Render(t.Context(), fuzzOptions)
	if err != nil {
		t.Fatalf("the second render failed: %v", err)
	}
	a, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := json.Marshal(second); err != nil || !bytes.Equal(a, b) {
		t.Fatalf("the first render is\n%s\nthe second is\n%s (%v)", a, b, err)
	}
}

func checkTyped(t *testing.T, err error) {
	t.Helper()
	if !errors.As(err, new(*problem.Error)) && !errors.As(err, new(problem.Errors)) {
		t.Fatalf("%T has no file: %v", err, err)
	}
}

// FuzzChart renders charts with arbitrary metadata, values and schema. Two renders are equal, or
// the chart is rejected. Templates are not fuzzed: the render process bounds them.
func FuzzChart(f *testing.F) {
	const meta = "apiVersion: v2\nname: shop\nversion: 1.0.0\n"
	f.Add(meta, "from: x\nlist: [1, 2.5, yes]\n", `{"properties":{"from":{"type":"string"}}}`)
	f.Add(meta+"dependencies: [{name: sub, version: 1.x, condition: sub.enabled}]\n", "sub: {enabled: false}\n",
		`{"$ref":"https://example.com/x.json"}`)
	f.Add(meta+"type: library\n", "", "")
	f.Add(meta+"kubeVersion: '>=1.99'\nappVersion: 1.10\n", "a: &a [*a]\n", `{"$ref":"#"}`)
	f.Add("apiVersion: v1\nname: ../../x\nversion: 0\n", "- a\n", `[]`)
	f.Add("name: shop\nname: shop\n", "\xff", `{"properties":{"a":{"$ref":"#/properties/a"}}}`)
	root := f.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "c", "templates"), 0o755); err != nil {
		f.Fatal(err)
	}
	template := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata: {{ dict \"v\" (toYaml " +
		".Values) \"c\" .Chart.Version \"r\" (randAlpha 4) | toJson }}\n"
	write(f, filepath.Join(root, "c", "templates", "x.yaml"), []byte(template))
	f.Fuzz(func(t *testing.T, meta, values, schema string) {
		write(t, filepath.Join(root, "c", "Chart.yaml"), []byte(meta))
		write(t, filepath.Join(root, "c", "values.yaml"), []byte(values))
		write(t, filepath.Join(root, "c", "values.schema.json"), []byte(schema))
		renderTwice(t, root, "c")
	})
}

// FuzzChartArchive renders arbitrary tarballs, or rejects them.
func FuzzChartArchive(f *testing.F) {
	meta, object := "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"
	inner := gzipped(f,
		archiveOf(f, "sub/Chart.yaml", "apiVersion: v2\nname: sub\nversion: 1.0.0\n", "sub/templates/x.yaml", object))
	f.Add(archiveOf(f, "shop/Chart.yaml", meta, "shop/templates/x.yaml", object))
	f.Add(archiveOf(f, "shop/Chart.yaml", meta, "shop/charts/sub-1.0.0.tgz", string(inner)))
	f.Add(archiveOf(f, "shop/Chart.yaml", meta, "shop/../../x", "x"))
	f.Add(archiveOf(f, "Chart.yaml", meta))
	f.Add(archiveOf(f, "shop/charts/a.tgz", "\x1f\x8b"))
	f.Add([]byte("x"))
	root := f.TempDir()
	f.Fuzz(func(t *testing.T, tarball []byte) {
		write(t, filepath.Join(root, "c.tgz"), gzipped(t, tarball))
		renderTwice(t, root, "c.tgz")
	})
}

func write(t testing.TB, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// archiveOf returns a tarball of files, given as alternating names and contents.
func archiveOf(t testing.TB, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for ; len(files) > 0; files = files[2:] {
		if err := w.WriteHeader(&tar.Header{Name: files[0], Mode: 0o644, Size: int64(len(files[1]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
