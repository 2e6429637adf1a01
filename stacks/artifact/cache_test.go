package artifact

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func sumOf(b []byte) string { return strings.TrimPrefix(digestOf(b), "sha256:") }

func TestCacheKeepsTreesAfterRestart(t *testing.T) {
	b := makeTarball(t, file("a", "content"))
	s := serveBytes(t, b)
	dir := t.TempDir()
	fetch(t, newFetcher(t, Options{Dir: dir}), s.URL, b) // not released, as after a kill

	for _, left := range []string{tempPrefix + "1/tree/half", tempPrefix + "evicted-2/tree/half",
		strings.Repeat("a", 64) + "/tree/half", "unrelated"} {
		path := filepath.Join(dir, left)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o444); err != nil {
			t.Fatal(err)
		}
	}
	f := newFetcher(t, Options{Dir: dir})
	if err := os.Remove(filepath.Join(dir, "unrelated")); err != nil {
		t.Errorf("an unrelated file in the cache directory must be kept: %v", err)
	}
	expectCachedTrees(t, dir, b)
	fetch(t, f, s.URL, b).Release()
	if n := s.requests.Load(); n != 1 {
		t.Errorf("%d requests, want 1: the tree was cached", n)
	}
}

func TestCacheRefetchesDamagedTree(t *testing.T) {
	b := makeTarball(t, file("a", "content"), file("b", "more"))
	s := serveBytes(t, b)
	damages := map[string]func(dir string) error{
		"a file lost its content": func(dir string) error {
			if err := os.Chmod(filepath.Join(dir, treeName, "a"), 0o600); err != nil {
				return err
			}
			return os.Truncate(filepath.Join(dir, treeName, "a"), 0)
		},
		"a file is missing": func(dir string) error { return os.Remove(filepath.Join(dir, treeName, "b")) },
		"a file became a link": func(dir string) error {
			path := filepath.Join(dir, treeName, "a")
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Symlink("/etc/passwd", path)
		},
		"the tree is missing": func(dir string) error { return os.RemoveAll(filepath.Join(dir, treeName)) },
		"the marker is empty": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, markerName), nil, 0o600)
		},
		"the marker is missing": func(dir string) error { return os.Remove(filepath.Join(dir, markerName)) },
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fetch(t, newFetcher(t, Options{Dir: dir}), s.URL, b).Release()
			if err := damage(filepath.Join(dir, sumOf(b))); err != nil {
				t.Fatal(err)
			}
			before := s.requests.Load()
			f := newFetcher(t, Options{Dir: dir})
			tree := fetch(t, f, s.URL, b)
			if got := readTree(t, tree.Root); got["a"] != "content" || got["b"] != "more" {
				t.Errorf("got %v", got)
			}
			tree.Release()
			if n := s.requests.Load() - before; n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
			expectCachedTrees(t, dir, b)
		})
	}
}

func TestCacheEvictsLeastRecentlyUsed(t *testing.T) {
	var tarballs [][]byte
	for i := range 4 {
		tarballs = append(tarballs, makeTarball(t, file("f", fmt.Sprint(i))))
	}
	room := int64(1 + blockSize) // of each tree
	dir := t.TempDir()
	f := newFetcher(t, Options{Dir: dir, CacheBytes: 2 * room})
	get := func(i int) *Tree { return fetch(t, f, serveBytes(t, tarballs[i]).URL, tarballs[i]) }

	get(0).Release()
	get(1).Release()
	get(0).Release() // used later than 1
	get(2).Release()
	expectCachedTrees(t, dir, tarballs[0], tarballs[2])

	used := get(0)
	get(1).Release()
	get(3).Release()
	expectCachedTrees(t, dir, tarballs[0], tarballs[3]) // 0 is the least recently used, but is leased
	again := get(0)
	used.Release()
	get(1).Release()
	get(2).Release()
	expectCachedTrees(t, dir, tarballs[0], tarballs[2]) // 0 still has one lease
	again.Release()
	get(1).Release()
	get(3).Release()
	expectCachedTrees(t, dir, tarballs[1], tarballs[3])
}

func TestCacheKeepsLeasedTreesAboveLimit(t *testing.T) {
	a, b := makeTarball(t, file("f", "a")), makeTarball(t, file("f", "b"))
	dir := t.TempDir()
	f := newFetcher(t, Options{Dir: dir, CacheBytes: 1})
	ta, tb := fetch(t, f, serveBytes(t, a).URL, a), fetch(t, f, serveBytes(t, b).URL, b)
	expectCachedTrees(t, dir, a, b)
	ta.Release()
	expectCachedTrees(t, dir, b)
	if got := readTree(t, tb.Root); got["f"] != "b" {
		t.Errorf("a tree in use was changed: %v", got)
	}
	tb.Release()
	expectCachedTrees(t, dir)
}

func TestCacheRemembersUseAfterRestart(t *testing.T) {
	a, b := makeTarball(t, file("f", "a")), makeTarball(t, file("f", "b"))
	dir := t.TempDir()
	f := newFetcher(t, Options{Dir: dir})
	fetch(t, f, serveBytes(t, a).URL, a).Release()
	fetch(t, f, serveBytes(t, b).URL, b).Release()
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, sumOf(b), markerName), old, old); err != nil {
		t.Fatal(err)
	}
	newFetcher(t, Options{Dir: dir, CacheBytes: 1 + blockSize})
	expectCachedTrees(t, dir, a)
}

func TestCacheConcurrentFetchAndEvict(t *testing.T) {
	var tarballs [][]byte
	var urls []string
	for i := range 4 {
		b := makeTarball(t, file("f", fmt.Sprint(i)))
		tarballs, urls = append(tarballs, b), append(urls, serveBytes(t, b).URL)
	}
	dir := t.TempDir()
	f := newFetcher(t, Options{Dir: dir, CacheBytes: 1}) // each tree is evicted as soon as it is released
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 20 {
				n := (i + j) % len(tarballs)
				tree, err := f.Fetch(t.Context(), Artifact{URL: urls[n], Digest: digestOf(tarballs[n])})
				if err != nil {
					t.Error(err)
					return
				}
				b, err := os.ReadFile(filepath.Join(tree.Root, "f"))
				if err != nil || string(b) != fmt.Sprint(n) {
					t.Errorf("got %q %v, want %d", b, err, n)
				}
				tree.Release()
			}
		})
	}
	wg.Wait()
	expectCachedTrees(t, dir)
}
