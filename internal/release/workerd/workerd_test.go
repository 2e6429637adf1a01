package workerd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// archive returns a package with files of names; the content of a file is its name.
func archive(t *testing.T, names ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	w := tar.NewWriter(compressed)
	for _, name := range names {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(name))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := compressed.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestUnpack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "workerd")
	if err := unpack(archive(t, "package/package.json", programFile), path); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != programFile || !isExecutable(path) {
		t.Errorf("%q, %v", content, err)
	}
	err := unpack(archive(t, "package/package.json"), filepath.Join(t.TempDir(), "workerd"))
	if err == nil || !strings.Contains(err.Error(), "the package has no file package/bin/workerd") {
		t.Errorf("got %v", err)
	}
}

func TestIntegrity(t *testing.T) {
	// That of the empty file, as npm writes it.
	const want = "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg=="
	if got := integrity(nil); got != want {
		t.Errorf("got %s", got)
	}
	for arch, d := range distributions {
		if len(d.integrity) != len(want) || interpreters[arch] == "" || libraries[arch] == "" {
			t.Errorf("%s: %+v", arch, d)
		}
	}
}

func TestReadInFollowsLinksBelowRoot(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"lib64", "lib/x86_64-linux-gnu"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "lib/x86_64-linux-gnu/ld.so"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, target := range map[string]string{"lib64/a": "/lib/x86_64-linux-gnu/ld.so",
		"lib64/b": "../lib/x86_64-linux-gnu/ld.so", "lib64/loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(root, path)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{"/lib64/a": "x", "/lib64/b": "x", "/lib64/loop": "", "/lib64/c": ""} {
		if got, err := readIn(root, path); string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
}
