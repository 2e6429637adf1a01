package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	// The demo builds the controller. Without this import, "go test" would reuse a cached result
	// after a change of the controller.
	_ "github.com/ksctl/gitops/internal/manager"
	"github.com/ksctl/gitops/internal/testrun/layout"
)

// waitTimeout bounds each wait for a demo; normally a wait takes far less.
const waitTimeout = 12 * time.Minute

// program compiles the demo once and returns its path.
var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("ksctl-gitops-demo-%d", os.Getpid()))
	output, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, ".").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, output)
	}
	return path, err
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := program(); err == nil {
		_ = os.Remove(path)
	}
	os.Exit(code)
}

// TestDemo runs the whole demo and checks its output.
func TestDemo(t *testing.T) {
	r := start(t)
	if code := r.wait(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, r.output())
	}
	text := r.output()
	for _, want := range []string{
		`✓ tools `, `✓ control plane +https://127\.0\.0\.1:`, `✓ repository +http://127\.0\.0\.1:`, `✓ CRDs and RBAC `,
		`✓ build `,
		`✓ controller +process \d+ as ksctl-gitops-system/ksctl-gitops`,
		`INSTALL `, `wave 0 +base +7/7 +ready`, `wave 1 +cache +3/3 +ready`, `wave 2 +web +6/6 +ready`,
		`Ready at main@sha1:[0-9a-f]{12}\n`,
		`CHANGE `, `- version: 1\.0\.0`, `\+ version: 1\.1\.0`, `Ready at main@sha1:[0-9a-f]{12}\n`,
		`1 write by shop-deployer to the 16 objects of the install`,
		`Deployment shop/frontend +resourceVersion \d+ → \d+, generation 1 → 2`,
		`spec\.template\.spec\.containers\[frontend\]\.env\[PODINFO_UI_MESSAGE\]\.value\n +"Welcome to the shop" → "Everything must go"`,
		`DRIFT `, `✗ Deployment shop/frontend`, `✓ reverted after \S+s`, `✗ ConfigMap shop/shop-settings`,
		`✓ recreated after \S+s`, `DriftCorrected`,
		`REMOVE `, `✓ all 16 objects, then the install, were removed`,
		`ALL STEPS SUCCEEDED`, `All processes and files are removed`,
	} {
		at := regexp.MustCompile(want).FindStringIndex(text)
		if at == nil {
			t.Fatalf("%q is missing or out of order:\n%s", want, r.output())
		}
		text = text[at[1]:]
	}
	if strings.Contains(r.output(), "\x1b") {
		t.Error("the output has escape sequences although it is not a terminal")
	}
	r.checkNothingLeft()
}

// TestInterruptCleansUp interrupts demos in different phases.
func TestInterruptCleansUp(t *testing.T) {
	for name, c := range map[string]struct {
		after string
		env   []string
		check func(*child)
	}{
		"while the control plane starts": {after: "✓ tools"},
		"while the controller is built":  {after: "✓ CRDs and RBAC", env: []string{layout.ProgramsVariable + "="}},
		"while it installs":              {after: "INSTALL"},
		"while it runs with KEEP=1": {after: "Remove the install.*\n.*\n", env: []string{"KEEP=1"},
			check: (*child).checkSuggestions},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, c.env...)
			r.await(c.after)
			if c.check != nil {
				c.check(r)
			}
			// As a terminal does: to the whole foreground process group, here for two presses of
			// Ctrl-C.
			for range 2 {
				if err := syscall.Kill(-r.cmd.Process.Pid, syscall.SIGINT); err != nil &&
					!errors.Is(err, syscall.ESRCH) {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond)
			}
			if code := r.wait(); code != exitInterrupted {
				t.Errorf("exit code %d\n%s", code, r.output())
			}
			r.checkNothingLeft()
		})
	}
}

// TestFailsWhenControllerDies: the demo fails with the controller's log if the controller dies.
func TestFailsWhenControllerDies(t *testing.T) {
	r := start(t)
	r.await("✓ controller +process")
	pid, err := strconv.Atoi(regexp.MustCompile(`✓ controller +process (\d+)`).FindStringSubmatch(r.output())[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := r.wait(); code != exitFailed ||
		!strings.Contains(r.output(), "the controller ended (signal: killed); its log ends with:") {
		t.Errorf("exit code %d\n%s", code, r.output())
	}
	r.checkNothingLeft()
}

// TestStopsWhenParentDies kills the parent process of a demo, as a SIGTERM to "go run" does.
func TestStopsWhenParentDies(t *testing.T) {
	r := start(t, "ORPHAN=1")
	r.await("✓ control plane")
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.wait()
	r.awaitEnd(waitTimeout)
	if !strings.Contains(r.output(), "the parent process ended") {
		t.Errorf("the output has no reason for the stop:\n%s", r.output())
	}
	r.checkNothingLeft()
}

// child is a demo that runs as a child process.
type child struct {
	t              *testing.T
	cmd            *exec.Cmd
	log, tmp, home string
	done           chan struct{} // closed when the process has ended
	err            error         // result of Wait; valid after done is closed
}

// start starts the demo with an empty home and temporary folder. ORPHAN=1 starts it through a
// shell.
func start(t *testing.T, env ...string) *child {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	r := &child{t: t, tmp: t.TempDir(), home: t.TempDir(), log: filepath.Join(t.TempDir(), "output")}
	log, err := os.Create(r.log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	r.cmd = exec.Command(path)
	if strings.Contains(strings.Join(env, " "), "ORPHAN=1") {
		r.cmd = exec.Command("sh", "-c", `"$0" & wait`, path)
	}
	r.cmd.Stdout, r.cmd.Stderr = log, log
	r.cmd.Env = append(os.Environ(), "TMPDIR="+r.tmp, "KUBECONFIG="+filepath.Join(r.home, "config"), "KEEP=")
	if runtime.GOOS == "linux" { // on other systems the cache of built tools is below HOME
		r.cmd.Env = append(r.cmd.Env, "HOME="+r.home)
		for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOENV"} {
			value, err := exec.Command("go", "env", name).Output()
			if err != nil {
				t.Fatal(err)
			}
			r.cmd.Env = append(r.cmd.Env, name+"="+strings.TrimSpace(string(value)))
		}
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		config, err := os.UserConfigDir() // the go command writes telemetry there
		if err != nil {
			t.Fatal(err)
		}
		r.cmd.Env = append(r.cmd.Env, "XDG_CACHE_HOME="+cache, "XDG_CONFIG_HOME="+config)
	}
	r.cmd.Env = append(r.cmd.Env, env...)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.done = make(chan struct{})
	go func() {
		defer close(r.done)
		r.err = r.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
		<-r.done
	})
	return r
}

func (r *child) output() string {
	data, err := os.ReadFile(r.log)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(data)
}

// wait waits for the end of the demo and returns its exit code.
func (r *child) wait() int {
	timer := time.AfterFunc(waitTimeout, func() { _ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGINT) })
	defer timer.Stop()
	<-r.done
	if exit := (*exec.ExitError)(nil); r.err != nil && !errors.As(r.err, &exit) {
		r.t.Fatal(r.err)
	}
	return r.cmd.ProcessState.ExitCode()
}

// await waits until the output matches a pattern.
func (r *child) await(pattern string) {
	r.t.Helper()
	re, timeout := regexp.MustCompile(pattern), time.After(waitTimeout)
	for !re.MatchString(r.output()) {
		select {
		case <-r.done:
			r.t.Fatalf("the demo ended without %q in its output:\n%s", pattern, r.output())
		case <-timeout:
			r.t.Fatalf("timed out waiting for %q:\n%s", pattern, r.output())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// checkSuggestions runs the commands that the demo suggests.
func (r *child) checkSuggestions() {
	r.t.Helper()
	var script []string
	for l := range strings.Lines(r.output()) {
		if strings.HasPrefix(l, "    . ") || strings.HasPrefix(l, "    kubectl ") || strings.HasPrefix(l, "    git ") ||
			strings.HasPrefix(l, "    sed ") {
			script = append(script, strings.TrimSpace(l))
		}
	}
	if len(script) < 10 {
		r.t.Fatalf("expected at least 10 suggested commands, got %q", script)
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), waitTimeout)
	defer cancel()
	shell := exec.CommandContext(ctx, "sh", "-e", "-x", "-c", strings.Join(script, "\n")+"\ncd .. && rm -r fleet")
	shell.Dir = r.home
	shell.Env = append(os.Environ(), "HOME="+r.home, "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_AUTHOR_NAME=me",
		"GIT_AUTHOR_EMAIL=me@example.com",
		"GIT_COMMITTER_NAME=me", "GIT_COMMITTER_EMAIL=me@example.com")
	output, err := shell.CombinedOutput()
	if err != nil || !bytes.Contains(output, []byte("shop 1.1.0, 3 components, 16 objects ready")) {
		r.t.Errorf("the suggested commands failed: %v\n%s", err, output)
	}
}

// checkNothingLeft fails the test if processes or files of the demo remain.
func (r *child) checkNothingLeft() {
	r.t.Helper()
	if left := r.awaitEnd(30 * time.Second); len(left) > 0 { // a killed process does not end immediately
		r.t.Errorf("processes remain: %q\n%s", left, r.output())
	}
	// The parent folder of all runs is shared and stays.
	for dir, allowed := range map[string]string{r.tmp: fmt.Sprintf("ksctl-gitops-e2e-%d", os.Getuid()), r.home: ""} {
		err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if path != dir && filepath.Base(path) != allowed {
				r.t.Errorf("file %s remains", path)
			}
			return err
		})
		if err != nil {
			r.t.Error(err)
		}
	}
}

// awaitEnd waits for the end of all processes of the demo, and returns those that still run.
func (r *child) awaitEnd(within time.Duration) (left []string) {
	for deadline := time.Now().Add(within); ; time.Sleep(100 * time.Millisecond) {
		if left = r.processes(); len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// processes returns the processes that have the temporary folder in their command line or, on
// Linux, in their environment.
func (r *child) processes() (found []string) {
	if runtime.GOOS != "linux" {
		out, err := exec.Command("ps", "-A", "-ww", "-o", "pid=,command=").Output()
		if err != nil {
			r.t.Fatal(err)
		}
		for l := range strings.Lines(string(out)) {
			if strings.Contains(l, r.tmp) {
				found = append(found, l)
			}
		}
		return found
	}
	paths, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, path := range paths {
		command, _ := os.ReadFile(filepath.Join(path, "cmdline"))
		environment, _ := os.ReadFile(filepath.Join(path, "environ"))
		if bytes.Contains(command, []byte(r.tmp)) || bytes.Contains(environment, []byte(r.tmp)) {
			found = append(found, filepath.Base(path)+" "+string(bytes.ReplaceAll(command, []byte{0}, []byte(" "))))
		}
	}
	return found
}
