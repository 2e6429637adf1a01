package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"testing"
	"time"
)

var (
	files = []File{{Name: "kubectl-ksctl", Mode: 0o755, Content: []byte("binary")},
		{Name: "LICENSE", Mode: 0o644, Content: []byte("text")}}
	modified = time.Unix(1e9, 0)
)

func TestTarGzip(t *testing.T) {
	packed, err := TarGzip(files, modified)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := TarGzip(files, modified); err != nil || !bytes.Equal(packed, again) {
		t.Errorf("packing again gives another archive: %v", err)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(unzipped)
	for _, f := range files {
		h, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if content, err := io.ReadAll(r); err != nil || h.Name != f.Name || h.Mode != f.Mode ||
			!h.ModTime.Equal(modified) || !bytes.Equal(content, f.Content) {
			t.Errorf("%+v: %q, %v", h, content, err)
		}
	}
}

func TestZip(t *testing.T) {
	packed, err := Zip(files, modified)
	if err != nil {
		t.Fatal(err)
	}
	r, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range files {
		member, err := r.Open(f.Name)
		if err != nil {
			t.Fatal(err)
		}
		if content, err := io.ReadAll(member); err != nil || !bytes.Equal(content, f.Content) ||
			!r.File[i].Modified.Equal(modified) {
			t.Errorf("%s of %s: %q, %v", f.Name, r.File[i].Modified, content, err)
		}
	}
}
