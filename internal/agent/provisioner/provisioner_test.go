package provisioner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// roleVariable is the environment variable that makes the test binary act as a provisioner.
const roleVariable = "TEST_PROVISIONER"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		playRole(role)
	}
	os.Exit(m.Run())
}

// play acts as the provisioner of a role and exits.
func playRole(role string) {
	respond := func(w ...Worker) { _ = json.NewEncoder(os.Stdout).Encode(Response{APIVersion: APIVersion, Workers: w}) }
	switch role {
	case "succeeds":
		respond(Worker{Index: 1, Name: "demo-vm-wp-1"}, Worker{Index: 0, Name: "demo-vm-wp-0", Size: "medium"})
	case "echo":
		var r Request
		if err := json.NewDecoder(os.Stdin).Decode(&r); err != nil || r.Deadline == nil || r.APIVersion != APIVersion {
			os.Exit(9)
		}
		respond(Worker{Index: r.From, Name: r.Cluster.WorkerName(r.Desired), Size: r.Size})
	case "fails":
		_ = json.NewEncoder(os.Stdout).
			Encode(Response{APIVersion: APIVersion,
				Error: &Error{Code: "Quota", Class: OutOfResources, Message: "no more"}})
	case "fails and exits":
		_ = json.NewEncoder(os.Stdout).
			Encode(Response{APIVersion: APIVersion,
				Error: &Error{Code: "Quota", Class: OutOfResources, Message: "no more"}})
		os.Exit(1)
	case "crashes":
		fmt.Fprintln(os.Stderr, "a secret that must only be logged")
		panic("crashed")
	case "succeeds and exits":
		respond(Worker{Name: "demo-vm-wp-0"})
		os.Exit(3)
	case "no output":
	case "no JSON":
		fmt.Println("making machines…")
	case "omits workers":
		fmt.Printf("{%q: %q}\n", "apiVersion", APIVersion)
	case "endless output":
		for {
			if _, err := os.Stdout.Write(bytes.Repeat([]byte(" "), 1<<16)); err != nil {
				os.Exit(1)
			}
		}
	case "verbose":
		for i := range 2 * maxLines {
			fmt.Fprintf(os.Stderr, "line %d %s\n", i, strings.Repeat("x", 2*maxLine))
		}
		respond(Worker{Name: "demo-vm-wp-0"})
	case "leaves a child":
		spawn()
		respond(Worker{Name: "demo-vm-wp-0"})
	case "hangs":
		spawn()
		time.Sleep(time.Hour)
	}
	os.Exit(0)
}

// spawn starts a child process that keeps the output open and never exits, and writes its PID to
// the file $TEST_PID.
func spawn() {
	cmd := exec.Command("sleep", "3600")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		os.Exit(8)
	}
	path := os.Getenv("TEST_PID")
	if err := os.WriteFile(path+".new", []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil ||
		os.Rename(path+".new", path) != nil {
		os.Exit(8)
	}
}

func newProgram(t *testing.T, role string, log logr.Logger) *Program {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(roleVariable, role)
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	return &Program{Command: []string{executable}, Log: log}
}

// runnerFunc adapts a function to Runner.
type runnerFunc func(ctx context.Context, r Request) ([]Worker, error)

func (f runnerFunc) Run(ctx context.Context, r Request) ([]Worker, error) { return f(ctx, r) }

func TestProgramRunResult(t *testing.T) {
	for role, want := range map[string]struct {
		workers []Worker
		code    string
		fault   string
	}{
		"succeeds": {workers: []Worker{{Index: 0, Name: "demo-vm-wp-0", Size: "medium"},
			{Index: 1, Name: "demo-vm-wp-1"}}},
		"fails":              {code: "Quota"},
		"fails and exits":    {code: "Quota"},
		"crashes":            {fault: "failed without a response"},
		"succeeds and exits": {fault: "failed without a response"},
		"no output":          {fault: "returned no response"},
		"no JSON":            {fault: "not a single JSON document"},
		"omits workers":      {fault: "returned no workers for List"},
		"endless output":     {fault: "returned more than"},
	} {
		t.Run(role, func(t *testing.T) {
			got, err := newProgram(t, role, logr.Discard()).
				Run(t.Context(), Request{Operation: List, Cluster: Cluster{Name: "demo"}})
			if !reflect.DeepEqual(got, want.workers) {
				t.Errorf("workers %v, want %v", got, want.workers)
			}
			answered, _ := errors.AsType[*Error](err)
			switch {
			case want.code != "":
				if answered == nil || answered.Code != want.code || answered.Class != OutOfResources {
					t.Errorf("error %v, want %s", err, want.code)
				}
			case want.fault != "":
				if answered != nil || err == nil || !strings.Contains(err.Error(), want.fault) ||
					strings.Contains(err.Error(), "secret") {
					t.Errorf("error %v, want %s", err, want.fault)
				}
			case err != nil:
				t.Error(err)
			}
		})
	}
}

func TestProgramReceivesRequest(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := newProgram(t, "echo", logr.Discard()).
		Run(ctx, Request{Operation: Create, ID: "x", Cluster: Cluster{Name: "demo"}, From: 2, Desired: 5,
			Size: "t3.medium"})
	if want := []Worker{{Index: 2, Name: "demo-vm-wp-5", Size: "t3.medium"}}; err != nil ||
		!reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}

func TestProgramNotStarted(t *testing.T) {
	for _, command := range []string{filepath.Join(t.TempDir(), "none"), t.TempDir()} {
		_, err := (&Program{Command: []string{command}, Log: logr.Discard()}).Run(t.Context(), Request{Operation: List})
		if err == nil || !strings.Contains(err.Error(), "can't be started") {
			t.Errorf("%s: %v", command, err)
		}
	}
}

func TestProgramLogIsLimited(t *testing.T) {
	var logged []string
	log := funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
	if _, err := newProgram(t, "verbose", log).Run(t.Context(), Request{Operation: Create, ID: "op-1"}); err != nil {
		t.Fatal(err)
	}
	if len(logged) != maxLines || !strings.Contains(logged[0], "line 0 ") || !strings.Contains(logged[0], "op-1") ||
		!strings.Contains(logged[maxLines-1], "omitted") {
		t.Errorf("%d lines, from %.80q to %q", len(logged), logged[0], logged[len(logged)-1])
	}
	for _, s := range logged {
		if len(s) > 2*maxLine {
			t.Fatalf("a logged line has %d bytes", len(s))
		}
	}
}

// childPID waits for the PID file of the child that a program started.
func childPID(t *testing.T, path string) int {
	t.Helper()
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if data, err := os.ReadFile(path); err == nil {
			pid, err := strconv.Atoi(string(data))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatal("the program has not started a child")
	return 0
}

// awaitExit waits until a process has exited. A zombie counts, because nothing waits for it.
func awaitExit(t *testing.T, pid int) {
	t.Helper()
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if syscall.Kill(pid, 0) != nil {
			return
		}
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil &&
			strings.Contains(string(stat), ") Z ") {
			return
		}
	}
	t.Errorf("process %d is still running", pid)
}

func TestCancelKillsProgramAndChildren(t *testing.T) {
	p := newProgram(t, "hangs", logr.Discard())
	pid := filepath.Join(t.TempDir(), "pid")
	t.Setenv("TEST_PID", pid)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := p.Run(ctx, Request{Operation: Create})
		done <- err
	}()
	child := childPID(t, pid)
	cancel()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "because the agent shuts down") {
		t.Errorf("error %v", err)
	}
	awaitExit(t, child)
}

func TestDeadlineKillsProgram(t *testing.T) {
	p := newProgram(t, "hangs", logr.Discard())
	t.Setenv("TEST_PID", filepath.Join(t.TempDir(), "pid"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := p.Run(ctx, Request{Operation: Create})
	if err == nil || !strings.Contains(err.Error(), "was killed at its deadline") {
		t.Errorf("error %v", err)
	}
}

func TestLeftoverChildIsKilledAfterExit(t *testing.T) {
	p := newProgram(t, "leaves a child", logr.Discard())
	pid := filepath.Join(t.TempDir(), "pid")
	t.Setenv("TEST_PID", pid)
	got, err := p.Run(t.Context(), Request{Operation: List})
	if err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	awaitExit(t, childPID(t, pid))
}

func responseJSON(rest string) string { return `{"apiVersion":"` + APIVersion + `"` + rest + `}` }

func TestParseResponse(t *testing.T) {
	long := strings.Repeat("é", 3*maxMessage)
	for name, c := range map[string]struct {
		data, want string
		fault      string
	}{
		"no fields":       {data: responseJSON("")},
		"only whitespace": {data: " \n", fault: "returned no response"},
		"two documents":   {data: responseJSON("") + responseJSON(""), fault: "not a single JSON document"},
		"unknown version": {data: `{"apiVersion":"agent.ksctl.com/v2"}`, fault: "returned apiVersion"},
		"no version":      {data: `{"workers":[]}`, fault: "returned apiVersion"},
		"JSON list":       {data: `[]`, fault: "not a single JSON document"},
		"duplicate index": {data: responseJSON(`,"workers":[{"index":1,"name":"a"},{"index":1,"name":"b"}]`),
			fault: "two workers with index 1"},
		"duplicate name": {data: responseJSON(`,"workers":[{"index":1,"name":"a"},{"index":2,"name":"a"}]`),
			fault: "two workers named a"},
		"no name":      {data: responseJSON(`,"workers":[{"index":1}]`), fault: "invalid name"},
		"invalid name": {data: responseJSON(`,"workers":[{"index":1,"name":"A b"}]`), fault: "invalid name"},
		"invalid node": {data: responseJSON(`,"workers":[{"index":1,"name":"a","node":"../b"}]`),
			fault: "invalid node name"},
		"negative index": {data: responseJSON(`,"workers":[{"index":-1,"name":"a"}]`),
			fault: "not a single JSON document"},
		"index too high": {data: responseJSON(`,"workers":[{"index":4294967295,"name":"a"}]`),
			fault: "the maximum is"},
		"too large": {data: responseJSON(`,"x":"` + strings.Repeat(" ", maxResponseBytes) + `"`),
			fault: "returned more than"},
		"error":         {data: responseJSON(`,"error":{"code":"C","class":"Other","message":"m"}`), want: "C: m"},
		"unknown class": {data: responseJSON(`,"error":{"code":"C","class":"Strange","message":"m"}`), want: "C: m"},
		"empty error": {data: responseJSON(`,"error":{}`),
			want: "the provisioner reported an error without a message"},
		"error of lines": {data: responseJSON(`,"error":{"message":"a\nb\u0007c"}`), want: "a b c"},
		"long error":     {data: responseJSON(`,"error":{"message":"` + long + `"}`), want: long[:2*maxMessage]},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseResponse([]byte(c.data))
			answered, _ := errors.AsType[*Error](err)
			switch {
			case c.fault != "":
				if answered != nil || err == nil || !strings.Contains(err.Error(), c.fault) {
					t.Errorf("error %v, want %s", err, c.fault)
				}
			case c.want != "":
				if answered == nil || answered.Error() != c.want || answered.Class != Other {
					t.Errorf("error %v, want %s", err, c.want)
				}
			case err != nil:
				t.Error(err)
			}
		})
	}
}

func TestServe(t *testing.T) {
	request := func(rest string) string { return responseJSON(`,"cluster":{"name":"demo"}` + rest) }
	runner := runnerFunc(func(ctx context.Context, r Request) ([]Worker, error) {
		switch {
		case r.Operation == List:
			return nil, nil
		case r.Size == "full":
			return nil, &Error{Code: "Quota", Class: OutOfResources, Message: "no more"}
		case r.Deadline != nil:
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return nil, errors.New("it broke")
	})
	for name, c := range map[string]struct{ in, want string }{
		"no workers": {request(`,"operation":"List"`), `"workers":[]`},
		"no capacity": {request(`,"operation":"Create","desired":1,"size":"full"`),
			`"error":{"code":"Quota","class":"OutOfResources","message":"no more"}`},
		"other error": {request(`,"operation":"Create","desired":1,"size":"s"`),
			`"error":{"code":"Failed","class":"Other","message":"it broke"}`},
		"deadline": {request(`,"operation":"Create","desired":1,"size":"s","deadline":"2020-01-01T00:00:00Z"`),
			`deadline exceeded`},
		"unknown verb": {request(`,"operation":"Reboot"`), `"code":"UnknownOperation"`},
		"no cluster":   {responseJSON(`,"operation":"List"`), `"code":"BadRequest"`},
		"wrong range":  {request(`,"operation":"Create","from":3,"desired":1,"size":"s"`), `"code":"BadRequest"`},
		"no size":      {request(`,"operation":"Create","desired":1`), `"code":"BadRequest"`},
		"new version":  {`{"apiVersion":"agent.ksctl.com/v9","operation":"List"}`, `"code":"UnknownVersion"`},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := Serve(t.Context(), strings.NewReader(c.in), &out, runner); err != nil ||
				!strings.Contains(out.String(), c.want) {
				t.Errorf("%v, %s; want %s", err, out.String(), c.want)
			}
			if _, err := ParseResponse(out.Bytes()); err != nil {
				if _, ok := errors.AsType[*Error](err); !ok {
					t.Error(err)
				}
			}
		})
	}
	if err := Serve(t.Context(), strings.NewReader("{"), io.Discard, runner); err == nil {
		t.Error("no error")
	}
}

// For any response, ParseResponse returns valid workers or an error on one line.
func FuzzParseResponse(f *testing.F) {
	for _, seed := range []string{"", "null", responseJSON(""),
		responseJSON(`,"workers":[{"index":1,"name":"demo-vm-wp-1","size":"s","node":"n"},{"index":0,"name":"demo-vm-wp-0"}]`),
		responseJSON(`,"error":{"code":"Quota","class":"OutOfResources","message":"no more"}`),
		responseJSON(`,"workers":null,"error":null`)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		workers, err := ParseResponse(data)
		answered, _ := errors.AsType[*Error](err)
		switch {
		case err == nil:
			for i, w := range workers {
				if w.Name == "" || i > 0 && workers[i-1].Index >= w.Index {
					t.Fatalf("%+v", workers)
				}
			}
		case strings.ContainsAny(err.Error(), "\n\x00"):
			t.Fatalf("%q", err)
		case answered != nil:
			if answered.Message == "" || answered.Class != Other && answered.Class != OutOfResources {
				t.Fatalf("%#v", answered)
			}
		}
	})
}
