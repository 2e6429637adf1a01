package artifact

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzTarball: any bytes that are served as a tarball unpack within the limits,
// below the folder and nowhere else, or are refused.
func FuzzTarball(f *testing.F) {
	whole := makeTarball(f, file("a/b.yaml", "x: 1"), file("c", strings.Repeat("c", 1000)))
	f.Add(whole)
	f.Add(whole[:len(whole)-4]) // the checksum is cut off
	f.Add(append(bytes.Clone(whole), whole...))
	f.Add(append(bytes.Clone(whole), 0))
	f.Add(compress(f, bytes.Repeat([]byte{0}, 1<<16)))
	f.Add([]byte("\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\x00\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		around := t.TempDir()
		dir := filepath.Join(around, "tree")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		size, err := Unpack(t.Context(), bytes.NewReader(b), dir, small)
		if reason := reasonOf(t, err); reason == Storage {
			t.Fatalf("a tarball is to blame, not the disk: %v", err)
		}
		nothingAround(t, around, dir)
		on, merr := measure(t.Context(), dir)
		if merr != nil {
			t.Fatal(merr)
		}
		if on.Bytes > small.UnpackedBytes || on.Files > small.Files+1 || (err == nil && on != size) {
			t.Fatalf("says %v and unpacked %v with limits %v", size, on, small)
		}
	})
}

// serving answers every request the same, without a network.
type serving func() (*http.Response, error)

func (s serving) RoundTrip(*http.Request) (*http.Response, error) { return s() }

// FuzzFetch: whatever a source says of its artifact, the fetch is refused or
// gives what the digest names; no message has what a URL hides.
func FuzzFetch(f *testing.F) {
	body := makeTarball(f, file("a.yaml", "a: 1\n"))
	f.Add("https://user:hunter2@example.com/a.tgz?token=hunter2#hunter2", "main@sha1:abc", digestOf(body), uint16(200))
	f.Add("http://example.com/a.tgz", "", "sha256:"+strings.Repeat("0", 64), uint16(200))
	f.Add("file:///etc/passwd", "x", digestOf(body), uint16(404))
	f.Add("http://[fe80::1%25eth0]/latest", "x", digestOf(body), uint16(503))
	f.Add("//hunter2@/", "\x00", "sha256:../../x", uint16(301))
	f.Add(":hunter2", "x", digestOf(body), uint16(401))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, url, revision, digest string, code uint16) {
		client := &http.Client{Transport: serving(func() (*http.Response, error) {
			return &http.Response{StatusCode: int(code), Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body))}, nil
		})}
		fetcher, err := NewFetcher(Options{Dir: filepath.Join(dir, "cache"), CacheBytes: 1 << 20, Limits: small, Client: client, Attempts: 1, Backoff: time.Nanosecond})
		if err != nil {
			t.Fatal(err)
		}
		tree, err := fetcher.Fetch(t.Context(), Artifact{URL: url, Revision: revision, Digest: digest})
		if err != nil {
			reasonOf(t, err)
			if strings.Contains(err.Error(), "hunter2") && hides(url, "hunter2") {
				t.Fatalf("%q: the message tells what the URL hides: %v", url, err)
			}
			if !utf8.ValidString(err.Error()) || len(err.Error()) > 4096 {
				t.Fatalf("%q %q: a message of %d bytes: %q", url, digest, len(err.Error()), err)
			}
			return
		}
		defer tree.Release()
		if digest != digestOf(body) {
			t.Fatalf("%q gave a tree", digest)
		}
		if got := treeOf(t, tree.Root); len(got) != 1 || got["a.yaml"] != "a: 1\n" {
			t.Fatalf("got %v", got)
		}
	})
}

// hides is true when a text stands in a URL only where a secret may.
func hides(url, text string) bool {
	before, after, _ := strings.Cut(url, text)
	return !strings.Contains(after, text) && (strings.HasPrefix(after, "@") || strings.ContainsAny(before, "?#"))
}

// FuzzMarker: any file that says what a cached tree holds is read, or the tree
// is measured anew.
func FuzzMarker(f *testing.F) {
	for _, seed := range []string{`{"files":1,"bytes":2}`, `{"files":-1}`, `{"bytes":9223372036854775808}`, `[]`, ``, `{"files":1e3}`, `null`} {
		f.Add([]byte(seed))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, markerName), data, 0o600); err != nil {
			t.Fatal(err)
		}
		size, _, err := readMarker(dir)
		if err != nil {
			return
		}
		if size.Files < 0 || size.Bytes < 0 {
			t.Fatalf("%q is %v", data, size)
		}
		if err := writeMarker(dir, size); err != nil {
			t.Fatal(err)
		}
		if again, _, err := readMarker(dir); err != nil || again != size {
			t.Fatalf("%q is %v, written and read %v (%v)", data, size, again, err)
		}
	})
}

func TestHides(t *testing.T) {
	for url, want := range map[string]bool{"https://u:x@h/": true, "https://h/?t=x": true, "https://h/x": false, "https://x@h/x": false} {
		if hides(url, "x") != want {
			t.Errorf("%s: want %v", url, want)
		}
	}
}
