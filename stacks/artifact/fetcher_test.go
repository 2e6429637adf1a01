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
	if o.AnswerWithin == 0 {
		o.AnswerWithin = time.Minute // a busy machine takes its time
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

// onlyTrees fails when there is anything in the cache but trees of these tarballs.
func onlyTrees(t testing.TB, dir string, tarballs ...[]byte) {
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

func TestFetchOnce(t *testing.T) {
	b := makeTarball(t, file("a/b", "content"))
	s := serveBytes(t, b)
	dir := t.TempDir()
	f := newFetcher(t, Options{Dir: dir})
	for range 3 {
		tree := fetch(t, f, s.URL, b)
		if got := treeOf(t, tree.Root); !maps.Equal(got, map[string]string{"a/b": "content"}) {
			t.Errorf("got %v", got)
		}
		if tree.Digest != digestOf(b) || tree.Revision != "main@sha1:abc" {
			t.Errorf("got %s %s", tree.Digest, tree.Revision)
		}
		tree.Release()
		tree.Release() // a second time does nothing
	}
	if n := s.requests.Load(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
	onlyTrees(t, dir, b)
}

func TestFetchTogether(t *testing.T) {
	b := makeTarball(t, file("a", "content"))
	go1 := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		<-go1
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
	close(go1)
	wg.Wait()
	if n := s.requests.Load(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

func TestFetchOfACallerThatGivesUpIsTakenOver(t *testing.T) {
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
		t.Errorf("the one that gave up: %v", err)
	}
	select {
	case <-asked: // the second asks on its own account
	case err := <-second:
		t.Fatalf("ended with the failure of the one that gave up: %v", err)
	}
	close(release)
	if err := <-second; err != nil {
		t.Errorf("the one that did not give up: %v", err)
	}
}
