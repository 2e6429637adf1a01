package renderworker

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ksctl/gitops/stacks"
)

// The test binary is a worker, too, that misbehaves as the name of a stack says.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 {
		switch os.Args[1] {
		case Command:
			os.Exit(Main())
		case "naughty":
			os.Exit(work(misbehave))
		case "parent":
			parent()
		}
	}
	os.Exit(m.Run())
}

// answers makes a result that tells something: its version is the text.
func answers(text string, err error) (stacks.Result, error) {
	if err != nil {
		text += " " + err.Error()
	}
	return stacks.Result{StackVersion: text}, nil
}

var kept [][]byte

// misbehave does what the stack is called.
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
			kept = append(kept, b)
		}
	case "panic":
		panic("at the renderer")
	case "die":
		os.Exit(3)
	case "overflow":
		var f func(int) int
		f = func(n int) int { return f(n+1) + n }
		return answers(fmt.Sprint(f(0)), nil)
	case "die-once":
		if os.Remove(req.Path) == nil {
			os.Exit(3)
		}
		return answers("survived", nil)
	case "noise":
		fmt.Println("printed by a library")
		return answers("quiet", nil)
	case "large":
		return answers(strings.Repeat("x", 2<<20), nil)
	case "garbage":
		_, _ = os.NewFile(1, "out").WriteString("\xff\xff\xff\xffnot a frame")
		select {}
	case "pid":
		return answers(fmt.Sprint(os.Getpid()), nil)
	case "sleep":
		time.Sleep(time.Hour)
	}
	return look(req)
}

// look tells what a worker has and can.
func look(req stacks.Request) (stacks.Result, error) {
	switch req.Stack {
	case "environment":
		return answers(strings.Join(append(os.Environ(), os.Args[1:]...), " "), nil)
	case "files":
		return answers(openFiles(), nil)
	case "network":
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).Dial("tcp", req.Path)
		if err == nil {
			_ = conn.Close()
		}
		return answers("dialled:", err)
	case "resolve":
		_, err := net.DefaultResolver.LookupHost(context.Background(), "example.com")
		return answers("resolved:", err)
	case "program":
		return answers("ran:", exec.Command("/bin/true").Run())
	case "write":
		return answers("wrote:", os.WriteFile(req.Path, []byte("x"), 0o600))
	case "plain":
		return stacks.Result{}, fmt.Errorf("the disk is gone")
	case "wrong":
		return stacks.Result{}, stacks.Errors{{File: "a.yaml", Line: 3, Component: "c", Message: "no", Suggestion: "yes"}, {Stack: "s", Message: "never"}}
	}
	return answers(req.Stack, nil)
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

// parent renders in a worker until it is killed, after it has said which.
func parent() {
	p := New(Options{Args: []string{"naughty"}, Timeout: time.Hour})
	res, err := p.Render(context.Background(), stacks.Request{Stack: "pid"})
	fmt.Println(res.StackVersion, err)
	_, _ = p.Render(context.Background(), stacks.Request{Stack: "loop"})
	os.Exit(1)
}

// naughty is a pool of workers that misbehave.
func naughty(t testing.TB, change func(*Options)) *Pool {
	t.Helper()
	// On a busy machine a worker is idle between two lines of a test for longer than by default.
	o := Options{Args: []string{"naughty"}, Workers: 1, Timeout: time.Minute, Idle: time.Hour}
	if raced {
		o.MemoryBytes = 1 << 30 // the race detector takes some of its own
	}
	if change != nil {
		change(&o)
	}
	p := New(o)
	t.Cleanup(p.Close)
	return p
}

// says renders a stack that is to succeed.
func says(t testing.TB, p *Pool, req stacks.Request) string {
	t.Helper()
	res, err := p.Render(t.Context(), req)
	if err != nil {
		t.Fatalf("%s: %v", req.Stack, err)
	}
	return res.StackVersion
}

// eventually waits for something that another process does.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not within a minute: " + what)
		}
	}
}

func alive(pid string) bool {
	status, err := os.ReadFile("/proc/" + pid + "/status")
	return err == nil && !strings.Contains(string(status), "State:\tZ")
}

func linuxOnly(t testing.TB) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has what is tested here")
	}
}

// stack writes a source with one stack "demo" and returns what renders it.
func stack(t testing.TB, files map[string]string) stacks.Request {
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
	return stacks.Request{Root: root, Digest: "sha256:x", Path: "stacks", Stack: "demo", Install: stacks.Identity{Namespace: "n", Name: "i"},
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
