package tools

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const testIndex = `
releases:
  v1.35.0: {envtest-v1.35.0-linux-amd64.tar.gz: {hash: a, selfLink: https://example.com/envtest-v1.35.0/x.tar.gz}}
  v1.36.0: {envtest-v1.36.0-linux-amd64.tar.gz: {hash: b, selfLink: https://example.com/envtest-v1.36.0/x.tar.gz}}
  v1.36.2: {envtest-v1.36.2-linux-amd64.tar.gz: {hash: c, selfLink: https://example.com/envtest-v1.36.2/x.tar.gz}}
  v1.36.4: {envtest-v1.36.4-linux-amd64.tar.gz: {hash: d, selfLink: https://example.com/envtest-v1.36.4/x.tar.gz}}
  v1.36.4-rc.1: {envtest-v1.36.4-rc.1-linux-amd64.tar.gz: {hash: e, selfLink: https://example.com/x.tar.gz}}
  v1.36.3: {envtest-v1.36.3-darwin-arm64.tar.gz: {hash: f, selfLink: https://example.com/x.tar.gz}}
`

func TestNearestArchive(t *testing.T) {
	for want, version := range map[string]string{"v1.36.0": "v1.36.0", "v1.36.1": "v1.36.2", "v1.36.3": "v1.36.4",
		"v1.36.9": "v1.36.4", "v1.35.7": "v1.35.0"} {
		a, err := nearestArchive([]byte(testIndex), want, "linux", "amd64")
		if err != nil || a.version != version {
			t.Errorf("%s: %+v, %v; want %s", want, a, err, version)
		}
	}
	for _, platform := range []string{"linux/s390x", "darwin/arm64"} {
		goos, goarch, _ := strings.Cut(platform, "/")
		if _, err := nearestArchive([]byte(testIndex), "v1.35.0", goos, goarch); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v", platform, err)
		}
	}
}

func TestReleaseIndexHasOurMinorVersion(t *testing.T) {
	w, err := newBuilder(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	index, err := w.releaseIndex(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want, err := Version(APIServer)
	if err != nil {
		t.Fatal(err)
	}
	a, err := nearestArchive(index, want, "linux", "amd64")
	if err != nil || len(a.sha512) != 128 || !strings.HasPrefix(a.url, "https://") {
		t.Errorf("%+v, %v", a, err)
	}
}

// serve serves an archive with the given programs on a local server and returns its index entry.
func serve(t *testing.T, programs ...string) archive {
	t.Helper()
	var content bytes.Buffer
	zipped := gzip.NewWriter(&content)
	packed := tar.NewWriter(zipped)
	for _, name := range programs {
		text := "#!/bin/sh\necho " + name + "\n"
		err := errors.Join(packed.WriteHeader(&tar.Header{Name: "controller-tools/envtest/" + name,
			Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(text))}), writeText(packed, text))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(packed.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/envtest.tar.gz" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(content.Bytes())
	}))
	t.Cleanup(server.Close)
	sum := sha512.Sum512(content.Bytes())
	return archive{version: "v1.36.2", url: server.URL + "/envtest.tar.gz", sha512: hex.EncodeToString(sum[:])}
}

func writeText(w *tar.Writer, text string) error {
	_, err := w.Write([]byte(text))
	return err
}

func testReporter(t *testing.T) *reporter {
	t.Helper()
	return &reporter{out: t.Output(), subject: "programs", start: time.Now()}
}

func TestDownload(t *testing.T) {
	w, a := builder{cache: t.TempDir()}, serve(t, append(prebuilt, "../escape")...)
	folder, err := w.download(t.Context(), a, testReporter(t))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, APIServer))
	if err != nil || string(text) != "#!/bin/sh\necho kube-apiserver\n" {
		t.Errorf("%q, %v", text, err)
	}
	files, _ := filepath.Glob(filepath.Join(folder, "*"))
	if len(files) != len(prebuilt) {
		t.Errorf("files %q", files)
	}
	a.url = "http://127.0.0.1:1/" + filepath.Base(a.url)
	if again, err := w.download(t.Context(), a, testReporter(t)); err != nil || again != folder {
		t.Errorf("the cached download is not used: %s, %v", again, err)
	}
}

func TestDownloadRejectsTamperedArchive(t *testing.T) {
	w, a := builder{cache: t.TempDir()}, serve(t, prebuilt...)
	a.sha512 = strings.Repeat("0", 128)
	_, err := w.download(t.Context(), a, testReporter(t))
	if !errors.Is(err, ErrChecksum) || !strings.Contains(err.Error(), a.url) || errors.Is(err, ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	left, _ := filepath.Glob(filepath.Join(w.cache, "*", "*"))
	if len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestDownloadReturnsErrUnavailable(t *testing.T) {
	missing, refused := serve(t, prebuilt...), serve(t, prebuilt...)
	missing.url += ".gone"
	refused.url = "http://127.0.0.1:1/envtest.tar.gz"
	for name, a := range map[string]archive{"file not found": missing, "connection refused": refused} {
		w := builder{cache: t.TempDir()}
		if _, err := w.download(t.Context(), a, testReporter(t)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDownloadRejectsIncompleteArchive(t *testing.T) {
	w, a := builder{cache: t.TempDir()}, serve(t, Etcd)
	if _, err := w.download(t.Context(), a, testReporter(t)); err == nil || !strings.Contains(err.Error(), APIServer) {
		t.Errorf("error %v", err)
	}
}
