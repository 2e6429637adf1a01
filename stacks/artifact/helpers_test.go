package artifact

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// member is an entry of a test tarball.
type member struct {
	name string
	body string
	kind byte
	link string
	mode int64
	// size overrides the length of body in the header.
	size int64
}

func file(name, body string) member { return member{name: name, body: body, kind: tar.TypeReg} }

func makeTar(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		h := &tar.Header{Name: m.name, Typeflag: m.kind, Linkname: m.link, Mode: m.mode, Size: int64(len(m.body)),
			ModTime: time.Unix(0, 0)}
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			h = &tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: m.name,
				PAXRecords: map[string]string{"comment": "abc"}}
		}
		if m.size != 0 {
			h.Size = m.size
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatalf("header of %s: %v", m.name, err)
		}
		if _, err := w.Write([]byte(m.body)); err != nil {
			t.Fatalf("content of %s: %v", m.name, err)
		}
		if m.size != 0 {
			return b.Bytes() // cut off inside the file
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func compress(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func makeTarball(t testing.TB, members ...member) []byte {
	t.Helper()
	return compress(t, makeTar(t, members...))
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// reasonOf returns the reason of an *Error, and fails the test for other errors.
func reasonOf(t testing.TB, err error) Reason {
	t.Helper()
	if err == nil {
		return ""
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("not an *Error: %T %v", err, err)
	}
	return e.Reason
}

// readTree returns the contents of all files of a directory by path.
func readTree(t testing.TB, root string) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		got[filepath.ToSlash(rel)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}
