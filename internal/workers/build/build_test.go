package build_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/ksctl/gitops/internal/workers/build"
)

// server is a registry that counts requests, and responds to some with errors.
type server struct {
	host string
	// refuse responds to a request instead of the registry, if it returns true.
	refuse func(http.ResponseWriter, *http.Request) bool

	mu       sync.Mutex
	requests []string
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI())
		s.mu.Unlock()
		if s.refuse == nil || !s.refuse(w, r) {
			inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(h.Close)
	s.host = strings.TrimPrefix(h.URL, "http://")
	return s
}

// count returns the number of requests with a prefix.
func (s *server) count(prefix string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.requests {
		if strings.HasPrefix(r, prefix) {
			n++
		}
	}
	return n
}

// refuseWith responds with an error of a registry.
func refuseWith(w http.ResponseWriter, status int, code string) bool {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []map[string]string{{"code": code, "message": "refused"}}})
	return true
}

func newBuilder() *build.Builder {
	now := time.Unix(1e9, 0)
	return &build.Builder{Insecure: true,
		Backoff: func(int) time.Duration { return time.Millisecond },
		Remote:  []remote.Option{remote.WithRetryBackoff(remote.Backoff{Duration: time.Millisecond, Steps: 1})},
		Now: func() time.Time {
			now = now.Add(time.Second)
			return now
		},
		Downloader: &build.Downloader{Timeout: time.Minute}}
}

const module = `export default { fetch() { return new Response("hello"); } };`

// serveFiles serves files by path, and counts requests.
func serveFiles(t *testing.T, files map[string]string) (url string, requests *atomic.Int64) {
	t.Helper()
	requests = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		content, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, content)
	}))
	t.Cleanup(s.Close)
	return s.URL, requests
}

// push pushes a script with one file, and returns its image.
func push(t *testing.T, b *build.Builder, s *server, script, content string) string {
	t.Helper()
	url, _ := serveFiles(t, map[string]string{"/a.js": content})
	image := s.host + "/shop/acme/" + script + ":1"
	out, err := b.Push(t.Context(), image, build.Script{Name: script, URLs: []string{url + "/a.js"}})
	if err != nil || !out.Built {
		t.Fatalf("%+v, %v", out, err)
	}
	return image
}

func pull(t *testing.T, image string) v1.Image {
	t.Helper()
	ref, err := name.ParseReference(image, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	img, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(img); err != nil {
		t.Fatal(err)
	}
	return img
}

// files returns the files of an image by path.
func files(t *testing.T, img v1.Image) map[string]string {
	t.Helper()
	content := mutate.Extract(img)
	defer func() { _ = content.Close() }()
	out := map[string]string{}
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		var b bytes.Buffer
		if err == nil {
			_, err = b.ReadFrom(r)
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			out[h.Name] = b.String()
		}
	}
}

func TestPushMakesOneReproducibleLayer(t *testing.T) {
	s, b := newServer(t), newBuilder()
	url, requests := serveFiles(t, map[string]string{"/v1/main.mjs": module, "/v1/page.html": "<p>"})
	script := build.Script{Name: "hello", CompatibilityDate: "2026-11-01",
		URLs: []string{url + "/v1/main.mjs", url + "/v1/page.html?token=x"}}
	first, err := b.Push(t.Context(), s.host+"/acme/hello:1", script)
	if err != nil || !first.Built {
		t.Fatalf("%+v, %v", first, err)
	}
	second, err := b.Push(t.Context(), s.host+"/acme/hello:2", script)
	if err != nil || second.Digest != first.Digest {
		t.Errorf("the second image differs: %+v, %+v, %v", first, second, err)
	}
	got := files(t, pull(t, s.host+"/acme/hello:1"))
	want := map[string]string{"workers/hello/main.mjs": module, "workers/hello/page.html": "<p>",
		"workers/hello/worker.json": `{"name":"hello","format":"module","compatibilityDate":"2026-11-01","modules":` +
			`[{"file":"main.mjs","type":"esModule"},{"file":"page.html","type":"text"}]}`}
	for path, content := range want {
		if got[path] != content {
			t.Errorf("%s: got %s, want %s", path, got[path], content)
		}
	}
	downloads := requests.Load()
	again, err := b.Push(t.Context(), s.host+"/acme/hello:1", script)
	if err != nil || again.Built || again.Digest != first.Digest || requests.Load() != downloads || downloads != 4 {
		t.Errorf("an image that exists: %+v, %v, %d downloads", again, err, requests.Load())
	}
}

func must[T any](t *testing.T, call func() (T, error)) T {
	t.Helper()
	out, err := call()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// base pushes a base image: an index with platforms, or an image if there are none.
func base(t *testing.T, s *server, platforms ...string) string {
	t.Helper()
	ref, err := name.ParseReference(s.host+"/base/workers:1", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	newImage := func(p v1.Platform) v1.Image {
		img, err := random.Image(100, 2)
		if err != nil {
			t.Fatal(err)
		}
		img, err = mutate.ConfigFile(img, &v1.ConfigFile{OS: p.OS, Architecture: p.Architecture,
			RootFS: must(t, img.ConfigFile).RootFS, Config: v1.Config{Entrypoint: []string{"/worker-runtime"}}})
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	if len(platforms) == 0 {
		err = remote.Write(ref, newImage(v1.Platform{OS: "linux", Architecture: "amd64"}))
	} else {
		index := v1.ImageIndex(empty.Index)
		for _, p := range platforms {
			platform, parseErr := v1.ParsePlatform(p)
			if parseErr != nil {
				t.Fatal(parseErr)
			}
			index = mutate.AppendManifests(index,
				mutate.IndexAddendum{Add: newImage(*platform), Descriptor: v1.Descriptor{Platform: platform}})
		}
		err = remote.WriteIndex(ref, index)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ref.String()
}

func TestBuildAppendsLayersSortedByName(t *testing.T) {
	s, other, b := newServer(t), newServer(t), newBuilder()
	workers := []build.Worker{{Name: "b", Image: push(t, b, s, "b", module)},
		{Name: "a", Image: push(t, b, s, "a", module+"//a")}}
	from := base(t, other)
	uploads := s.count("PATCH")
	out, err := b.Build(t.Context(), from, s.host+"/acme:1", workers)
	if err != nil || !out.Built {
		t.Fatalf("%+v, %v", out, err)
	}
	if n := s.count("PATCH") - uploads; n != 3 {
		t.Errorf("%d uploads, not those of the configuration and of two layers of the base image", n)
	}
	img := pull(t, s.host+"/acme:1")
	got := files(t, img)
	if got["workers/a/a.js"] == "" || got["workers/b/a.js"] != module || got["random_file_0.txt"] == "x" {
		t.Errorf("%v", got)
	}
	config, err := img.ConfigFile()
	if err != nil || !slices.Equal(config.Config.Entrypoint, []string{"/worker-runtime"}) {
		t.Errorf("%v, %v", config, err)
	}
	manifest, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	const fromImage = "workers.ksctl.com/image"
	if n := len(manifest.Layers); n != 4 || manifest.Layers[2].Annotations[fromImage] != workers[1].Image ||
		manifest.Layers[3].Annotations[fromImage] != workers[0].Image {
		t.Errorf("%+v", manifest.Layers)
	}
	if _, err = b.Build(t.Context(), from, s.host+"/acme:2", workers); err != nil {
		t.Fatal(err)
	}
	same, err := pull(t, s.host+"/acme:2").Manifest()
	if err != nil || len(same.Layers) != 4 || same.Layers[3].Digest != manifest.Layers[3].Digest {
		t.Errorf("the layers differ: %v", err)
	}
}

func TestBuildTakesLayerOfRemovedScriptFromEarlierImage(t *testing.T) {
	for name, platforms := range map[string][]string{"image": nil, "index": {"linux/amd64", "linux/arm64"}} {
		t.Run(name, func(t *testing.T) {
			s, b := newServer(t), newBuilder()
			from := base(t, s, platforms...)
			old := build.Worker{Name: "old", Image: push(t, b, s, "old", module)}
			if _, err := b.Build(t.Context(), from, s.host+"/shop/acme:1", []build.Worker{old}); err != nil {
				t.Fatal(err)
			}
			if out, err := b.Remove(t.Context(), old.Image); err != nil || out.Deleted != 1 {
				t.Fatalf("%+v, %v", out, err)
			}
			added := build.Worker{Name: "new", Image: push(t, b, s, "new", module)}
			if _, err := b.Build(t.Context(), from, s.host+"/shop/acme:2", []build.Worker{old, added}); err != nil {
				t.Fatal(err)
			}
			got := files(t, pull(t, s.host+"/shop/acme:2"))
			if got["workers/old/a.js"] == "" || got["workers/new/a.js"] == "" {
				t.Errorf("%v", got)
			}
			_, err := b.Build(t.Context(), from, s.host+"/shop/other:1", []build.Worker{old})
			if err == nil || build.IsTerminal(err) || !strings.Contains(err.Error(), "worker old: image "+old.Image) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestBuildHasPlatformsOfBase(t *testing.T) {
	s, b := newServer(t), newBuilder()
	worker := build.Worker{Name: "a", Image: push(t, b, s, "a", module)}
	if _, err := b.Build(t.Context(), base(t, s, "linux/amd64", "linux/arm64"), s.host+"/acme:1",
		[]build.Worker{worker}); err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(s.host+"/acme:1", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || validate.Index(index) != nil || len(manifest.Manifests) != 2 ||
		manifest.Manifests[1].Platform.String() != "linux/arm64" {
		t.Errorf("%+v, %v, %v", manifest, err, validate.Index(index))
	}
}

func TestPurgeKeepsLastByTime(t *testing.T) {
	s, b := newServer(t), newBuilder()
	from := base(t, s)
	for _, tag := range []string{"c", "a", "d", "b"} { // in the order of time
		if _, err := b.Build(t.Context(), from, s.host+"/acme:"+tag, nil); err != nil {
			t.Fatal(err)
		}
	}
	out, err := b.Purge(t.Context(), s.host+"/acme", "c", 1)
	if err != nil || out.Deleted != 2 || out.Kept != 2 {
		t.Errorf("%+v, %v", out, err)
	}
	repo, err := name.NewRepository(s.host+"/acme", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	tags, err := remote.List(repo)
	if err != nil || !slices.Equal(tags, []string{"b", "c"}) {
		t.Errorf("%v, %v", tags, err)
	}
	if n := s.count("DELETE /v2/acme/manifests/sha256"); n > 0 {
		t.Errorf("%d manifests were deleted by digest", n)
	}
	for _, repository := range []string{s.host + "/acme", s.host + "/missing"} {
		if out, err = b.RemoveRepository(t.Context(), repository); err != nil || out.Kept != 0 {
			t.Errorf("%s: %+v, %v", repository, out, err)
		}
	}
	if out, err = b.Remove(t.Context(), s.host+"/acme:b"); err != nil || out.Deleted != 0 || out.Kept != 0 {
		t.Errorf("an image that is gone: %+v, %v", out, err)
	}
}

func TestServerThatIsNoRegistry(t *testing.T) {
	h := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(h.Close)
	image, b := strings.TrimPrefix(h.URL, "http://")+"/acme:1", newBuilder()
	if out, err := b.Remove(t.Context(), image); err == nil || build.IsTerminal(err) {
		t.Errorf("remove: %+v, %v", out, err)
	}
	if out, err := b.Build(t.Context(), image, image, nil); err == nil || build.IsTerminal(err) {
		t.Errorf("build: %+v, %v", out, err)
	}
}

func TestDeleteIsNoErrorIfUnsupported(t *testing.T) {
	s, b := newServer(t), newBuilder()
	image := push(t, b, s, "a", module)
	for status, code := range map[int]string{http.StatusMethodNotAllowed: "OTHER",
		http.StatusBadRequest: "UNSUPPORTED"} {
		s.refuse = func(w http.ResponseWriter, r *http.Request) bool {
			return r.Method == http.MethodDelete && refuseWith(w, status, code)
		}
		out, err := b.Remove(t.Context(), image)
		if err != nil || out.Deleted != 0 || out.Message == "" {
			t.Errorf("status %d: %+v, %v", status, out, err)
		}
	}
}

func TestPushIsRepeatedAfterCollection(t *testing.T) {
	for name, tc := range map[string]struct {
		status, refusals int
		code             string
		fails            bool
	}{
		"blob was deleted":      {http.StatusNotFound, 2, "BLOB_UNKNOWN", false},
		"manifest lacks a blob": {http.StatusBadRequest, 2, "MANIFEST_BLOB_UNKNOWN", false},
		"registry is read-only": {http.StatusServiceUnavailable, 4, "UNAVAILABLE", false},
		"does not end":          {http.StatusNotFound, 100, "BLOB_UNKNOWN", true},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := newServer(t), newBuilder()
			var refused atomic.Int64
			s.refuse = func(w http.ResponseWriter, r *http.Request) bool {
				return r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/") &&
					refused.Add(1) <= int64(tc.refusals) && refuseWith(w, tc.status, tc.code)
			}
			url, requests := serveFiles(t, map[string]string{"/a.js": module})
			_, err := b.Push(t.Context(), s.host+"/acme/a:1", build.Script{Name: "a", URLs: []string{url + "/a.js"}})
			if (err != nil) != tc.fails || err != nil && build.IsTerminal(err) || requests.Load() != 1 {
				t.Errorf("%v, %d refusals, %d downloads", err, refused.Load(), requests.Load())
			}
		})
	}
}

func TestErrorsOfRegistries(t *testing.T) {
	s, b := newServer(t), newBuilder()
	worker := build.Worker{Name: "a", Image: push(t, b, s, "a", module)}
	from := base(t, s)
	for name, tc := range map[string]struct {
		base, image string
		workers     []build.Worker
		status      int // of requests for manifests
		want        string
		terminal    bool
	}{
		"missing base":     {base: s.host + "/missing:1", want: "missing:1 does not exist"},
		"invalid image":    {image: "x y", want: `image "x y"`, terminal: true},
		"digest":           {image: s.host + "/acme@sha256:0", want: "registry/repository:tag", terminal: true},
		"two of one name":  {workers: []build.Worker{worker, worker}, want: "worker a occurs twice", terminal: true},
		"another script":   {workers: []build.Worker{{Name: "b", Image: worker.Image}}, want: `has the script "a"`, terminal: true},
		"no credentials":   {status: http.StatusUnauthorized, want: "check the credentials"},
		"not allowed":      {status: http.StatusForbidden, want: "check the credentials"},
		"too many":         {status: http.StatusTooManyRequests, want: "DENIED: refused"},
		"server error":     {status: http.StatusBadGateway, want: "DENIED: refused"},
		"unreachable host": {image: "127.0.0.1:1/acme:1", want: "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			s.refuse = func(w http.ResponseWriter, r *http.Request) bool {
				return tc.status > 0 && strings.Contains(r.URL.Path, "/manifests/") &&
					refuseWith(w, tc.status, "DENIED")
			}
			if tc.base == "" {
				tc.base = from
			}
			if tc.image == "" {
				tc.image = s.host + "/acme:errors"
			}
			if tc.workers == nil {
				tc.workers = []build.Worker{worker}
			}
			out, err := b.Build(t.Context(), tc.base, tc.image, tc.workers)
			if err == nil || build.IsTerminal(err) != tc.terminal || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%+v, %v, terminal %t", out, err, build.IsTerminal(err))
			}
		})
	}
}
