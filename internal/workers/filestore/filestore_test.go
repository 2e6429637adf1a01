package filestore

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/go-logr/logr"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

const baseURL = "http://worker-api.team.svc:8788/files"

func newVolume(t *testing.T, dir string, limit int64) *Volume {
	t.Helper()
	v, err := NewVolume(dir, baseURL+"/", limit)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// newBuckets returns the Buckets of namespaces below one prefix, on a server in memory.
func newBuckets(t *testing.T, namespaces ...string) (out []*Bucket) {
	t.Helper()
	server := httptest.NewServer(gofakes3.New(s3mem.New()).Server())
	t.Cleanup(server.Close)
	c := s3.New(s3.Options{Region: "us-east-1", BaseEndpoint: &server.URL, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", "")})
	if _, err := c.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("scripts")}); err != nil {
		t.Fatal(err)
	}
	for _, namespace := range namespaces {
		b, err := NewBucket(c, "scripts/workers/", namespace, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

func TestBucketHasFilesOfItsNamespace(t *testing.T) {
	buckets := newBuckets(t, "team", "team-b")
	for _, b := range buckets {
		if _, err := b.Put(t.Context(), "index.js", []byte("content")); err != nil {
			t.Fatal(err)
		}
	}
	stored := all(t, buckets[0])
	if len(stored) != 1 {
		t.Fatalf("got %+v", stored)
	}
	if err := buckets[0].Delete(t.Context(), stored[0]); err != nil {
		t.Fatal(err)
	}
	if first, second := all(t, buckets[0]), all(t, buckets[1]); len(first) != 0 || len(second) != 1 {
		t.Errorf("got %+v and %+v after the deletion", first, second)
	}
}

func all(t *testing.T, s Store) (out []Info) {
	t.Helper()
	for i, err := range s.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, i)
	}
	return out
}

func TestStores(t *testing.T) {
	for name, tc := range map[string]struct {
		store Store
		url   string
	}{
		"volume": {newVolume(t, t.TempDir(), 0), baseURL + "/"},
		"bucket": {newBuckets(t, "team")[0], "s3://scripts/workers/team/"},
	} {
		t.Run(name, func(t *testing.T) {
			before := time.Now().Add(-2 * time.Second)
			f, err := tc.store.Put(t.Context(), "index.js", []byte("content"))
			if err != nil || f.SHA256 != hash([]byte("content")) {
				t.Fatal(f, err)
			}
			url := tc.store.URL(f)
			if url != tc.url+f.SHA256+"/index.js" {
				t.Errorf("got URL %s", url)
			}
			if parsed, ok := ParseURL(url); !ok || parsed != f {
				t.Errorf("got %v, %v of the URL", parsed, ok)
			}
			if again, err := tc.store.Put(t.Context(), "index.js", []byte("content")); err != nil || again != f {
				t.Errorf("put again: got %v, %v", again, err)
			}
			content, err := tc.store.Get(t.Context(), f)
			if err != nil || string(content) != "content" {
				t.Errorf("got %q, %v", content, err)
			}
			stored := all(t, tc.store)
			if len(stored) != 1 || stored[0].SHA256 != f.SHA256 || stored[0].Size != 7 ||
				stored[0].Modified.Before(before) {
				t.Fatalf("got %+v", stored)
			}
			// What was put again since it was listed stays.
			former := stored[0]
			former.Modified = former.Modified.Add(-time.Hour)
			if err := tc.store.Delete(t.Context(), former); err != nil || len(all(t, tc.store)) != 1 {
				t.Errorf("deleted, %v", err)
			}
			for range 2 {
				if err := tc.store.Delete(t.Context(), stored[0]); err != nil {
					t.Error(err)
				}
			}
			if _, err := tc.store.Get(t.Context(), f); !errors.Is(err, ErrNotFound) {
				t.Errorf("got %v after the deletion", err)
			}
			if _, err := tc.store.Get(t.Context(), File{"../" + f.SHA256, "index.js"}); !errors.Is(err, ErrNotFound) {
				t.Errorf("got %v of an invalid hash", err)
			}
			for _, invalid := range []string{"", ".", "..", "a/b", "../a", ".hidden", strings.Repeat("a", 129)} {
				if _, err := tc.store.Put(t.Context(), invalid, nil); err == nil {
					t.Errorf("name %q was accepted", invalid)
				}
			}
		})
	}
}

func TestParseURLOfOthers(t *testing.T) {
	for _, url := range []string{"", "https://example.com/index.js", "http://h/files/abc/index.js", "://",
		"s3://bucket/" + strings.Repeat("g", 64) + "/index.js", "http://h/" + strings.Repeat("a", 64) + "/.."} {
		if f, ok := ParseURL(url); ok {
			t.Errorf("%s: got %v", url, f)
		}
	}
}

func TestVolumeVerifiesContent(t *testing.T) {
	dir := t.TempDir()
	v := newVolume(t, dir, 0)
	f, err := v.Put(t.Context(), "index.js", []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, f.SHA256)
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Get(t.Context(), f); err == nil || !strings.Contains(err.Error(), "upload the script again") {
		t.Errorf("got %v", err)
	}
	// Another upload repairs it.
	if _, err := v.Put(t.Context(), "index.js", []byte("content")); err != nil {
		t.Fatal(err)
	}
	if content, err := v.Get(t.Context(), f); err != nil || string(content) != "content" {
		t.Errorf("got %q, %v", content, err)
	}
	if v.used != 7 {
		t.Errorf("%d bytes are used, want 7", v.used)
	}
}

func TestVolumeIsBounded(t *testing.T) {
	dir := t.TempDir()
	v := newVolume(t, dir, 10)
	if _, err := v.Put(t.Context(), "a", bytes.Repeat([]byte("a"), 8)); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Put(t.Context(), "b", []byte("bbb")); !errors.Is(err, ErrFull) {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".new-1"), []byte("left by a kill"), 0o600); err != nil {
		t.Fatal(err)
	}
	v = newVolume(t, dir, 10)
	if _, err := v.Put(t.Context(), "b", []byte("bbb")); !errors.Is(err, ErrFull) {
		t.Errorf("got %v after a restart", err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".new-1")); !os.IsNotExist(err) {
		t.Errorf("the file of a killed process is left: %v", err)
	}
	if err := v.Delete(t.Context(), all(t, v)[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Put(t.Context(), "b", []byte("bbb")); err != nil {
		t.Errorf("got %v after a deletion", err)
	}
}

func TestHandler(t *testing.T) {
	v := newVolume(t, t.TempDir(), 0)
	f, err := v.Put(t.Context(), "index.js", []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(Handler(v, 2, logr.Discard()))
	defer server.Close()
	file := "/files/" + f.SHA256
	for path, status := range map[string]int{file + "/index.js": 200, file + "/other.js": 200, file: 404,
		"/files/": 404, "/files/" + strings.Repeat("0", 64) + "/index.js": 404, "/files/..%2f..%2fetc/passwd": 404,
		file + "/..%2fa": 404} {
		if got := fetch(t, http.MethodGet, server.URL+path); got.status != status {
			t.Errorf("%s: got %d, want %d", path, got.status, status)
		}
	}
	if got := fetch(t, http.MethodPut, server.URL+"/files/"+f.SHA256+"/index.js"); got.status != 405 {
		t.Errorf("PUT: got %d", got.status)
	}
	got := fetch(t, http.MethodHead, server.URL+"/files/"+f.SHA256+"/index.js")
	if got.header.Get("ETag") != `"`+f.SHA256+`"` || !strings.Contains(got.header.Get("Cache-Control"), "immutable") ||
		got.length != 7 {
		t.Errorf("got %v", got.header)
	}
}

// fetched is an answer without its body.
type fetched struct {
	status int
	header http.Header
	length int64
}

func fetch(t *testing.T, method, url string) fetched {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	return fetched{response.StatusCode, response.Header, response.ContentLength}
}
