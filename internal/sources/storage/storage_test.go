package storage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/stacks/artifact"
)

// put stores one file as the artifact of a source, and gives its digest and size.
func put(t *testing.T, s *Space, name, content string) (string, int64, error) {
	t.Helper()
	_, packed, err := s.Store(t.Context(), types.NamespacedName{Namespace: "team", Name: name}, fstest.MapFS{"a": {Data: []byte(content)}}, artifact.PackOptions{})
	return packed.Digest, packed.Size, err
}

func has(t *testing.T, s *Space, name, digest string) bool {
	t.Helper()
	yes, err := s.Has(types.NamespacedName{Namespace: "team", Name: name}, digest)
	if err != nil {
		t.Fatal(err)
	}
	return yes
}

func onDisk(t *testing.T, dir string) (total int64) {
	t.Helper()
	err := filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			total += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}

func TestStorageIsBounded(t *testing.T) {
	dir := t.TempDir()
	probe, _ := newStorage(t)
	_, size, err := put(t, probe, "x", "0")
	if err != nil {
		t.Fatal(err)
	}
	open := func() *Space {
		t.Helper()
		s, err := Open(Options{Path: dir, AdvAddr: "x", MaxBytes: 3*size + size/2})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s.Space("kind")
	}
	s := open()
	must := func(name, content string) string {
		t.Helper()
		d, _, err := put(t, s, name, content)
		if err != nil {
			t.Fatal(err)
		}
		if got := onDisk(t, dir); got > s.book.max || got != s.book.total {
			t.Errorf("%d bytes on disk, %d in the books, at most %d", got, s.book.total, s.book.max)
		}
		return d
	}
	a1 := must("a", "1")
	a2 := must("a", "2")
	b1 := must("b", "1")
	b2 := must("b", "2") // for which a's first has to go
	if has(t, s, "a", a1) || !has(t, s, "a", a2) || !has(t, s, "b", b2) {
		t.Error("what no source offers has to go first, the oldest of it before others")
	}
	_ = b1
	c1 := must("c", "1")
	if !has(t, s, "a", a2) || !has(t, s, "b", b2) {
		t.Error("what others offer has to stay")
	}
	var full *FullError
	if _, _, err := put(t, s, "d", "1"); !errors.As(err, &full) || full.Max != s.book.max {
		t.Errorf("got %v, want that there is no room", err)
	}
	if got := onDisk(t, dir); got != s.book.total {
		t.Errorf("%d bytes on disk, %d in the books: what has no room is left behind", got, s.book.total)
	}
	c2 := must("c", "2") // in the place of its own

	// Another process finds the same, and knows again what is in use when it is asked.
	before := s.book.total
	s = open()
	if s.book.total != before {
		t.Errorf("%d bytes after a restart, want %d", s.book.total, before)
	}
	if !has(t, s, "a", a2) || !has(t, s, "c", c2) || has(t, s, "c", c1) {
		t.Error("not all there after a restart")
	}
	must("d", "1")
	if has(t, s, "b", b2) {
		t.Error("of what nobody asked for since the restart, the oldest has to go")
	}
	if err := s.Remove(types.NamespacedName{Namespace: "team", Name: "a"}); err != nil || s.book.total != onDisk(t, dir) || len(s.book.files) != 2 {
		t.Errorf("%d bytes, %d artifacts after a source went: %v", s.book.total, len(s.book.files), err)
	}
}

func TestSweepsWhatNoOwnerUses(t *testing.T) {
	s, dir := newStorage(t)
	kept, _, err := put(t, s, "kept", "1")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := put(t, s, "gone", "1"); err != nil {
		t.Fatal(err)
	}
	sweeper := &Sweeper{Space: s, Owners: func(context.Context) ([]types.NamespacedName, error) {
		return []types.NamespacedName{{Namespace: "team", Name: "kept"}}, nil
	}}
	for range 2 {
		if err := sweeper.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, s.folder(types.NamespacedName{Namespace: "team", Name: "gone"}))); !errors.Is(err, os.ErrNotExist) || !has(t, s, "kept", kept) {
			t.Errorf("the folder of an owner that is gone: %v", err)
		}
	}
	if got := onDisk(t, dir); got != s.book.total {
		t.Errorf("%d bytes on disk, %d in the books", got, s.book.total)
	}
}
