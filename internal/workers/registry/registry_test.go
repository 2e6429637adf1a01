package registry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"golang.org/x/crypto/bcrypt"

	"github.com/ksctl/gitops/internal/workers/build"
	"github.com/ksctl/gitops/internal/workers/registry"
)

// open opens a registry in a folder, and returns its host.
func open(t *testing.T, o registry.Options) (*registry.Registry, string) {
	t.Helper()
	o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	if o.WriteTimeout == 0 {
		o.WriteTimeout = time.Minute
	}
	if o.UploadAge == 0 {
		o.UploadAge = time.Hour
	}
	r, err := registry.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(r)
	t.Cleanup(func() {
		s.Close()
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r, strings.TrimPrefix(s.URL, "http://")
}

func reference(t *testing.T, image string) name.Tag {
	t.Helper()
	ref, err := name.NewTag(image, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// newImage returns an image with layers.
func newImage(t *testing.T, layers ...v1.Layer) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func newLayer(t *testing.T) v1.Layer {
	t.Helper()
	layer, err := random.Layer(1000, "application/vnd.oci.image.layer.v1.tar+gzip")
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

func push(t *testing.T, image string, img v1.Image) {
	t.Helper()
	if err := remote.Write(reference(t, image), img); err != nil {
		t.Fatal(err)
	}
}

func check(t *testing.T, image string) {
	t.Helper()
	img, err := remote.Image(reference(t, image))
	if err == nil {
		err = validate.Image(img)
	}
	if err != nil {
		t.Errorf("%s: %v", image, err)
	}
}

// hasBlob reports whether the storage has the content of a layer.
func hasBlob(t *testing.T, dir string, layer v1.Layer) bool {
	t.Helper()
	digest, err := layer.Digest()
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(filepath.Join(dir, "docker/registry/v2/blobs/sha256", digest.Hex[:2], digest.Hex, "data"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return err == nil
}

func TestContentSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	_, host := open(t, registry.Options{Dir: dir})
	img := newImage(t, newLayer(t))
	push(t, host+"/acme/a:1", img)
	check(t, host+"/acme/a:1")
	_, host = open(t, registry.Options{Dir: dir})
	check(t, host+"/acme/a:1")
}

func TestCollectDeletesOnlyWhatNoTagRefersTo(t *testing.T) {
	dir := t.TempDir()
	r, host := open(t, registry.Options{Dir: dir})
	if err := r.Collect(t.Context()); err != nil {
		t.Fatalf("an empty registry: %v", err)
	}
	shared, deleted, moved, child := newLayer(t), newLayer(t), newLayer(t), newLayer(t)
	push(t, host+"/acme/kept:1", newImage(t, shared))
	push(t, host+"/acme/kept:2", newImage(t, moved))
	push(t, host+"/acme/kept:2", newImage(t, shared, newLayer(t))) // the tag moves
	push(t, host+"/acme/deleted:1", newImage(t, shared, deleted))
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: newImage(t, child)})
	if err := remote.WriteIndex(reference(t, host+"/acme/index:1"), index); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a tag that is gone is deleted, too
		b := &build.Builder{Insecure: true, Backoff: func(int) time.Duration { return time.Millisecond }}
		if _, err := b.Remove(t.Context(), host+"/acme/deleted:1"); err != nil {
			t.Fatal(err)
		}
	}
	if !hasBlob(t, dir, deleted) {
		t.Fatal("the content was deleted with its tag")
	}
	if err := r.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if hasBlob(t, dir, deleted) || hasBlob(t, dir, moved) {
		t.Error("content of a deleted or moved tag is left")
	}
	if !hasBlob(t, dir, shared) || !hasBlob(t, dir, child) {
		t.Error("content of a tag was deleted")
	}
	check(t, host+"/acme/kept:1")
	check(t, host+"/acme/kept:2")
	if got, err := remote.Index(reference(t, host+"/acme/index:1")); err != nil || validate.Index(got) != nil {
		t.Errorf("the index: %v", err)
	}
	// What a collection deleted can be pushed again.
	push(t, host+"/acme/deleted:1", newImage(t, shared, deleted))
	check(t, host+"/acme/deleted:1")
}

func TestTwoTagsOfOneDigestAreDeletedSeparately(t *testing.T) {
	r, host := open(t, registry.Options{Dir: t.TempDir()})
	img := newImage(t, newLayer(t))
	push(t, host+"/acme:1", img)
	push(t, host+"/acme:2", img)
	b := &build.Builder{Insecure: true, Backoff: func(int) time.Duration { return time.Millisecond }}
	if out, err := b.Purge(t.Context(), host+"/acme", "2", 0); err != nil || out.Deleted != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	if err := r.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(t, host+"/acme:2")
	if out, err := b.RemoveRepository(t.Context(), host+"/acme"); err != nil || out.Deleted != 1 {
		t.Errorf("%+v, %v", out, err)
	}
	if err := r.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, err := b.RemoveRepository(t.Context(), host+"/acme"); err != nil || out.Deleted != 0 {
		t.Errorf("a repository without tags: %+v, %v", out, err)
	}
}

// startUpload starts a request that writes, and does not end before its body does.
func startUpload(t *testing.T, host string) (body *io.PipeWriter, status chan int) {
	t.Helper()
	resp, err := http.Post("http://"+host+"/v2/acme/a/blobs/uploads/", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	reader, writer := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, resp.Header.Get("Location"), reader)
	if err != nil {
		t.Fatal(err)
	}
	status = make(chan int, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			status <- 0
			return
		}
		_ = resp.Body.Close()
		status <- resp.StatusCode
	}()
	// More than the buffers of the connection have, so that the request has begun.
	if _, err := writer.Write(make([]byte, 32<<20)); err != nil {
		t.Fatal(err)
	}
	return writer, status
}

func TestCollectWaitsForWritesAndRefusesOthers(t *testing.T) {
	r, host := open(t, registry.Options{Dir: t.TempDir()})
	push(t, host+"/acme/old:1", newImage(t, newLayer(t)))
	body, status := startUpload(t, host)
	collected := make(chan error, 1)
	go func() { collected <- r.Collect(t.Context()) }()

	// Writes are refused as soon as the collection waits.
	for {
		resp, err := http.Post("http://"+host+"/v2/acme/b/blobs/uploads/", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		content, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusServiceUnavailable {
			if resp.Header.Get("Retry-After") == "" || !bytes.Contains(content, []byte(`"UNAVAILABLE"`)) {
				t.Errorf("%v, %s", resp.Header, content)
			}
			break
		}
	}
	check(t, host+"/acme/old:1") // reads go on
	select {
	case err := <-collected:
		t.Fatalf("the collection did not wait: %v", err)
	default:
	}
	// A push of the builder succeeds after retries. The first of them ends the wait.
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "export default {};")
	}))
	t.Cleanup(files.Close)
	retries := 0
	b := &build.Builder{Insecure: true, Now: time.Now, Downloader: &build.Downloader{Timeout: time.Minute},
		Remote: []remote.Option{remote.WithRetryBackoff(remote.Backoff{Steps: 1})},
		Backoff: func(int) time.Duration {
			retries++
			if retries == 1 {
				_ = body.Close()
				if err := <-collected; err != nil {
					t.Error(err)
				}
			}
			return time.Millisecond
		}}
	out, err := b.Push(t.Context(), host+"/acme/new:1", build.Script{Name: "new", URLs: []string{files.URL + "/a.js"}})
	if err != nil || !out.Built || retries == 0 {
		t.Errorf("%+v, %v, %d retries", out, err, retries)
	}
	if got := <-status; got != http.StatusAccepted {
		t.Errorf("the upload that ran ended with status %d", got)
	}
	check(t, host+"/acme/new:1")
}

func TestCollectIsPostponedIfWritesDoNotEnd(t *testing.T) {
	r, host := open(t, registry.Options{Dir: t.TempDir(), WriteTimeout: time.Millisecond})
	body, status := startUpload(t, host)
	if err := r.Collect(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	push(t, host+"/acme/a:1", newImage(t, newLayer(t))) // writes are permitted again
	_ = body.Close()
	<-status
}

func TestCollectPurgesOldUploads(t *testing.T) {
	dir := t.TempDir()
	r, host := open(t, registry.Options{Dir: dir, UploadAge: time.Nanosecond})
	body, status := startUpload(t, host)
	_ = body.Close()
	<-status
	uploads := func() []string {
		found, err := filepath.Glob(filepath.Join(dir, "docker/registry/v2/repositories/acme/a/_uploads/*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if len(uploads()) != 1 {
		t.Fatalf("uploads %v", uploads())
	}
	if err := r.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(uploads()) != 0 {
		t.Errorf("uploads %v are left", uploads())
	}
}

func TestServeCollectsOnRequestAndEndsWithContext(t *testing.T) {
	dir := t.TempDir()
	r, err := registry.New(t.Context(), registry.Options{Dir: dir, WriteTimeout: time.Minute, UploadAge: time.Hour,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	collect, served := make(chan struct{}), make(chan error, 1)
	go func() { served <- r.Serve(ctx, listener, registry.ServeOptions{Collect: collect}) }()
	host := listener.Addr().String()
	resp, err := http.Get("http://" + host + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("readiness: %d", resp.StatusCode)
	}
	layer := newLayer(t)
	push(t, host+"/acme:1", newImage(t, layer))
	if err := remote.Delete(reference(t, host+"/acme:1")); err != nil {
		t.Fatal(err)
	}
	collect <- struct{}{}
	collect <- struct{}{} // it is received after the first collection
	if hasBlob(t, dir, layer) {
		t.Error("the content of the deleted tag is left")
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestHtpasswd(t *testing.T) {
	if _, err := registry.New(t.Context(), registry.Options{Dir: t.TempDir(),
		HtpasswdFile: filepath.Join(t.TempDir(), "missing")}); err == nil {
		t.Error("got no error for a missing file")
	}
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "htpasswd")
	if err := os.WriteFile(file, []byte("me:"+string(hash)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, host := open(t, registry.Options{Dir: t.TempDir(), HtpasswdFile: file})
	img := newImage(t, newLayer(t))
	if err := remote.Write(reference(t, host+"/acme:1"), img); err == nil {
		t.Error("got no error for a push without credentials")
	}
	if err := remote.Write(reference(t, host+"/acme:1"), img,
		remote.WithAuth(&authn.Basic{Username: "me", Password: "secret"})); err != nil {
		t.Error(err)
	}
}
