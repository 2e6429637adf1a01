package artifact

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// server serves tarballs by path and counts requests.
type server struct {
	*httptest.Server
	requests atomic.Int64
}

func serve(t testing.TB, h http.HandlerFunc) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func serveBytes(t testing.TB, b []byte) *server {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(b) })
}

func newFetcher(t testing.TB, o Options) *Fetcher {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	if o.Backoff == 0 {
		o.Backoff = time.Nanosecond
	}
	if o.ResponseHeaderTimeout == 0 {
		o.ResponseHeaderTimeout = time.Minute // a busy machine is slow
	}
	f, err := NewFetcher(o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func fetch(t testing.TB, f *Fetcher, url string, b []byte) *Tree {
	t.Helper()
	tree, err := f.Fetch(t.Context(), Artifact{URL: url, Revision: "main@sha1:abc", Digest: digestOf(b)})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// expectCachedTrees fails the test unless the cache holds exactly the trees of the tarballs.
func expectCachedTrees(t testing.TB, dir string, tarballs ...[]byte) {
	t.Helper()
	want := map[string]bool{}
	for _, b := range tarballs {
		want[strings.TrimPrefix(digestOf(b), "sha256:")] = true
	}
	found, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, d := range found {
		got[d.Name()] = true
	}
	if !maps.Equal(got, want) {
		t.Errorf("the cache holds %v, want %v", got, want)
	}
}

func TestFetchDownloadsOnce(t *testing.T) {
	b := makeTarball(t, file("a/b", "content"))
	s := serveBytes(t, b)
	dir := t.TempDir()
	f := newFetcher(t, Options{Dir: dir})
	for range 3 {
		tree := fetch(t, f, s.URL, b)
		if got := readTree(t, tree.Root); !maps.Equal(got, map[string]string{"a/b": "content"}) {
			t.Errorf("got %v", got)
		}
		if tree.Digest != digestOf(b) || tree.Revision != "main@sha1:abc" {
			t.Errorf("got %s %s", tree.Digest, tree.Revision)
		}
		tree.Release()
		tree.Release() // the second call does nothing
	}
	if n := s.requests.Load(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
	expectCachedTrees(t, dir, b)
}

func TestConcurrentFetchesShareDownload(t *testing.T) {
	b := makeTarball(t, file("a", "content"))
	unblock := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		<-unblock
		_, _ = w.Write(b)
	})
	f := newFetcher(t, Options{})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			tree, err := f.Fetch(t.Context(), Artifact{URL: s.URL, Digest: digestOf(b)})
			if err != nil {
				t.Error(err)
				return
			}
			defer tree.Release()
			if _, err := os.Stat(filepath.Join(tree.Root, "a")); err != nil {
				t.Error(err)
			}
		})
	}
	close(unblock)
	wg.Wait()
	if n := s.requests.Load(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

func TestFetchContinuesAfterOtherCallerIsCanceled(t *testing.T) {
	b := makeTarball(t, file("a", "content"))
	asked, release := make(chan struct{}, 2), make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-release:
			_, _ = w.Write(b)
		case <-r.Context().Done():
		}
	})
	f := newFetcher(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := f.Fetch(ctx, Artifact{URL: s.URL, Digest: digestOf(b)})
		first <- err
	}()
	<-asked
	second := make(chan error, 1)
	go func() {
		tree, err := f.Fetch(t.Context(), Artifact{URL: s.URL, Digest: digestOf(b)})
		if err == nil {
			tree.Release()
		}
		second <- err
	}()
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the canceled call: %v", err)
	}
	select {
	case <-asked: // the second call sends its own request
	case err := <-second:
		t.Fatalf("the second call failed with the error of the canceled call: %v", err)
	}
	close(release)
	if err := <-second; err != nil {
		t.Errorf("the second call: %v", err)
	}
}
