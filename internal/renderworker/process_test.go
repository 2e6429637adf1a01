//go:build linux

package renderworker

import (
	"bufio"
	"context"
	"errors"
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

func supportedArchitecture() (uint32, bool) {
	arch, known := architectures[runtime.GOARCH]
	return arch, known
}

// inheritable opens a file that a program started by this one inherits, as those
// are that this one inherited. It returns its name.
func inheritable(t testing.TB) string {
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

// TestNoWorkerSurvivesItsParent: not when the parent is killed either, and not
// one that is stopped, which does not notice that its input ended.
func TestNoWorkerSurvivesItsParent(t *testing.T) {
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
	if failure != "<nil>" || !alive(pid) {
		t.Fatalf("%q", line)
	}
	signal(t, pid, syscall.SIGSTOP)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, "worker "+pid+" dies with its parent", func() bool { return !alive(pid) })
}

// TestAWorkerEndsWithItsInput: also without the kernel's help, and while it loops.
func TestAWorkerEndsWithItsInput(t *testing.T) {
	o := Options{Args: []string{"naughty"}}.withDefaults()
	w, err := launch(t.Context(), &o)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(w.wait)
	if _, err := w.greet(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := send(w.in, stacks.Request{Stack: "loop"}); err != nil {
		t.Fatal(err)
	}
	if err := w.in.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if got := w.cmd.ProcessState.String(); got != "exit status 0" {
		t.Errorf("it ended with %s", got)
	}
}

// program builds the controller as it is shipped: without the race detector, the
// kernel's bound of memory holds, and without C, it is Go's runtime that meets it.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "render-worker-")
	if err != nil {
		return "", err
	}
	return programs.Build(context.Background(), dir, programs.Controller)
})

func production(t testing.TB, change func(*Options)) *Pool {
	t.Helper()
	exe, err := program()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Program: exe, Args: []string{Command}, Workers: 1}
	if change != nil {
		change(&o)
	}
	p := New(o)
	t.Cleanup(p.Close)
	return p
}

const chartStack = "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: demo}\nspec:\n  version: 1.0.0\n  components:\n  - name: a\n    helm: {chart: chart}\n"

func chart(t testing.TB, template string) stacks.Request {
	t.Helper()
	return stack(t, map[string]string{"stack.yaml": chartStack, "chart/Chart.yaml": "apiVersion: v2\nname: c\nversion: 1.0.0\n", "chart/templates/t.yaml": template})
}

const object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"

// TestHostileCharts: what a chart can do to a worker ends that render, within the
// bounds, and the next one succeeds.
func TestHostileCharts(t *testing.T) {
	patient := production(t, func(o *Options) { o.MemoryBytes = 256 << 20 })
	hasty := production(t, func(o *Options) { o.Timeout = time.Second })
	for name, c := range map[string]struct {
		pool     *Pool
		template string
		bound    stacks.Bound // empty: the renderer itself refuses it
	}{
		"a loop of a million times a million":  {hasty, "{{ range until 1000000 }}{{ range until 1000000 }}{{ end }}{{ end }}", stacks.TimeBound},
		"a text that doubles":                  {patient, `{{ $x := "xxxxxxxx" }}{{ range until 60 }}{{ $x = printf "%s%s" $x $x }}{{ end }}`, stacks.MemoryBound},
		"a list that grows":                    {patient, `{{ $l := list }}{{ range until 1000000 }}{{ $l = append $l (repeat 1000000 "x") }}{{ end }}`, stacks.MemoryBound},
		"an output of gigabytes":               {patient, `{{ range until 1000000 }}{{ repeat 1000000 "x" }}{{ end }}`, stacks.MemoryBound},
		"a format that is a gigabyte wide":     {patient, `{{ printf "%01000000000d%01000000000d" 1 1 }}`, ""},
		"an include of itself, again and over": {patient, `{{ define "a" }}{{ include "a" . }}{{ end }}{{ include "a" . }}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.pool.Render(t.Context(), chart(t, c.template))
			var e *stacks.StoppedError
			switch {
			case c.bound == "" && !errors.As(err, new(*stacks.Error)):
				t.Errorf("%T %v, want one that says what is wrong with the stack", err, err)
			// The kernel can be faster than who looks.
			case c.bound != "" && (!errors.As(err, &e) || e.Bound != c.bound && (c.bound != stacks.MemoryBound || e.Bound != stacks.NoBound)):
				t.Errorf("%T %v, want one that met the bound of %s", err, err, c.bound)
			}
			if _, err := patient.Render(t.Context(), chart(t, object)); err != nil {
				t.Errorf("the next one: %v", err)
			}
		})
	}
}

// TestTheKernelBoundsMemory: also when nobody looks at it.
func TestTheKernelBoundsMemory(t *testing.T) {
	p := production(t, func(o *Options) { o.MemoryBytes, o.watch = 192<<20, time.Hour })
	if _, err := p.Render(t.Context(), chart(t, object)); err != nil {
		t.Fatal(err)
	}
	_, err := p.Render(t.Context(), chart(t, `{{ $x := "xxxxxxxx" }}{{ range until 60 }}{{ $x = printf "%s%s" $x $x }}{{ end }}`))
	var e *stacks.StoppedError
	// Go's runtime has several words for memory that it does not get, and gives up with this status.
	if !errors.As(err, &e) || e.Bound != stacks.NoBound || !strings.Contains(err.Error(), "(exit status 2, fatal error: ") || !strings.Contains(err.Error(), "--render-max-memory-bytes") {
		t.Errorf("%T %v", err, err)
	}
}

// four is a stack of four objects: a Deployment, a Service, a ConfigMap and a
// ServiceAccount, with an image, replicas and two patches.
func four(b *testing.B) stacks.Request {
	return stack(b, map[string]string{
		"stack.yaml": "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: demo}\nspec:\n  version: 1.0.0\n  components: [{name: app, kustomize: {path: k}}]\n",
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
		"k/all.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 1, template: {spec: {containers: [{name: web, image: 'web:1'}]}}}\n---\n" +
			"apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80}]}\n---\n" + object + "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: web}\n"})
}

// BenchmarkRender tells what a worker costs: p50 of a small render in this
// process, in a worker that is there, and in one that has to be started.
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
	req := four(b)
	b.Run("InProcess", func(b *testing.B) {
		measure(b, func() error { _, err := stacks.Render(b.Context(), req); return err })
	})
	b.Run("Worker", func(b *testing.B) {
		p := production(b, nil)
		measure(b, func() error { _, err := p.Render(b.Context(), req); return err })
		b.ReportMetric(float64(resident(p.idle[0].cmd.Process.Pid)>>20), "MiB")
	})
	b.Run("NewWorker", func(b *testing.B) {
		o := production(b, nil).opts
		measure(b, func() error {
			p := New(o)
			defer p.Close()
			_, err := p.Render(b.Context(), req)
			return err
		})
	})
}
