// Package workers_test runs the programs of the Workers system against registries, and scripts
// with workerd.
package workers_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/ksctl/gitops/e2e/workers/image"
)

// soon bounds every wait.
const soon = time.Minute

var (
	programs string // the folder of compiled programs
	workerd  string
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := runTests(m)
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (int, error) {
	if reasonToSkip() != "" {
		return m.Run(), nil
	}
	var err error
	if programs, err = os.MkdirTemp("", "workers"); err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(programs) }()
	ctx := context.Background()
	if workerd, err = image.Workerd(ctx); err != nil {
		return 0, err
	}
	if err := image.Compile(ctx, programs, append([]string{"worker-registry"}, image.Programs...)...); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

func reasonToSkip() string {
	if testing.Short() {
		return "with -short, nothing is installed with npm"
	}
	return image.MissingRequirement()
}

func needsWorkerd(t *testing.T) {
	t.Helper()
	if reason := reasonToSkip(); reason != "" {
		t.Skip(reason)
	}
}

// builder runs worker-builder, and returns its exit status and its result.
func builder(t *testing.T, args ...string) (status int, result map[string]any) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "result")
	cmd := exec.CommandContext(t.Context(), filepath.Join(programs, "worker-builder"),
		append(args, "--insecure", "--result="+file)...)
	cmd.Env = []string{"DOCKER_CONFIG=" + t.TempDir(), "TMPDIR=" + t.TempDir()}
	out, err := cmd.CombinedOutput()
	if exit, failed := errors.AsType[*exec.ExitError](err); failed {
		status, err = exit.ExitCode(), nil
	}
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(content, &result)
	}
	if err != nil || len(content) > 4096 {
		t.Fatalf("result of %d bytes, %v\n%s", len(content), err, out)
	}
	return status, result
}

// account pushes scripts, and builds and extracts their image. It returns the folder with a folder
// for each script. The first file of a script handles requests.
func account(t *testing.T, scripts map[string][]file) string {
	t.Helper()
	host := newRegistry(t)
	base, err := random.Image(100, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(reference(t, host+"/base:1"), base); err != nil {
		t.Fatal(err)
	}
	args := []string{"build", "--base=" + host + "/base:1", "--image=" + host + "/shop/acme:1"}
	for script, files := range scripts {
		status, result := pushScript(t, host, script, files)
		if status != 0 || result["built"] != true {
			t.Fatalf("script %s: status %d, %v", script, status, result)
		}
		args = append(args, fmt.Sprintf("--worker=%s=%s/shop/acme/%s:1", script, host, script))
	}
	if status, result := builder(t, args...); status != 0 || result["built"] != true {
		t.Fatalf("build: status %d, %v", status, result)
	}
	built, err := remote.Image(reference(t, host+"/shop/acme:1"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	extract(t, built, dir)
	return filepath.Join(dir, "workers")
}

func newRegistry(t *testing.T) (host string) {
	t.Helper()
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func reference(t *testing.T, image string) name.Reference {
	t.Helper()
	ref, err := name.ParseReference(image, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

type file struct{ name, content string }

func pushScript(t *testing.T, host, script string, files []file, args ...string) (status int, result map[string]any) {
	t.Helper()
	dir := t.TempDir()
	s := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer s.Close()
	args = append([]string{"push", "--script=" + script, "--image=" + host + "/shop/acme/" + script + ":1",
		"--workerd=" + workerd}, args...)
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f.name), []byte(f.content), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--url="+s.URL+"/"+f.name)
	}
	return builder(t, args...)
}

func extract(t *testing.T, img v1.Image, dir string) {
	t.Helper()
	content := mutate.Extract(img)
	defer func() { _ = content.Close() }()
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		var b bytes.Buffer
		if err == nil {
			_, err = b.ReadFrom(r)
		}
		path := filepath.Join(dir, h.Name)
		if err == nil && h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else if err == nil {
			err = os.WriteFile(path, b.Bytes(), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// writeSecret writes a Secret as the kubelet mounts it, and replaces an earlier version atomically.
func writeSecret(t *testing.T, dir string, data map[string]string) {
	t.Helper()
	version, err := os.MkdirTemp(mkdir(t, dir), "..version-")
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range data {
		if err := os.WriteFile(filepath.Join(version, key), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = os.Symlink("..data/"+key, filepath.Join(dir, key)) // it may exist
	}
	old, _ := os.Readlink(filepath.Join(dir, "..data"))
	if err := os.Symlink(filepath.Base(version), filepath.Join(dir, "..data_tmp")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	if old != "" {
		if err := os.RemoveAll(filepath.Join(dir, old)); err != nil {
			t.Fatal(err)
		}
	}
}

func mkdir(t *testing.T, dir string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// instance is a running worker-runtime.
type instance struct {
	cmd    *exec.Cmd
	exited chan error
	health string
	ports  map[string]int
	log    string // a file
}

type worker struct {
	Name      string  `json:"name"`
	Port      int     `json:"port"`
	EnvPrefix *string `json:"envPrefix,omitempty"`
	Secret    bool    `json:"secret,omitempty"`
}

// freePort returns a port that is free now.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// start starts worker-runtime, and stops it at the end of the test.
func start(t *testing.T, scripts, secrets string, workers []worker, args ...string) *instance {
	t.Helper()
	r := &instance{exited: make(chan error, 1), health: fmt.Sprintf("127.0.0.1:%d", freePort(t)),
		ports: map[string]int{}, log: filepath.Join(t.TempDir(), "log")}
	for i := range workers {
		workers[i].Port = freePort(t)
		r.ports[workers[i].Name] = workers[i].Port
	}
	list, err := json.Marshal(workers)
	if err != nil {
		t.Fatal(err)
	}
	output, err := os.Create(r.log)
	if err != nil {
		t.Fatal(err)
	}
	r.cmd = exec.Command(filepath.Join(programs, "worker-runtime"), append([]string{"--workers=" + string(list),
		"--scripts=" + scripts, "--secrets=" + secrets, "--dir=" + t.TempDir(), "--workerd=" + workerd,
		"--health-addr=" + r.health, "--secret-interval=100ms", "--drain=1s"}, args...)...)
	r.cmd.Stdout, r.cmd.Stderr = output, output
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.exited <- errors.Join(r.cmd.Wait(), output.Close()) }()
	t.Cleanup(func() {
		_ = r.cmd.Process.Signal(syscall.SIGTERM)
		err := <-r.exited
		r.exited <- err
		if t.Failed() {
			t.Log(r.logs(t))
		}
	})
	return r
}

func (r *instance) logs(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(r.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// ready returns the status of /readyz; 0 if there is no response.
func (r *instance) ready() int {
	resp, err := http.Get("http://" + r.health + "/readyz")
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// fresh makes each request with a connection of its own.
var fresh = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: soon}

// get returns the status and the body of a response of a worker.
func (r *instance) get(client *http.Client, worker, path string) (string, error) {
	resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d%s", r.ports[worker], path))
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return fmt.Sprint(resp.StatusCode, " ", string(body)), err
}

// eventually waits until a condition is true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(soon)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("%s: not after %s", what, soon)
		case <-tick.C:
		}
	}
}

// load sends requests to a worker until stop is called, which returns how many failed and how many
// did not.
func (r *instance) load(worker string, client *http.Client,
	valid func(string) bool) (stop func() (failed []string, ok int64)) {
	var done atomic.Bool
	var count atomic.Int64
	failures := make(chan []string)
	const senders = 4
	for range senders {
		go func() {
			var failed []string
			for !done.Load() {
				if got, err := r.get(client, worker, "/"); err != nil || !valid(got) {
					failed = append(failed, fmt.Sprint(got, err))
				} else {
					count.Add(1)
				}
			}
			failures <- failed
		}()
	}
	return func() (failed []string, ok int64) {
		done.Store(true)
		for range senders {
			failed = append(failed, <-failures...)
		}
		return failed, count.Load()
	}
}
