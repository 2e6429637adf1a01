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

// FuzzTarball checks that Unpack refuses arbitrary bytes, or unpacks them within the limits
// and only below the target directory.
func FuzzTarball(f *testing.F) {
	whole := makeTarball(f, file("a/b.yaml", "x: 1"), file("c", strings.Repeat("c", 1000)))
	f.Add(whole)
	f.Add(whole[:len(whole)-4]) // the checksum is cut off
	f.Add(append(bytes.Clone(whole), whole...))
	f.Add(append(bytes.Clone(whole), 0))
	f.Add(compress(f, bytes.Repeat([]byte{0}, 1<<16)))
	f.Add([]byte("\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\x00\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		parent := t.TempDir()
		dir := filepath.Join(parent, "tree")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		size, err := Unpack(t.Context(), bytes.NewReader(b), dir, smallLimits)
		if reason := reasonOf(t, err); reason == Storage {
			t.Fatalf("a Storage error for an invalid tarball: %v", err)
		}
		expectNothingOutside(t, parent, dir)
		onDisk, merr := measure(t.Context(), dir)
		if merr != nil {
			t.Fatal(merr)
		}
		if onDisk.Bytes > smallLimits.UnpackedBytes || onDisk.Files > smallLimits.Files+1 ||
			(err == nil && onDisk != size) {
			t.Fatalf("reported %v, unpacked %v, with limits %v", size, onDisk, smallLimits)
		}
	})
}

// staticTransport returns the same response to every request, without a network.
type staticTransport func() (*http.Response, error)

func (s staticTransport) RoundTrip(*http.Request) (*http.Response, error) { return s() }

// FuzzFetch checks that a fetch with arbitrary URL, revision and digest fails or returns the
// content of the digest, and that no message contains a secret of the URL.
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
		client := &http.Client{Transport: staticTransport(func() (*http.Response, error) {
			return &http.Response{StatusCode: int(code), Header: http.Header{},
				Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body))}, nil
		})}
		fetcher, err := NewFetcher(Options{Dir: filepath.Join(dir, "cache"), CacheBytes: 1 << 20, Limits: smallLimits,
			Client: client, Attempts: 1, Backoff: time.Nanosecond})
		if err != nil {
			t.Fatal(err)
		}
		tree, err := fetcher.Fetch(t.Context(), Artifact{URL: url, Revision: revision, Digest: digest})
		if err != nil {
			reasonOf(t, err)
			if strings.Contains(err.Error(), "hunter2") && onlyInSecretParts(url, "hunter2") {
				t.Fatalf("%q: the message contains a secret of the URL: %v", url, err)
			}
			if !utf8.ValidString(err.Error()) || len(err.Error()) > 4096 {
				t.Fatalf("%q %q: a message of %d bytes: %q", url, digest, len(err.Error()), err)
			}
			return
		}
		defer tree.Release()
		if digest != digestOf(body) {
			t.Fatalf("a tree for the digest %q", digest)
		}
		if got := readTree(t, tree.Root); len(got) != 1 || got["a.yaml"] != "a: 1\n" {
			t.Fatalf("got %v", got)
		}
	})
}

// onlyInSecretParts is true if text occurs only in the parts of the URL that can be secret:
// user info, query and fragment.
func onlyInSecretParts(url, text string) bool {
	before, after, _ := strings.Cut(url, text)
	return !strings.Contains(after, text) && (strings.HasPrefix(after, "@") || strings.ContainsAny(before, "?#"))
}

// FuzzMarker checks that an arbitrary marker file is rejected, or keeps its size when it is
// written and read again.
func FuzzMarker(f *testing.F) {
	for _, seed := range []string{`{"files":1,"bytes":2}`, `{"files":-1}`, `{"bytes":9223372036854775808}`, `[]`, ``,
		`{"files":1e3}`, `null`} {
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
			t.Fatalf("%q is read as %v", data, size)
		}
		if err := writeMarker(dir, size); err != nil {
			t.Fatal(err)
		}
		if again, _, err := readMarker(dir); err != nil || again != size {
			t.Fatalf("%q is read as %v; written and read again: %v (%v)", data, size, again, err)
		}
	})
}

func TestOnlyInSecretParts(t *testing.T) {
	for url, want := range map[string]bool{"https://u:x@h/": true, "https://h/?t=x": true, "https://h/x": false,
		"https://x@h/x": false} {
		if onlyInSecretParts(url, "x") != want {
			t.Errorf("%s: want %v", url, want)
		}
	}
}
