package workers_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// startRegistry starts worker-registry with a folder, and stops it at the end of the test.
func startRegistry(t *testing.T, dir string) (host string, process *exec.Cmd) {
	t.Helper()
	host = fmt.Sprintf("127.0.0.1:%d", freePort(t))
	process = exec.Command(filepath.Join(programs, "worker-registry"), "--addr="+host, "--data="+dir)
	process.Stderr = os.Stderr
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, process) })
	eventually(t, "the registry serves", func() bool {
		resp, err := http.Get("http://" + host + "/readyz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return host, process
}

// stop ends a process with SIGTERM. Further calls do nothing.
func stop(t *testing.T, process *exec.Cmd) {
	t.Helper()
	if process.ProcessState != nil {
		return
	}
	if err := process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := process.Wait(); err != nil {
		t.Error(err)
	}
}

func blobs(t *testing.T, dir string) int {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "docker/registry/v2/blobs/sha256/*/*/data"))
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

func TestImagesInRegistryThatCollects(t *testing.T) {
	needsWorkerd(t)
	dir := t.TempDir()
	host, process := startRegistry(t, dir)
	index := v1.ImageIndex(empty.Index)
	for _, arch := range []string{"amd64", "arm64"} {
		img, err := random.Image(100, 1)
		if err != nil {
			t.Fatal(err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	if err := remote.WriteIndex(reference(t, host+"/base:1"), index); err != nil {
		t.Fatal(err)
	}
	succeeds := func(args ...string) {
		t.Helper()
		if status, result := builder(t, args...); status != 0 {
			t.Fatalf("%v: status %d, %v", args, status, result)
		}
	}
	build := func(tag string, scripts ...string) {
		t.Helper()
		args := []string{"build", "--base=" + host + "/base:1", "--image=" + host + "/acme:" + tag}
		for _, s := range scripts {
			args = append(args, fmt.Sprintf("--worker=%s=%s/shop/acme/%s:1", s, host, s))
		}
		succeeds(args...)
	}
	for _, script := range []string{"a", "b"} {
		if status, result := pushScript(t, host, script, []file{{"a.js",
			"export default { fetch: () => new Response(\"" + script + "\") };"}}); status != 0 {
			t.Fatalf("status %d, %v", status, result)
		}
	}
	build("1", "a")
	build("2", "a", "b")
	succeeds("remove", "--image="+host+"/shop/acme/a:1")
	collect(t, dir, process)
	build("3", "a") // its layer is that of an earlier image
	succeeds("purge", "--repository="+host+"/acme", "--keep=3", "--last=0")
	before := blobs(t, dir)
	collect(t, dir, process)
	if after := blobs(t, dir); after >= before {
		t.Errorf("%d files before the collection, %d after it", before, after)
	}
	stop(t, process)

	host, _ = startRegistry(t, dir)
	got, err := remote.Index(reference(t, host+"/acme:3"))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := got.IndexManifest()
	if err != nil || len(manifest.Manifests) != 2 {
		t.Fatalf("%v, %v", manifest, err)
	}
	for _, m := range manifest.Manifests {
		img, err := got.Image(m.Digest)
		if err == nil {
			err = validate.Image(img)
		}
		if err != nil {
			t.Error(err)
		}
	}
	succeeds("remove", "--repository="+host+"/acme")
	succeeds("remove", "--repository="+host+"/acme")
}

// collect requests a collection, and waits until it has deleted a blob that no image has.
func collect(t *testing.T, dir string, process *exec.Cmd) {
	t.Helper()
	unused := filepath.Join(dir, "docker/registry/v2/blobs/sha256/00")
	path := filepath.Join(unused, "00"+fmt.Sprintf("%062d", 0), "data")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := process.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	eventually(t, "garbage is collected", func() bool {
		_, err := os.Stat(path)
		return os.IsNotExist(err)
	})
}
