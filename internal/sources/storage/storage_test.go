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

// put stores one file as the artifact of a source, and returns its digest and size.
func put(t *testing.T, s *Space, name, content string) (string, int64, error) {
	t.Helper()
	_, packed, err := s.Store(t.Context(), types.NamespacedName{Namespace: "team", Name: name},
		fstest.MapFS{"a": {Data: []byte(content)}}, artifact.PackOptions{})
	return packed.Digest, packed.Size, err
}

func hasArtifact(t *testing.T, s *Space, name, digest string) bool {
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

func TestStorageEvictsWithinItsLimit(t *testing.T) {
	dir := t.TempDir()
	probe, _ := newStorage(t)
	_, size, err := put(t, probe, "x", "0")
	if err != nil {
		t.Fatal(err)
	}
	open := func() *Space {
		t.Helper()
		s, err := Open(Options{Path: dir, AdvertisedAddr: "x", MaxBytes: 3*size + size/2})
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
		if got := onDisk(t, dir); got > s.index.max || got != s.index.total {
			t.Errorf("%d bytes on disk, %d in the index, limit %d", got, s.index.total, s.index.max)
		}
		return d
	}
	a1 := must("a", "1")
	a2 := must("a", "2")
	b1 := must("b", "1")
	b2 := must("b", "2") // evicts the first artifact of a
	if hasArtifact(t, s, "a", a1) || !hasArtifact(t, s, "a", a2) || !hasArtifact(t, s, "b", b2) {
		t.Error("want artifacts that are not current to be evicted first, the oldest first")
	}
	_ = b1
	c1 := must("c", "1")
	if !hasArtifact(t, s, "a", a2) || !hasArtifact(t, s, "b", b2) {
		t.Error("the current artifact of another owner was evicted")
	}
	var full *FullError
	if _, _, err := put(t, s, "d", "1"); !errors.As(err, &full) || full.Max != s.index.max {
		t.Errorf("got %v, want a FullError", err)
	}
	if got := onDisk(t, dir); got != s.index.total {
		t.Errorf("%d bytes on disk, %d in the index: the artifact that does not fit was left on disk", got,
			s.index.total)
	}
	c2 := must("c", "2") // replaces the current artifact of c

	// Another process finds the same artifacts. Has marks them as current again.
	before := s.index.total
	s = open()
	if s.index.total != before {
		t.Errorf("%d bytes after a restart, want %d", s.index.total, before)
	}
	if !hasArtifact(t, s, "a", a2) || !hasArtifact(t, s, "c", c2) || hasArtifact(t, s, "c", c1) {
		t.Error("artifacts differ after a restart")
	}
	must("d", "1")
	if hasArtifact(t, s, "b", b2) {
		t.Error("want the oldest artifact that was not used since the restart to be evicted")
	}
	if err := s.Remove(types.NamespacedName{Namespace: "team", Name: "a"}); err != nil ||
		s.index.total != onDisk(t, dir) || len(s.index.files) != 2 {
		t.Errorf("%d bytes, %d artifacts after a source was removed: %v", s.index.total, len(s.index.files), err)
	}
}

func TestSweepRemovesArtifactsOfDeletedOwners(t *testing.T) {
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
		if _, err := os.Stat(filepath.Join(dir,
			s.folder(types.NamespacedName{Namespace: "team", Name: "gone"}))); !errors.Is(err, os.ErrNotExist) ||
			!hasArtifact(t, s, "kept", kept) {
			t.Errorf("the folder of a deleted owner: %v", err)
		}
	}
	if got := onDisk(t, dir); got != s.index.total {
		t.Errorf("%d bytes on disk, %d in the index", got, s.index.total)
	}
}
