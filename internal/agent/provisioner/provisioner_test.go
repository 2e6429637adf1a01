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

// roleVariable has this program play a provisioner.
const roleVariable = "TEST_PROVISIONER"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		play(role)
	}
	os.Exit(m.Run())
}

// play is a program that does what its role says.
func play(role string) {
	fine := func(w ...Worker) { _ = json.NewEncoder(os.Stdout).Encode(Answer{APIVersion: APIVersion, Workers: w}) }
	switch role {
	case "fine":
		fine(Worker{Index: 1, Name: "demo-vm-wp-1"}, Worker{Index: 0, Name: "demo-vm-wp-0", Size: "medium"})
	case "echo":
		var r Request
		if err := json.NewDecoder(os.Stdin).Decode(&r); err != nil || r.Deadline == nil || r.APIVersion != APIVersion {
			os.Exit(9)
		}
		fine(Worker{Index: r.From, Name: r.Cluster.WorkerName(r.Desired), Size: r.Size})
	case "fails":
		_ = json.NewEncoder(os.Stdout).Encode(Answer{APIVersion: APIVersion, Error: &Error{Code: "Quota", Class: OutOfResources, Message: "no more"}})
	case "fails and exits":
		_ = json.NewEncoder(os.Stdout).Encode(Answer{APIVersion: APIVersion, Error: &Error{Code: "Quota", Class: OutOfResources, Message: "no more"}})
		os.Exit(1)
	case "crashes":
		fmt.Fprintln(os.Stderr, "a secret that stays in the log")
		panic("crashed")
	case "succeeds and exits":
		fine(Worker{Name: "demo-vm-wp-0"})
		os.Exit(3)
	case "silent":
	case "garbled":
		fmt.Println("making machines…")
	case "says no workers":
		fmt.Printf("{%q: %q}\n", "apiVersion", APIVersion)
	case "endless":
		for {
			if _, err := os.Stdout.Write(bytes.Repeat([]byte(" "), 1<<16)); err != nil {
				os.Exit(1)
			}
		}
	case "talks":
		for i := range 2 * maxLines {
			fmt.Fprintf(os.Stderr, "line %d %s\n", i, strings.Repeat("x", 2*maxLine))
		}
		fine(Worker{Name: "demo-vm-wp-0"})
	case "leaves a child":
		spawn()
		fine(Worker{Name: "demo-vm-wp-0"})
	case "hangs":
		spawn()
		time.Sleep(time.Hour)
	}
	os.Exit(0)
}

// spawn starts a child that holds the output and never ends, and writes its pid into a file.
func spawn() {
	cmd := exec.Command("sleep", "3600")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		os.Exit(8)
	}
	path := os.Getenv("TEST_PID")
	if err := os.WriteFile(path+".new", []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil || os.Rename(path+".new", path) != nil {
		os.Exit(8)
	}
}

func program(t *testing.T, role string, log logr.Logger) *Program {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &Program{Command: []string{own}, Env: []string{roleVariable + "=" + role, "GORACE=atexit_sleep_ms=0"}, Log: log}
}

func TestAProgramsAnswer(t *testing.T) {
	for role, want := range map[string]struct {
		workers []Worker
		code    string
		fault   Fault
	}{
		"fine":               {workers: []Worker{{Index: 0, Name: "demo-vm-wp-0", Size: "medium"}, {Index: 1, Name: "demo-vm-wp-1"}}},
		"fails":              {code: "Quota"},
		"fails and exits":    {code: "Quota"},
		"crashes":            {fault: Crashed},
		"succeeds and exits": {fault: Crashed},
		"silent":             {fault: Silent},
		"garbled":            {fault: Garbled},
		"says no workers":    {fault: Garbled},
		"endless":            {fault: TooLong},
	} {
		t.Run(role, func(t *testing.T) {
			got, err := program(t, role, logr.Discard()).Run(t.Context(), Request{Operation: List, Cluster: Cluster{Name: "demo"}})
			if !reflect.DeepEqual(got, want.workers) {
				t.Errorf("workers %v, want %v", got, want.workers)
			}
			answered, _ := errors.AsType[*Error](err)
			broke, _ := errors.AsType[*ProgramError](err)
			switch {
			case want.code != "":
				if answered == nil || answered.Code != want.code || answered.Class != OutOfResources {
					t.Errorf("error %v, want %s", err, want.code)
				}
			case want.fault != "":
				if broke == nil || broke.Fault != want.fault || strings.Contains(err.Error(), "secret") {
					t.Errorf("error %v, want %s", err, want.fault)
				}
			case err != nil:
				t.Error(err)
			}
		})
	}
}

func TestARequestArrives(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := program(t, "echo", logr.Discard()).Run(ctx, Request{Operation: Create, ID: "x", Cluster: Cluster{Name: "demo"}, From: 2, Desired: 5, Size: "t3.medium"})
	if want := []Worker{{Index: 2, Name: "demo-vm-wp-5", Size: "t3.medium"}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}

func TestAProgramThatIsNotThere(t *testing.T) {
	for _, command := range [][]string{nil, {filepath.Join(t.TempDir(), "none")}, {t.TempDir()}} {
		_, err := (&Program{Command: command, Log: logr.Discard()}).Run(t.Context(), Request{Operation: List})
		if e, ok := errors.AsType[*ProgramError](err); !ok || e.Fault != NotStarted {
			t.Errorf("%v: %v", command, err)
		}
	}
}

func TestWhatAProgramSaysIsClipped(t *testing.T) {
	var said []string
	log := funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{})
	if _, err := program(t, "talks", log).Run(t.Context(), Request{Operation: Create, ID: "op-1"}); err != nil {
		t.Fatal(err)
	}
	if len(said) != maxLines || !strings.Contains(said[0], "line 0 ") || !strings.Contains(said[0], "op-1") || !strings.Contains(said[maxLines-1], "left out") {
		t.Errorf("%d lines, from %.80q to %q", len(said), said[0], said[len(said)-1])
	}
	for _, s := range said {
		if len(s) > 2*maxLine {
			t.Fatalf("a line of %d bytes", len(s))
		}
	}
}

// childOf waits for the pid of the child that a program started.
func childOf(t *testing.T, path string) int {
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
	t.Fatal("it started no child")
	return 0
}

// gone waits until a process is no more, or a zombie that nobody waits for.
func gone(t *testing.T, pid int) {
	t.Helper()
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if syscall.Kill(pid, 0) != nil {
			return
		}
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && strings.Contains(string(stat), ") Z ") {
			return
		}
	}
	t.Errorf("process %d is still there", pid)
}

func TestAProgramIsKilledWithWhatItStarted(t *testing.T) {
	p := program(t, "hangs", logr.Discard())
	pid := filepath.Join(t.TempDir(), "pid")
	p.Env = append(p.Env, "TEST_PID="+pid)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := p.Run(ctx, Request{Operation: Create})
		done <- err
	}()
	child := childOf(t, pid)
	cancel()
	if e, ok := errors.AsType[*ProgramError](<-done); !ok || e.Fault != Stopped {
		t.Errorf("error %v", e)
	}
	gone(t, child)
}

func TestAProgramThatIsLateIsKilled(t *testing.T) {
	p := program(t, "hangs", logr.Discard())
	p.Env = append(p.Env, "TEST_PID="+filepath.Join(t.TempDir(), "pid"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := p.Run(ctx, Request{Operation: Create})
	if e, ok := errors.AsType[*ProgramError](err); !ok || e.Fault != Late {
		t.Errorf("error %v", err)
	}
}

func TestAChildThatIsLeftEndsWithItsProgram(t *testing.T) {
	p := program(t, "leaves a child", logr.Discard())
	pid := filepath.Join(t.TempDir(), "pid")
	p.Env = append(p.Env, "TEST_PID="+pid)
	got, err := p.Run(t.Context(), Request{Operation: List})
	if err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	gone(t, childOf(t, pid))
}

func answer(rest string) string { return `{"apiVersion":"` + APIVersion + `"` + rest + `}` }

func TestParse(t *testing.T) {
	long := strings.Repeat("é", 3*maxMessage)
	for name, c := range map[string]struct {
		data, want string
		fault      Fault
	}{
		"nothing done":     {data: answer("")},
		"space":            {data: " \n", fault: Silent},
		"two documents":    {data: answer("") + answer(""), fault: Garbled},
		"another version":  {data: `{"apiVersion":"agent.ksctl.com/v2"}`, fault: Garbled},
		"no version":       {data: `{"workers":[]}`, fault: Garbled},
		"a list":           {data: `[]`, fault: Garbled},
		"two at a place":   {data: answer(`,"workers":[{"index":1,"name":"a"},{"index":1,"name":"b"}]`), fault: Garbled},
		"two of a name":    {data: answer(`,"workers":[{"index":1,"name":"a"},{"index":2,"name":"a"}]`), fault: Garbled},
		"no name":          {data: answer(`,"workers":[{"index":1}]`), fault: Garbled},
		"a name of none":   {data: answer(`,"workers":[{"index":1,"name":"A b"}]`), fault: Garbled},
		"a node of none":   {data: answer(`,"workers":[{"index":1,"name":"a","node":"../b"}]`), fault: Garbled},
		"a negative place": {data: answer(`,"workers":[{"index":-1,"name":"a"}]`), fault: Garbled},
		"a place too far":  {data: answer(`,"workers":[{"index":4294967295,"name":"a"}]`), fault: Garbled},
		"too long":         {data: answer(`,"x":"` + strings.Repeat(" ", maxAnswer) + `"`), fault: TooLong},
		"an error":         {data: answer(`,"error":{"code":"C","class":"Other","message":"m"}`), want: "C: m"},
		"of no class":      {data: answer(`,"error":{"code":"C","class":"Strange","message":"m"}`), want: "C: m"},
		"that says naught": {data: answer(`,"error":{}`), want: "the provisioner says no more"},
		"in lines":         {data: answer(`,"error":{"message":"a\nb\u0007c"}`), want: "a b c"},
		"at length":        {data: answer(`,"error":{"message":"` + long + `"}`), want: long[:2*maxMessage]},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(c.data))
			broke, _ := errors.AsType[*ProgramError](err)
			answered, _ := errors.AsType[*Error](err)
			switch {
			case c.fault != "":
				if broke == nil || broke.Fault != c.fault {
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
	request := func(rest string) string { return answer(`,"cluster":{"name":"demo"}` + rest) }
	runner := RunnerFunc(func(ctx context.Context, r Request) ([]Worker, error) {
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
		"none":         {request(`,"operation":"List"`), `"workers":[]`},
		"refused":      {request(`,"operation":"Create","desired":1,"size":"full"`), `"error":{"code":"Quota","class":"OutOfResources","message":"no more"}`},
		"broken":       {request(`,"operation":"Create","desired":1,"size":"s"`), `"error":{"code":"Failed","class":"Other","message":"it broke"}`},
		"late":         {request(`,"operation":"Create","desired":1,"size":"s","deadline":"2020-01-01T00:00:00Z"`), `deadline exceeded`},
		"unknown":      {request(`,"operation":"Reboot"`), `"code":"UnknownOperation"`},
		"no cluster":   {answer(`,"operation":"List"`), `"code":"BadRequest"`},
		"backwards":    {request(`,"operation":"Create","from":3,"desired":1,"size":"s"`), `"code":"BadRequest"`},
		"of no size":   {request(`,"operation":"Create","desired":1`), `"code":"BadRequest"`},
		"another time": {`{"apiVersion":"agent.ksctl.com/v9","operation":"List"}`, `"code":"UnknownVersion"`},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := Serve(t.Context(), strings.NewReader(c.in), &out, runner); err != nil || !strings.Contains(out.String(), c.want) {
				t.Errorf("%v, %s; want %s", err, out.String(), c.want)
			}
			if _, err := Parse(out.Bytes()); err != nil {
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

// Whatever a program answers, there are workers that can be relied on, or an error of ours.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "null", answer(""), answer(`,"workers":[{"index":1,"name":"demo-vm-wp-1","size":"s","node":"n"},{"index":0,"name":"demo-vm-wp-0"}]`),
		answer(`,"error":{"code":"Quota","class":"OutOfResources","message":"no more"}`), answer(`,"workers":null,"error":null`)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		workers, err := Parse(data)
		broke, answered := (*ProgramError)(nil), (*Error)(nil)
		switch {
		case err == nil:
			for i, w := range workers {
				if w.Name == "" || i > 0 && workers[i-1].Index >= w.Index {
					t.Fatalf("%+v", workers)
				}
			}
		case errors.As(err, &broke):
			if strings.ContainsAny(broke.Error(), "\n\x00") {
				t.Fatalf("%q", broke)
			}
		case errors.As(err, &answered):
			if answered.Message == "" || strings.ContainsAny(answered.Error(), "\n\x00") || answered.Class != Other && answered.Class != OutOfResources {
				t.Fatalf("%#v", answered)
			}
		default:
			t.Fatalf("%T %v", err, err)
		}
	})
}
