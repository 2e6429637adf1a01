//go:build linux

package renderworker

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ksctl/gitops/e2e/programs"
	"github.com/ksctl/gitops/stacks"
)

func kill(t testing.TB, pid string) { t.Helper(); signal(t, pid, syscall.SIGKILL) }

func signal(t testing.TB, pid string, s syscall.Signal) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(n, s); err != nil {
		t.Fatal(err)
	}
}

func TestKilledIdleWorkerIsReplaced(t *testing.T) {
	p := misbehavingPool(t, nil)
	pid := mustRender(t, p, stacks.Request{Stack: "pid"})
	kill(t, pid)
	eventually(t, "the worker exits", func() bool { return !isRunning(pid) })
	if again := mustRender(t, p, stacks.Request{Stack: "pid"}); again == pid {
		t.Errorf("worker %s replied after it was killed", pid)
	}
}

func TestRenderExceedingMemoryIsStopped(t *testing.T) {
	p := misbehavingPool(t, func(o *Options) { o.Timeout = time.Hour }) // a slow machine needs long to fill a gigabyte
	expectStopped(t, p, "eat", stacks.MemoryBound, "--render-max-memory-bytes")
}

func TestWorkersAreReusedAndExitWhenIdle(t *testing.T) {
	p := misbehavingPool(t, nil)
	pid := mustRender(t, p, stacks.Request{Stack: "pid"})
	for range 3 {
		if again := mustRender(t, p, stacks.Request{Stack: "pid"}); again != pid {
			t.Fatalf("worker %s, then %s", pid, again)
		}
	}
	if !isRunning(pid) {
		t.Error("the worker exited before its idle timeout")
	}
	brief := misbehavingPool(t, func(o *Options) { o.IdleTimeout = time.Millisecond })
	pid = mustRender(t, brief, stacks.Request{Stack: "pid"})
	eventually(t, "an idle worker exits", func() bool { return !isRunning(pid) })
}

func TestCloseStopsWorkersAndRenders(t *testing.T) {
	p := misbehavingPool(t, func(o *Options) { o.Workers = 2; o.Timeout = time.Hour })
	pid := mustRender(t, p, stacks.Request{Stack: "pid"})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if _, err := p.Render(t.Context(), stacks.Request{Stack: "loop"}); !errors.Is(err, ErrClosed) {
				t.Errorf("render in progress: %v", err)
			}
		})
	}
	eventually(t, "both renders have a worker", func() bool { return len(p.slots) == 2 })
	p.Close()
	wg.Wait()
	if isRunning(pid) {
		t.Error("a worker is running after its pool was closed")
	}
	if _, err := p.Render(t.Context(), stacks.Request{Stack: "x"}); !errors.Is(err, ErrClosed) {
		t.Errorf("render after Close: %v", err)
	}
}

func TestWorkersInheritNothing(t *testing.T) {
	t.Setenv("PASSWORD", "hunter2")
	file, err := os.Open("pool_test.go")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	inherited := openInheritable(t)
	p := misbehavingPool(t, nil)
	if got := mustRender(t, p, stacks.Request{Stack: "environment"}); strings.Contains(got, "hunter2") ||
		strings.Count(got, "=") != 1 || !strings.HasPrefix(got, "GOMEMLIMIT=") {
		t.Errorf("environment and arguments of a worker: %q", got)
	}
	for opened := range strings.FieldsSeq(mustRender(t, p, stacks.Request{Stack: "files"})) {
		nr, target, _ := strings.Cut(opened, "=")
		own := strings.HasPrefix(target, "anon_inode:[event") || strings.HasPrefix(target, "/sys/fs/cgroup/") ||
			strings.HasPrefix(target, "/proc/")
		standard := (nr == "0" || nr == "1" || nr == "2") && strings.HasPrefix(target, "pipe:")
		if !own && !standard || target == inherited {
			t.Errorf("open file of a worker: %s", opened)
		}
	}
}

func TestSandboxDeniesNetworkProgramsAndFiles(t *testing.T) {
	if _, known := auditArchitecture(); !known {
		t.Skip("the seccomp filter does not support this architecture")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	p := misbehavingPool(t, nil)
	written := filepath.Join(t.TempDir(), "file")
	for name, path := range map[string]string{"network": l.Addr().String(), "resolve": "", "program": "",
		"write": written} {
		got := mustRender(t, p, stacks.Request{Stack: name, Path: path})
		if _, why, _ := strings.Cut(got, ": "); why == "" {
			t.Errorf("%s: got %q, want an error", name, got)
		}
	}
	if info, err := os.Stat(written); err == nil && info.Size() > 0 {
		t.Errorf("%d bytes were written", info.Size())
	}
}
func auditArchitecture() (uint32, bool) {
	arch, known := auditArchitectures[runtime.GOARCH]
	return arch, known
}

// openInheritable opens a file without the close-on-exec flag, like the files that this process
// inherited. It returns the name of the file.
func openInheritable(t testing.TB) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "inherited")
	if err := os.WriteFile(name, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(name, unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return name
}

// A worker dies when its parent is killed, even a stopped worker, which cannot read EOF from its
// standard input.
func TestWorkerDiesWithItsParent(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "parent")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, failure, _ := strings.Cut(strings.TrimSpace(line), " ")
	if failure != "<nil>" || !isRunning(pid) {
		t.Fatalf("%q", line)
	}
	signal(t, pid, syscall.SIGSTOP)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, "worker "+pid+" dies with its parent", func() bool { return !isRunning(pid) })
}

// A worker exits at EOF without help from the kernel, even while its render loops.
func TestWorkerExitsOnEOF(t *testing.T) {
	o := testOptions("misbehave")
	o.memoryPollInterval = defaultMemoryPollInterval
	w, err := launch(t.Context(), &o)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(w.wait)
	if _, err := w.handshake(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := writeMessage(w.stdin, stacks.Request{Stack: "loop"}); err != nil {
		t.Fatal(err)
	}
	if err := w.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if got := w.cmd.ProcessState.String(); got != "exit status 0" {
		t.Errorf("got %s, want exit status 0", got)
	}
}

// controllerBinary builds the controller as it is shipped. Without the race detector, the kernel's
// memory limit applies, and without cgo, the Go runtime handles reaching it.
var controllerBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "render-worker-")
	if err != nil {
		return "", err
	}
	return programs.Build(context.Background(), dir, programs.Controller)
})

func productionPool(t testing.TB, change func(*Options)) *Pool {
	t.Helper()
	exe, err := controllerBinary()
	if err != nil {
		t.Fatal(err)
	}
	o := testOptions(Command)
	o.Program, o.Workers = exe, 1
	if change != nil {
		change(&o)
	}
	p := New(o)
	t.Cleanup(p.Close)
	return p
}

const chartStack = "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: demo}\nspec:\n  version: 1.0.0\n " +
	" components:\n  - name: a\n    helm: {chart: chart}\n"

func chartRequest(t testing.TB, template string) stacks.Request {
	t.Helper()
	return newRequest(t,
		map[string]string{"stack.yaml": chartStack, "chart/Chart.yaml": "apiVersion: v2\nname: c\nversion: 1.0.0\n",
			"chart/templates/t.yaml": template})
}

const configMapYAML = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"

// A chart that misuses its worker fails within the limits, and the next render succeeds.
func TestHostileCharts(t *testing.T) {
	smallMemory := productionPool(t, func(o *Options) { o.MemoryBytes = 256 << 20 })
	shortTimeout := productionPool(t, func(o *Options) { o.Timeout = time.Second })
	for name, c := range map[string]struct {
		pool     *Pool
		template string
		bound    stacks.Bound // empty if the renderer itself returns an error
	}{
		"a nested loop of a million times a million": {shortTimeout,
			"{{ range until 1000000 }}{{ range until 1000000 }}{{ end }}{{ end }}", stacks.TimeBound},
		"a string that doubles": {smallMemory,
			`{{ $x := "xxxxxxxx" }}{{ range until 60 }}{{ $x = printf "%s%s" $x $x }}{{ end }}`, stacks.MemoryBound},
		"a list that grows": {smallMemory,
			`{{ $l := list }}{{ range until 1000000 }}{{ $l = append $l (repeat 1000000 "x") }}{{ end }}`,
			stacks.MemoryBound},
		"an output of gigabytes": {smallMemory,
			`{{ range until 1000000 }}{{ repeat 1000000 "x" }}{{ end }}`, stacks.MemoryBound},
		"a format verb a gigabyte wide": {smallMemory, `{{ printf "%01000000000d%01000000000d" 1 1 }}`,
			""},
		"a template that includes itself": {smallMemory,
			`{{ define "a" }}{{ include "a" . }}{{ end }}{{ include "a" . }}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.pool.Render(t.Context(), chartRequest(t, c.template))
			var e *stacks.StoppedError
			switch {
			case c.bound == "" && !errors.As(err, new(*stacks.Error)):
				t.Errorf("got %T %v, want a *stacks.Error", err, err)
			// The kernel's limit can stop the worker before the memory poll does.
			case c.bound != "" &&
				(!errors.As(err, &e) || e.Bound != c.bound &&
					(c.bound != stacks.MemoryBound || e.Bound != stacks.NoBound)):
				t.Errorf("got %T %v, want a StoppedError with bound %s", err, err, c.bound)
			}
			if _, err := smallMemory.Render(t.Context(), chartRequest(t, configMapYAML)); err != nil {
				t.Errorf("next render: %v", err)
			}
		})
	}
}

// The kernel limits the memory of a worker even without the memory poll.
func TestKernelEnforcesMemoryLimit(t *testing.T) {
	p := productionPool(t, func(o *Options) { o.MemoryBytes, o.memoryPollInterval = 192<<20, time.Hour })
	if _, err := p.Render(t.Context(), chartRequest(t, configMapYAML)); err != nil {
		t.Fatal(err)
	}
	_, err := p.Render(t.Context(),
		chartRequest(t, `{{ $x := "xxxxxxxx" }}{{ range until 60 }}{{ $x = printf "%s%s" $x $x }}{{ end }}`))
	var e *stacks.StoppedError
	// The Go runtime has several messages for a failed allocation, and exits with this status.
	if !errors.As(err, &e) || e.Bound != stacks.NoBound ||
		!strings.Contains(err.Error(), "(exit status 2, fatal error: ") ||
		!strings.Contains(err.Error(), "--render-max-memory-bytes") {
		t.Errorf("%T %v", err, err)
	}
}

// smallStack returns the request for a stack of four objects: a Deployment, a Service, a ConfigMap
// and a ServiceAccount, with an image, replicas and two patches.
func smallStack(b *testing.B) stacks.Request {
	return newRequest(b, map[string]string{
		"stack.yaml": "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: demo}\nspec:\n  version: 1.0.0\n " +
			" components: [{name: app, kustomize: {path: k}}]\n",
		"k/kustomization.yaml": `resources: [all.yaml]
images: [{name: web, newTag: "2"}]
replicas: [{name: web, count: 3}]
patches:
- patch: |-
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: web}
    spec: {template: {spec: {containers: [{name: web, args: [--fast]}]}}}
- target: {kind: Service}
  patch: '[{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]'
`,
		"k/all.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 1, template: " +
			"{spec: {containers: [{name: web, image: 'web:1'}]}}}\n---\n" +
			"apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80}]}\n---\n" + configMapYAML +
			"---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: web}\n"})
}

// BenchmarkRender measures the cost of a worker: a small render in this process, in a running
// worker, and in a worker that has to be started.
func BenchmarkRender(b *testing.B) {
	measure := func(b *testing.B, render func() error) {
		var took []time.Duration
		for b.Loop() {
			began := time.Now()
			if err := render(); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	}
	req := smallStack(b)
	b.Run("InProcess", func(b *testing.B) {
		measure(b, func() error { _, err := stacks.Render(b.Context(), req); return err })
	})
	b.Run("Worker", func(b *testing.B) {
		p := productionPool(b, nil)
		measure(b, func() error { _, err := p.Render(b.Context(), req); return err })
		b.ReportMetric(float64(residentBytes(p.idle[0].cmd.Process.Pid)>>20), "MiB")
	})
	b.Run("NewWorker", func(b *testing.B) {
		o := productionPool(b, nil).opts
		measure(b, func() error {
			p := New(o)
			defer p.Close()
			_, err := p.Render(b.Context(), req)
			return err
		})
	})
}
