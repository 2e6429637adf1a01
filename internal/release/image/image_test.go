package image

import (
	"archive/tar"
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var (
	contents = []Content{
		{Platform: v1.Platform{OS: "linux", Architecture: "amd64"},
			Programs: []Program{{Name: "controller", Content: []byte("for amd64")}}},
		{Platform: v1.Platform{OS: "linux", Architecture: "arm64"},
			Programs: []Program{{Name: "controller", Content: []byte("for arm64")},
				{Name: "helper", Content: []byte("beside")}},
			Layers: []Layer{{CreatedBy: "a library", Files: []File{
				{Name: "lib/a.so", Mode: 0o755, Content: []byte("a")},
				{Name: "lib/b.so", Mode: 0o755, Content: []byte("b")}}}}},
	}
	options = Options{Created: time.Unix(1e9, 0).UTC(),
		Labels: map[string]string{"org.opencontainers.image.version": "1.2.3"}}
)

func index(t *testing.T) v1.ImageIndex {
	t.Helper()
	out, err := Index(contents, options)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func digest(t *testing.T, object interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	d, err := object.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

func TestIndexIsReproducible(t *testing.T) {
	if a, b := digest(t, index(t)), digest(t, index(t)); a != b {
		t.Errorf("the second build has another digest: %s, then %s", a, b)
	}
	other := options
	other.Created = other.Created.Add(time.Second)
	changed, err := Index(contents, other)
	if err != nil {
		t.Fatal(err)
	}
	if digest(t, changed) == digest(t, index(t)) {
		t.Error("the digest does not depend on the time of the commit")
	}
}

func TestBuildContainsOnlyListedFiles(t *testing.T) {
	img, err := Build(contents[1], options)
	if err != nil {
		t.Fatal(err)
	}
	content := mutate.Extract(img)
	defer func() { _ = content.Close() }()
	var found []string
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, h.Name+" "+h.FileInfo().Mode().String())
		if h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != 0 {
			t.Errorf("%s: owner %d:%d, modified %s", h.Name, h.Uid, h.Gid, h.ModTime)
		}
		checkFile(t, h.Name, r)
	}
	slices.Sort(found)
	want := []string{"controller -rwxr-xr-x", "etc drwxr-xr-x", "etc/ssl drwxr-xr-x", "etc/ssl/certs drwxr-xr-x",
		"etc/ssl/certs/ca-certificates.crt -rw-r--r--", "helper -rwxr-xr-x", "lib drwxr-xr-x", "lib/a.so -rwxr-xr-x",
		"lib/b.so -rwxr-xr-x"}
	if got := strings.ReplaceAll(strings.Join(found, "\n"), "/ ", " "); got != strings.Join(want, "\n") {
		t.Errorf("got %s\nwant %s", got, strings.Join(want, "\n"))
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c := config.Config; c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/controller"}) ||
		c.Labels["org.opencontainers.image.version"] != "1.2.3" {
		t.Errorf("%+v", c)
	}
	if config.Platform().String() != "linux/arm64" {
		t.Errorf("platform %s", config.Platform())
	}
}

func checkFile(t *testing.T, name string, r io.Reader) {
	t.Helper()
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case name == "controller" && string(content) != "for arm64":
		t.Errorf("%s: %q", name, content)
	case strings.HasSuffix(name, ".crt"):
		if block, _ := pem.Decode(content); block == nil || strings.Count(string(content), "BEGIN CERTIFICATE") < 50 {
			t.Errorf("%s has too few certificates: %.100q", name, content)
		}
	}
}

func TestAttachAddsReferrerToPushedIndex(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true),
		registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	tag, err := name.NewTag(strings.TrimPrefix(server.URL, "http://") + "/controller:1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	pushed, err := Push(t.Context(), tag, index(t))
	if err != nil {
		t.Fatal(err)
	}
	got, err := remote.Index(tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(got); err != nil || digest(t, got) != pushed.DigestStr() {
		t.Fatalf("%v; pushed %s", err, pushed)
	}
	manifest, err := got.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 2 || manifest.Manifests[0].Platform.String() != "linux/amd64" ||
		manifest.Annotations["org.opencontainers.image.version"] != "1.2.3" {
		t.Errorf("%+v", manifest)
	}
	subject := tag.Digest(manifest.Manifests[0].Digest.String())
	attached, err := Attach(t.Context(), subject, "application/vnd.cyclonedx+json", []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	referrers, err := remote.Referrers(subject)
	if err != nil {
		t.Fatal(err)
	}
	list, err := referrers.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Manifests) != 1 || list.Manifests[0].Digest.String() != attached.DigestStr() ||
		list.Manifests[0].ArtifactType != "application/vnd.cyclonedx+json" {
		t.Errorf("%+v", list.Manifests)
	}
}

func TestAttachRejectsMissingSubject(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	subject, err := name.NewDigest(strings.TrimPrefix(server.URL, "http://") + "/controller@sha256:" +
		strings.Repeat("0", 64))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Attach(context.Background(), subject, "a/b", []byte("x")); err == nil {
		t.Error("got no error for a subject that does not exist")
	}
}
