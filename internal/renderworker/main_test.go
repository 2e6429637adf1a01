package renderworker

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ksctl/gitops/stacks"
)

// TestMain makes the test binary a worker as well. With the argument "misbehave", the name of the
// stack selects what the worker does.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 {
		switch os.Args[1] {
		case Command:
			os.Exit(Main())
		case "misbehave":
			os.Exit(runWorker(func(settings) RenderFunc { return misbehave }))
		case "parent":
			runParent()
		}
	}
	os.Exit(m.Run())
}

// textResult returns a result that transports text, and err if there is one, in its StackVersion.
func textResult(text string, err error) (stacks.Result, error) {
	if err != nil {
		text += " " + err.Error()
	}
	return stacks.Result{StackVersion: text}, nil
}

var leakedMemory [][]byte

// misbehave is a render function. The name of the stack selects what it does.
func misbehave(_ context.Context, req stacks.Request) (stacks.Result, error) {
	switch req.Stack {
	case "loop":
		for {
			_ = req
		}
	case "eat":
		for {
			b := make([]byte, 1<<20)
			for i := range b {
				b[i] = 1
			}
			leakedMemory = append(leakedMemory, b)
		}
	case "panic":
		panic("at the renderer")
	case "die":
		os.Exit(3)
	case "overflow":
		var f func(int) int
		f = func(n int) int { return f(n+1) + n }
		return textResult(fmt.Sprint(f(0)), nil)
	case "die-once":
		if os.Remove(req.Path) == nil {
			os.Exit(3)
		}
		return textResult("survived", nil)
	case "noise":
		fmt.Println("printed by a library")
		return textResult("quiet", nil)
	case "large":
		return textResult(strings.Repeat("x", 2<<20), nil)
	case "garbage":
		_, _ = os.NewFile(1, "out").WriteString("\xff\xff\xff\xffnot a frame")
		select {}
	case "pid":
		return textResult(fmt.Sprint(os.Getpid()), nil)
	case "sleep":
		time.Sleep(time.Hour)
	}
	return inspect(req)
}

// inspect is a render function that reports what the worker process has access to.
func inspect(req stacks.Request) (stacks.Result, error) {
	switch req.Stack {
	case "environment":
		return textResult(strings.Join(append(os.Environ(), os.Args[1:]...), " "), nil)
	case "files":
		return textResult(openFiles(), nil)
	case "network":
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).Dial("tcp", req.Path)
		if err == nil {
			_ = conn.Close()
		}
		return textResult("dialed:", err)
	case "resolve":
		_, err := net.DefaultResolver.LookupHost(context.Background(), "example.com")
		return textResult("resolved:", err)
	case "program":
		return textResult("ran:", exec.Command("/bin/true").Run())
	case "write":
		return textResult("wrote:", os.WriteFile(req.Path, []byte("x"), 0o600))
	case "plain":
		return stacks.Result{}, fmt.Errorf("the disk is gone")
	case "wrong":
		return stacks.Result{},
			stacks.Errors{{File: "a.yaml", Line: 3, Component: "c", Message: "no", Suggestion: "yes"},
				{Stack: "s", Message: "never"}}
	}
	return textResult(req.Stack, nil)
}

func openFiles() string {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err.Error()
	}
	var list []string
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil {
			list = append(list, e.Name()+"="+target)
		}
	}
	return strings.Join(list, " ")
}

// runParent prints the PID of a worker and then renders in it until this process is killed.
func runParent() {
	o := testOptions("misbehave")
	o.Timeout = time.Hour
	p := New(o)
	res, err := p.Render(context.Background(), stacks.Request{Stack: "pid"})
	fmt.Println(res.StackVersion, err)
	_, _ = p.Render(context.Background(), stacks.Request{Stack: "loop"})
	os.Exit(1)
}

// testOptions returns the usual options for workers with an argument.
func testOptions(arg string) Options {
	return Options{Args: []string{arg}, Workers: DefaultWorkers, Timeout: DefaultTimeout,
		MemoryBytes: DefaultMemoryBytes, OutputBytes: DefaultOutputBytes}
}

// misbehavingPool returns a pool of workers that render with misbehave.
func misbehavingPool(t testing.TB, change func(*Options)) *Pool {
	t.Helper()
	// On a busy machine a worker may be idle for longer than the default between two lines of a
	// test.
	o := testOptions("misbehave")
	o.Workers, o.IdleTimeout = 1, time.Hour
	if raceEnabled {
		o.MemoryBytes = 1 << 30 // the race detector needs additional memory
	}
	if change != nil {
		change(&o)
	}
	p := New(o)
	t.Cleanup(p.Close)
	return p
}

// mustRender renders a stack and returns the text of its result. It fails the test on an error.
func mustRender(t testing.TB, p *Pool, req stacks.Request) string {
	t.Helper()
	res, err := p.Render(t.Context(), req)
	if err != nil {
		t.Fatalf("%s: %v", req.Stack, err)
	}
	return res.StackVersion
}

// eventually polls is until it returns true, for a minute at most.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("timed out after a minute: " + what)
		}
	}
}

func isRunning(pid string) bool {
	status, err := os.ReadFile("/proc/" + pid + "/status")
	return err == nil && !strings.Contains(string(status), "State:\tZ")
}

// newRequest writes a source with one stack "demo" and returns the request that renders it.
func newRequest(t testing.TB, files map[string]string) stacks.Request {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		file := filepath.Join(root, "stacks", "demo", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return stacks.Request{Root: root, Digest: "sha256:x", Path: "stacks", Stack: "demo",
		Install:      stacks.Identity{Namespace: "n", Name: "i"},
		Capabilities: stacks.Capabilities{KubeVersion: "v1.36.0"}, SecretKey: []byte("a key")}
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
