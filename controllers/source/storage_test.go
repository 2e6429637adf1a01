package source

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks/artifact"
)

// put stores one file as the artifact of a source, and gives its digest and size.
func put(t *testing.T, s *Storage, name, content string) (string, int64, error) {
	t.Helper()
	_, packed, err := s.Store(t.Context(), types.NamespacedName{Namespace: "team", Name: name}, fstest.MapFS{"a": {Data: []byte(content)}}, artifact.PackOptions{})
	return packed.Digest, packed.Size, err
}

func has(t *testing.T, s *Storage, name, digest string) bool {
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
	open := func() *Storage {
		t.Helper()
		s, err := OpenStorage(StorageOptions{Path: dir, AdvAddr: "x", MaxBytes: 3*size + size/2})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
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

func TestNoRoomIsSaidAndHeals(t *testing.T) {
	r := newRig(t)
	r.commit(map[string]string{"a": strings.Repeat("1", 10)})
	r.Storage.book.max = 10
	if said := r.failed(StorageFullReason); !strings.Contains(said, "--source-storage-bytes") {
		t.Errorf("does not say what to do: %s", said)
	}
	if left := r.kept(); len(left) > 0 {
		t.Errorf("kept %v", left)
	}
	r.Storage.book.max = DefaultStorageBytes
	r.done()
}

func TestTheDiskFailsAndHeals(t *testing.T) {
	r := newRig(t)
	r.commit(map[string]string{"a": "1"})
	r.done()
	r.commit(map[string]string{"a": "2"})
	away := filepath.Join(t.TempDir(), "away")
	if err := os.Rename(r.dir, away); err != nil {
		t.Fatal(err)
	}
	r.failed(StorageOperationFailedReason)
	if got := r.obj.Status.Artifact; got == nil {
		t.Error("the artifact is withdrawn")
	}
	if err := os.Rename(away, r.dir); err != nil {
		t.Fatal(err)
	}
	r.done()
	if got := r.content("a"); got != "2" {
		t.Errorf("got %q", got)
	}
}

func TestSweepsWhatNoSourceUses(t *testing.T) {
	s, dir := newStorage(t)
	kept, _, err := put(t, s, "kept", "1")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := put(t, s, "gone", "1"); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := appsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "kept"}}).Build()
	sweeper := &sweeper{reader: reader, storage: s, every: time.Hour}
	for range 2 {
		if err := sweeper.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, space, "team", "gone")); !errors.Is(err, os.ErrNotExist) || !has(t, s, "kept", kept) {
			t.Errorf("the folder of a source that is gone: %v", err)
		}
	}
	if got := onDisk(t, dir); got != s.book.total {
		t.Errorf("%d bytes on disk, %d in the books", got, s.book.total)
	}
}
