package artifact

import (
	"bytes"
	"compress/gzip"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/ksctl/gitops/internal/golden"
)

// The digest of an artifact depends on this tarball. If its bytes changed, each source would
// publish a new revision after an update. The golden file is not compressed, because
// compression changes with the Go release.
func TestGoldenTarball(t *testing.T) {
	files := map[string]string{
		"stacks/web/stack.yaml": "kind: Stack\n", "run.sh": "#!/bin/sh\n", "empty": "", "stacks/größe.yaml": "a: ä\n",
		strings.Repeat("folder/", 20) + "long.yaml": "kind: ConfigMap\n",
	}
	fsys := fstest.MapFS{}
	for name, content := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(content), Mode: 0o600, ModTime: time.Unix(1_000_000, 0)}
	}
	fsys["run.sh"].Mode = 0o755
	packed, _ := pack(t, fsys, PackOptions{})
	gz, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	if h := gz.Header; h.Name != "" || h.Comment != "" || h.Extra != nil || !h.ModTime.IsZero() {
		t.Errorf("the gzip header has unexpected fields: %+v", h)
	}
	tarball, err := io.ReadAll(gz)
	if err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "tree.tar", tarball)

	var again bytes.Buffer
	w := gzip.NewWriter(&again)
	if _, err := w.Write(golden.Read(t, "tree.tar")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := Unpack(t.Context(), &again, dir, Limits{}); err != nil {
		t.Fatal(err)
	}
	if got := readTree(t, dir); !maps.Equal(got, files) {
		t.Errorf("unpacked files: %v", got)
	}
}

// The marker next to a tree records that the tree is complete. The cache removes a tree whose
// marker can't be read.
func TestGoldenMarker(t *testing.T) {
	for name, size := range map[string]Size{"marker-least.json": {}, "marker.json": {Files: 7, Bytes: 123_456_789}} {
		dir := t.TempDir()
		if err := writeMarker(dir, size); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "complete") // the file name is part of the format
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		golden.Equal(t, name, data)
		if err := os.WriteFile(path, golden.Read(t, name), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, _, err := readMarker(dir); err != nil || got != size {
			t.Errorf("%s is read as %+v, %v", name, got, err)
		}
	}
	golden.Complete(t, Size{Files: 7, Bytes: 123_456_789})
}

// The cache uses trees that an earlier release stored.
func TestGoldenCacheFolder(t *testing.T) {
	dir := t.TempDir()
	sum := strings.Repeat("0", 64)
	if err := os.MkdirAll(filepath.Join(dir, sum, "tree"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"tree/stack.yaml": "kind: Stack\n",
		"complete": `{"files":1,"bytes":12}`} {
		if err := os.WriteFile(filepath.Join(dir, sum, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := openCache(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	adopted, err := c.checkAndLease(t.Context(), sum)
	if err != nil || !adopted || c.root(sum) != filepath.Join(dir, sum, "tree") {
		t.Errorf("adopted %v, %v", adopted, err)
	}
}
