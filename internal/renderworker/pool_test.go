package renderworker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/stacks"
)

// A worker returns exactly the same results, errors and warnings as a render in this process.
func TestWorkerRendersSameAsInProcess(t *testing.T) {
	o := testOptions(Command)
	o.MemoryBytes = 2 << 30
	p := New(o)
	t.Cleanup(p.Close)
	cases, err := filepath.Glob("../../stacks/testdata/render/*")
	if err != nil || len(cases) == 0 {
		t.Fatal("no cases", err)
	}
	for _, dir := range cases {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			req := stacks.Request{Root: filepath.Join(dir, "source"), Digest: "sha256:x", Path: "stacks",
				Install:      stacks.Identity{Namespace: "team", Name: "site"},
				Capabilities: stacks.Capabilities{KubeVersion: "v1.36.3", APIVersions: []string{"apps/v1", "v1"}},
				SecretKey:    []byte("test key")}
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
				t.Errorf("the worker fails with\n%v\nand this process with\n%v", err, wantErr)
			}
			if wantErr != nil && !errors.As(err, new(*stacks.Error)) {
				t.Errorf("%T is not a *stacks.Error", err)
			}
		})
	}
}

func TestWorkerKeepsIntegers(t *testing.T) {
	o := testOptions(Command)
	o.MemoryBytes = 2 << 30
	p := New(o)
	t.Cleanup(p.Close)
	req := newRequest(t, map[string]string{
		"stack.yaml": "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: demo}\nspec:\n  version: 1.0.0\n " +
			" components:\n  - name: a\n    manifests: [m.yaml]\n" +
			"    parameters: {schema: {properties: {n: {type: integer}}}, " +
			"map: \"{'replicas': [{'name': 'x', 'count': params.n}]}\"}\n",
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

// expectStopped renders a stack that must be stopped at the given bound with a message that
// contains flag, and then one that must succeed. It returns the message.
func expectStopped(t *testing.T, p *Pool, name string, bound stacks.Bound, flag string) string {
	t.Helper()
	_, err := p.Render(t.Context(), stacks.Request{Stack: name})
	var e *stacks.StoppedError
	if !errors.As(err, &e) || e.Bound != bound || e.Stack != name || !strings.Contains(err.Error(), flag) {
		t.Fatalf("%s: got %T %v, want a StoppedError with bound %s that contains %s", name, err, err, bound, flag)
	}
	if errors.As(err, new(*stacks.Error)) {
		t.Errorf("%s: a stopped render must not be a *stacks.Error: %v", name, err)
	}
	p.opts.Timeout = time.Minute // the next render has to succeed, however slow the machine is
	if got := mustRender(t, p, stacks.Request{Stack: "the next one"}); got != "the next one" {
		t.Errorf("after %s: %q", name, got)
	}
	return err.Error()
}

func TestRenderExceedingTimeoutIsStopped(t *testing.T) {
	p := misbehavingPool(t, func(o *Options) { o.Timeout = 300 * time.Millisecond })
	expectStopped(t, p, "loop", stacks.TimeBound, "--render-timeout")
}

func TestPanicFailsOnlyItsRender(t *testing.T) {
	p := misbehavingPool(t, nil)
	pid := mustRender(t, p, stacks.Request{Stack: "pid"})
	_, err := p.Render(t.Context(), stacks.Request{Stack: "panic"})
	if e := new(stacks.Error); !errors.As(err, &e) || e.Stack != "panic" || !strings.Contains(err.Error(), "panicked") {
		t.Errorf("%T %v", err, err)
	}
	if again := mustRender(t, p, stacks.Request{Stack: "pid"}); again != pid {
		t.Error("the worker was replaced after a panic")
	}
}

func TestExitedWorkerIsReplacedOnce(t *testing.T) {
	p := misbehavingPool(t, nil)
	once := filepath.Join(t.TempDir(), "once")
	if err := os.WriteFile(once, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := mustRender(t, p, stacks.Request{Stack: "die-once", Path: once}); got != "survived" {
		t.Errorf("got %q", got)
	}
	message := expectStopped(t, p, "die", stacks.NoBound, "exit status 3")
	if !strings.Contains(message, "twice") {
		t.Errorf("the message does not mention the second attempt: %s", message)
	}
}

func TestInvalidFrameDiscardsWorker(t *testing.T) {
	p := misbehavingPool(t, nil)
	if _, err := p.Render(t.Context(), stacks.Request{Stack: "garbage"}); !errors.Is(err, errInvalidFrame) {
		t.Errorf("%v", err)
	}
	if got := mustRender(t, p, stacks.Request{Stack: "noise"}); got != "quiet" {
		t.Errorf("output printed by a library ended up in the protocol: %q", got)
	}
}

func TestOutputLimitIsEnforced(t *testing.T) {
	p := misbehavingPool(t, func(o *Options) { o.OutputBytes = 1 << 20 })
	_, err := p.Render(t.Context(), stacks.Request{Stack: "large"})
	if !errors.As(err, new(*stacks.Error)) || !strings.Contains(err.Error(), "--render-max-output-bytes") {
		t.Errorf("%T %v", err, err)
	}
	large := func(context.Context, stacks.Request) (stacks.Result, error) {
		return stacks.Result{StackVersion: strings.Repeat("x", 2<<20)}, nil
	}
	_, err = inProcess(time.Minute, 1<<20, large)(t.Context(), stacks.Request{Stack: "large"})
	if !errors.As(err, new(*stacks.Error)) || !strings.Contains(err.Error(), "--render-max-output-bytes") {
		t.Errorf("in process: %T %v", err, err)
	}
}

func TestInProcessTimeoutIsEnforced(t *testing.T) {
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
	p := misbehavingPool(t, nil)
	_, err := p.Render(t.Context(), stacks.Request{Stack: "wrong"})
	var all stacks.Errors
	if !errors.As(err, &all) || len(all) != 2 ||
		*all[0] != (stacks.Error{File: "a.yaml", Line: 3, Component: "c", Message: "no", Suggestion: "yes"}) {
		t.Errorf("%#v", err)
	}
	_, err = p.Render(t.Context(), stacks.Request{Stack: "plain"})
	if err == nil || err.Error() != "the disk is gone" || errors.As(err, new(*stacks.Error)) {
		t.Errorf("%T %v", err, err)
	}
}

func TestLoopingRenderDoesNotBlockOthers(t *testing.T) {
	p := misbehavingPool(t, func(o *Options) { o.Workers = 2; o.Timeout = time.Hour })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var loop, others sync.WaitGroup
	loop.Go(func() {
		if _, err := p.Render(ctx, stacks.Request{Stack: "loop"}); !errors.Is(err, context.Canceled) {
			t.Errorf("looping render: %v", err)
		}
	})
	eventually(t, "the looping render has a worker", func() bool { return len(p.slots) == 1 })
	// These renders finish while the first one loops.
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
	eventually(t, "the other renders finish", func() bool {
		select {
		case <-gone:
			return true
		default:
			return false
		}
	})
	// The pool has to kill the worker: the loop does not end on cancellation.
	cancel()
	loop.Wait()
}
