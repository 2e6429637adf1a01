package renderworker

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/stacks"
)

// TestRendersTheSame: a worker gives the same results, errors and warnings, to the
// letter, as a render in this process.
func TestRendersTheSame(t *testing.T) {
	p := New(Options{Args: []string{Command}, Workers: 2, MemoryBytes: 2 << 30})
	t.Cleanup(p.Close)
	cases, err := filepath.Glob("../../stacks/testdata/render/*")
	if err != nil || len(cases) == 0 {
		t.Fatal("no cases", err)
	}
	for _, dir := range cases {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			req := stacks.Request{Root: filepath.Join(dir, "source"), Digest: "sha256:x", Path: "stacks", Install: stacks.Identity{Namespace: "team", Name: "site"},
				Capabilities: stacks.Capabilities{KubeVersion: "v1.36.3", APIVersions: []string{"apps/v1", "v1"}}, SecretKey: []byte("test key")}
			data, err := os.ReadFile(filepath.Join(dir, "request.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			if err := yaml.UnmarshalStrict(data, &req); err != nil {
				t.Fatal(err)
			}
			want, wantErr := stacks.Render(t.Context(), req)
			got, err := p.Render(t.Context(), req)
			if asJSON(t, got) != asJSON(t, want) {
				t.Errorf("the worker rendered\n%s\nand this process\n%s", asJSON(t, got), asJSON(t, want))
			}
			if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
				t.Errorf("the worker says\n%v\nand this process\n%v", err, wantErr)
			}
			if wantErr != nil && !errors.As(err, new(*stacks.Error)) {
				t.Errorf("%T is no *stacks.Error", err)
			}
		})
	}
}

func TestNumbersStayWhole(t *testing.T) {
	p := New(Options{Args: []string{Command}, MemoryBytes: 2 << 30})
	t.Cleanup(p.Close)
	req := stack(t, map[string]string{
		"stack.yaml": "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: demo}\nspec:\n  version: 1.0.0\n  components:\n  - name: a\n    manifests: [m.yaml]\n" +
			"    parameters: {schema: {properties: {n: {type: integer}}}, map: \"{'replicas': [{'name': 'x', 'count': params.n}]}\"}\n",
		"m.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec: {replicas: 1}\n"})
	req.Choices.Components = []stacks.ComponentChoice{{Name: "a", Override: map[string]any{"n": int64(7)}}}
	res, err := p.Render(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	want, err := stacks.Render(t.Context(), req)
	if err != nil || asJSON(t, res) != asJSON(t, want) || !strings.Contains(asJSON(t, res), `"replicas":7`) {
		t.Errorf("%s, want %s (%v)", asJSON(t, res), asJSON(t, want), err)
	}
}

// stopped renders a stack that is to be stopped, and then one that is to succeed.
func stopped(t *testing.T, p *Pool, name string, bound stacks.Bound, flag string) string {
	t.Helper()
	_, err := p.Render(t.Context(), stacks.Request{Stack: name})
	var e *stacks.StoppedError
	if !errors.As(err, &e) || e.Bound != bound || e.Stack != name || !strings.Contains(err.Error(), flag) {
		t.Fatalf("%s: %T %v, want one that is stopped at %s and names %s", name, err, err, bound, flag)
	}
	if errors.As(err, new(*stacks.Error)) {
		t.Errorf("%s: that it was stopped is not the stack's fault: %v", name, err)
	}
	p.opts.Timeout = time.Minute // of the next one only that it succeeds matters
	if got := says(t, p, stacks.Request{Stack: "the next one"}); got != "the next one" {
		t.Errorf("after %s: %q", name, got)
	}
	return err.Error()
}

func TestARenderThatLoopsIsStopped(t *testing.T) {
	p := naughty(t, func(o *Options) { o.Timeout = 300 * time.Millisecond })
	stopped(t, p, "loop", stacks.TimeBound, "--render-timeout")
}

func TestARenderThatEatsMemoryIsStopped(t *testing.T) {
	linuxOnly(t)
	p := naughty(t, func(o *Options) { o.Timeout = time.Hour }) // a gigabyte takes long on a slow machine
	stopped(t, p, "eat", stacks.MemoryBound, "--render-max-memory-bytes")
}

func TestAPanicIsThatRenders(t *testing.T) {
	p := naughty(t, nil)
	pid := says(t, p, stacks.Request{Stack: "pid"})
	_, err := p.Render(t.Context(), stacks.Request{Stack: "panic"})
	if e := new(stacks.Error); !errors.As(err, &e) || e.Stack != "panic" || !strings.Contains(err.Error(), "gave up") {
		t.Errorf("%T %v", err, err)
	}
	if again := says(t, p, stacks.Request{Stack: "pid"}); again != pid {
		t.Error("a panic costs no worker")
	}
}

func TestAWorkerThatDiesIsReplacedOnce(t *testing.T) {
	p := naughty(t, nil)
	once := filepath.Join(t.TempDir(), "once")
	if err := os.WriteFile(once, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := says(t, p, stacks.Request{Stack: "die-once", Path: once}); got != "survived" {
		t.Errorf("got %q", got)
	}
	message := stopped(t, p, "die", stacks.NoBound, "exit status 3")
	if !strings.Contains(message, "and so did a second one") {
		t.Errorf("it does not say that it was tried again: %s", message)
	}
}

func TestAWorkerThatIsKilledWhileIdleIsReplaced(t *testing.T) {
	linuxOnly(t)
	p := naughty(t, nil)
	pid := says(t, p, stacks.Request{Stack: "pid"})
	kill(t, pid)
	eventually(t, "the worker is gone", func() bool { return !alive(pid) })
	if again := says(t, p, stacks.Request{Stack: "pid"}); again == pid {
		t.Errorf("worker %s answered after its end", pid)
	}
}

func TestWhatIsNoFrameEndsTheWorker(t *testing.T) {
	p := naughty(t, nil)
	if _, err := p.Render(t.Context(), stacks.Request{Stack: "garbage"}); !errors.Is(err, errFrame) {
		t.Errorf("%v", err)
	}
	if got := says(t, p, stacks.Request{Stack: "noise"}); got != "quiet" {
		t.Errorf("what a library prints got between: %q", got)
	}
}

func TestOutputIsBounded(t *testing.T) {
	p := naughty(t, func(o *Options) { o.OutputBytes = 1 << 20 })
	_, err := p.Render(t.Context(), stacks.Request{Stack: "large"})
	if !errors.As(err, new(*stacks.Error)) || !strings.Contains(err.Error(), "--render-max-output-bytes") {
		t.Errorf("%T %v", err, err)
	}
	large := func(context.Context, stacks.Request) (stacks.Result, error) {
		return stacks.Result{StackVersion: strings.Repeat("x", 2<<20)}, nil
	}
	_, err = inProcess(time.Minute, 1<<20, large)(t.Context(), stacks.Request{Stack: "large"})
	if !errors.As(err, new(*stacks.Error)) || !strings.Contains(err.Error(), "--render-max-output-bytes") {
		t.Errorf("in this process: %T %v", err, err)
	}
}

func TestTimeInThisProcessIsBounded(t *testing.T) {
	slow := func(ctx context.Context, _ stacks.Request) (stacks.Result, error) {
		<-ctx.Done()
		return stacks.Result{}, stacks.Errors{{Message: "stopped", Err: ctx.Err()}}
	}
	_, err := inProcess(time.Millisecond, 1<<20, slow)(t.Context(), stacks.Request{Stack: "s"})
	if e := new(stacks.StoppedError); !errors.As(err, &e) || e.Bound != stacks.TimeBound {
		t.Errorf("%T %v", err, err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := inProcess(time.Hour, 1<<20, slow)(gone, stacks.Request{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%T %v", err, err)
	}
}

func TestErrorsKeepTheirTypes(t *testing.T) {
	p := naughty(t, nil)
	_, err := p.Render(t.Context(), stacks.Request{Stack: "wrong"})
	var all stacks.Errors
	if !errors.As(err, &all) || len(all) != 2 || *all[0] != (stacks.Error{File: "a.yaml", Line: 3, Component: "c", Message: "no", Suggestion: "yes"}) {
		t.Errorf("%#v", err)
	}
	_, err = p.Render(t.Context(), stacks.Request{Stack: "plain"})
	if err == nil || err.Error() != "the disk is gone" || errors.As(err, new(*stacks.Error)) {
		t.Errorf("%T %v", err, err)
	}
}

func TestWorkersAreUsedAgainAndGoneWhenIdle(t *testing.T) {
	linuxOnly(t)
	p := naughty(t, nil)
	pid := says(t, p, stacks.Request{Stack: "pid"})
	for range 3 {
		if again := says(t, p, stacks.Request{Stack: "pid"}); again != pid {
			t.Fatalf("worker %s, then %s", pid, again)
		}
	}
	if !alive(pid) {
		t.Error("it is kept for a while")
	}
	brief := naughty(t, func(o *Options) { o.Idle = time.Millisecond })
	pid = says(t, brief, stacks.Request{Stack: "pid"})
	eventually(t, "an idle worker ends", func() bool { return !alive(pid) })
}

func TestOneLoopIsNobodyElsesMatter(t *testing.T) {
	p := naughty(t, func(o *Options) { o.Workers = 2; o.Timeout = time.Hour })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var loop, others sync.WaitGroup
	loop.Go(func() {
		if _, err := p.Render(ctx, stacks.Request{Stack: "loop"}); !errors.Is(err, context.Canceled) {
			t.Errorf("the loop: %v", err)
		}
	})
	eventually(t, "the loop has a worker", func() bool { return len(p.slots) == 1 })
	// They end while it goes on.
	for range 20 {
		others.Go(func() {
			res, err := p.Render(ctx, stacks.Request{Stack: "other"})
			if err != nil || res.StackVersion != "other" {
				t.Errorf("got %q %v", res.StackVersion, err)
			}
		})
	}
	gone := make(chan struct{})
	go func() { others.Wait(); close(gone) }()
	eventually(t, "the others are rendered", func() bool {
		select {
		case <-gone:
			return true
		default:
			return false
		}
	})
	// Nobody wants it any more, and only killing its worker ends it.
	cancel()
	loop.Wait()
}

func TestCloseEndsEverything(t *testing.T) {
	linuxOnly(t)
	p := naughty(t, func(o *Options) { o.Workers = 2; o.Timeout = time.Hour })
	pid := says(t, p, stacks.Request{Stack: "pid"})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if _, err := p.Render(t.Context(), stacks.Request{Stack: "loop"}); !errors.Is(err, ErrClosed) {
				t.Errorf("a render under way: %v", err)
			}
		})
	}
	eventually(t, "both render", func() bool { return len(p.slots) == 2 })
	p.Close()
	wg.Wait()
	if alive(pid) {
		t.Error("a worker outlives its pool")
	}
	if _, err := p.Render(t.Context(), stacks.Request{Stack: "x"}); !errors.Is(err, ErrClosed) {
		t.Errorf("a render after it: %v", err)
	}
}

func TestWorkersInheritNothing(t *testing.T) {
	linuxOnly(t)
	t.Setenv("PASSWORD", "hunter2")
	file, err := os.Open("pool_test.go")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	inherited := inheritable(t)
	p := naughty(t, nil)
	if got := says(t, p, stacks.Request{Stack: "environment"}); strings.Contains(got, "hunter2") || strings.Count(got, "=") != 1 || !strings.HasPrefix(got, "GOMEMLIMIT=") {
		t.Errorf("a worker has %q", got)
	}
	for opened := range strings.FieldsSeq(says(t, p, stacks.Request{Stack: "files"})) {
		nr, target, _ := strings.Cut(opened, "=")
		own := strings.HasPrefix(target, "anon_inode:[event") || strings.HasPrefix(target, "/sys/fs/cgroup/") || strings.HasPrefix(target, "/proc/")
		standard := (nr == "0" || nr == "1" || nr == "2") && strings.HasPrefix(target, "pipe:")
		if !own && !standard || target == inherited {
			t.Errorf("a worker has %s", opened)
		}
	}
}

func TestWorkersReachNothing(t *testing.T) {
	linuxOnly(t)
	if _, known := supportedArchitecture(); !known {
		t.Skip("there is no list of system calls for this architecture")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	p := naughty(t, nil)
	written := filepath.Join(t.TempDir(), "file")
	for name, path := range map[string]string{"network": l.Addr().String(), "resolve": "", "program": "", "write": written} {
		got := says(t, p, stacks.Request{Stack: name, Path: path})
		if _, why, _ := strings.Cut(got, ": "); why == "" {
			t.Errorf("%s: %q, and nothing was to be reached", name, got)
		}
	}
	if info, err := os.Stat(written); err == nil && info.Size() > 0 {
		t.Errorf("%d bytes were written", info.Size())
	}
}
