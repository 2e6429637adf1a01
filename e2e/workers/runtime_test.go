package workers_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// addModule is a WebAssembly module that exports add, the sum of two integers.
const addModule = "\x00asm\x01\x00\x00\x00\x01\x07\x01\x60\x02\x7f\x7f\x01\x7f\x03\x02\x01\x00" +
	"\x07\x07\x01\x03add\x00\x00\x0a\x09\x01\x07\x00\x20\x00\x20\x01\x6a\x0b"

const helloModule = `import page from "./page.txt";
export default {
  async fetch(request, env) {
    const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(env.WASM_WORKER_KEY));
    const hex = [...new Uint8Array(digest)].map((b) => b.toString(16).padStart(2, "0")).join("");
    return new Response(page + " " + hex.slice(0, 8) + " " + env["WASM_WORKER_tls.key"]);
  },
};`

const serviceWorker = `addEventListener("fetch", (event) => {
  const { add } = new WebAssembly.Instance(add_wasm).exports;
  event.respondWith(new Response([PRE_KEY, page_txt, add(40, 2)].join(" ")));
});`

func compileWASI(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "a.wasm")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", out,
		"./testdata/wasi")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	content, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestRuntimeServesEachFormat(t *testing.T) {
	needsWorkerd(t)
	scripts := account(t, map[string][]file{
		"hello":   {{"hello.js", helloModule}, {"page.txt", "a \"page\""}},
		"classic": {{"classic.js", serviceWorker}, {"page.txt", "text"}, {"add.wasm", addModule}},
		"sum": {{"sum.mjs", `import wasm from "./add.wasm";
			const { add } = new WebAssembly.Instance(wasm).exports;
			export default { fetch: () => new Response(String(add(20, 22))) };`}, {"add.wasm", addModule}},
		"wasi": {{"main.wasm", compileWASI(t)}},
	})
	secrets := t.TempDir()
	writeSecret(t, filepath.Join(secrets, "hello"),
		map[string]string{"KEY": "value-1", "tls.key": "line 1\nline \"2\""})
	writeSecret(t, filepath.Join(secrets, "classic"), map[string]string{"KEY": "value-2"})
	writeSecret(t, filepath.Join(secrets, "wasi"), map[string]string{"KEY": "value-3"})
	prefix := "PRE_"
	r := start(t, scripts, secrets, []worker{{Name: "hello", Secret: true},
		{Name: "classic", Secret: true, EnvPrefix: &prefix}, {Name: "sum"}, {Name: "wasi", Secret: true}})
	eventually(t, "ready", func() bool { return r.ready() == http.StatusOK })

	for _, tc := range []struct{ worker, path, want string }{
		{"hello", "/", "200 a \"page\" eff9eb68 line 1\nline \"2\""},
		{"classic", "/", "200 value-2 text 42"},
		{"sum", "/", "200 42"},
		{"wasi", "/a%20b?q=1", "200 GET /a b?q=1 value-3 "},
		{"wasi", "/missing", "404 no such page\n"},
		{"wasi", "/fail", "502 the module exited with status 3\n"},
	} {
		if got, err := r.get(fresh, tc.worker, tc.path); err != nil || got != tc.want {
			t.Errorf("%s%s: got %q, %v, want %q", tc.worker, tc.path, got, err, tc.want)
		}
	}
	resp, err := fresh.Post(fmt.Sprintf("http://127.0.0.1:%d/", r.ports["wasi"]), "text/plain",
		strings.NewReader("from the body"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.Header.Get("X-Slept") != "true" || resp.Header.Get("Content-Type") != "text/plain" {
		t.Errorf("header %v", resp.Header)
	}
	logs := r.logs(t)
	if !strings.Contains(logs, "failed as requested") || strings.Contains(logs, "value-") {
		t.Errorf("the log lacks what the module wrote, or has a secret:\n%s", logs)
	}
	checkFilesWithoutSecret(t, r)
}

// checkFilesWithoutSecret checks the files that worker-runtime wrote, and its arguments.
func checkFilesWithoutSecret(t *testing.T, r *instance) {
	t.Helper()
	checked := 0
	for _, arg := range r.cmd.Args {
		dir, found := strings.CutPrefix(arg, "--dir=")
		if !found {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			content, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			checked++
			if strings.Contains(string(content), "value-") {
				t.Errorf("file %s has a secret", e.Name())
			}
		}
	}
	if checked == 0 {
		t.Error("no file was written")
	}
}

func TestSecretChangeReplacesWorkerdWithoutFailedRequest(t *testing.T) {
	needsWorkerd(t)
	const script = `export default { async fetch(_, env) { await scheduler.wait(5); return new Response(env.WASM_WORKER_KEY); } };`
	scripts := account(t, map[string][]file{"a": {{"a.js", script}}, "b": {{"b.js", script}}})
	secrets := t.TempDir()
	writeSecret(t, filepath.Join(secrets, "a"), map[string]string{"KEY": "a-0"})
	writeSecret(t, filepath.Join(secrets, "b"), map[string]string{"KEY": "b-0"})
	r := start(t, scripts, secrets, []worker{{Name: "a", Secret: true}, {Name: "b", Secret: true}})
	eventually(t, "ready", func() bool { return r.ready() == http.StatusOK })

	stopFresh := r.load("a", fresh, func(got string) bool { return strings.HasPrefix(got, "200 a-") })
	stopKept := r.load("b", &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}, Timeout: soon},
		func(got string) bool { return got == "200 b-0" })
	for i := 1; i <= 5; i++ {
		value := fmt.Sprint("a-", i)
		writeSecret(t, filepath.Join(secrets, "a"), map[string]string{"KEY": value})
		eventually(t, "the new value", func() bool {
			got, err := r.get(fresh, "a", "/")
			return err == nil && got == "200 "+value
		})
		if status := r.ready(); status != http.StatusOK {
			t.Errorf("change %d: not ready: %d", i, status)
		}
	}
	for name, stop := range map[string]func() ([]string, int64){"new connections": stopFresh,
		"kept connections": stopKept} {
		failed, ok := stop()
		t.Logf("%s: %d requests", name, ok)
		if len(failed) > 0 || ok < 100 {
			t.Errorf("%s: %d of %d requests failed: %v", name, len(failed), ok, failed)
		}
	}
}

// children returns the processes that a process started.
func children(t *testing.T, pid int) (out []int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		content, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range strings.Fields(string(content)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, child)
		}
	}
	return out
}

func TestKilledWorkerdIsRestarted(t *testing.T) {
	needsWorkerd(t)
	scripts := account(t, map[string][]file{"a": {{"a.js", `export default { fetch: () => new Response("a") };`}}})
	r := start(t, scripts, t.TempDir(), []worker{{Name: "a", Secret: true}})
	eventually(t, "ready", func() bool { return r.ready() == http.StatusOK })
	pids := children(t, r.cmd.Process.Pid)
	if len(pids) != 1 {
		t.Fatalf("%d processes", len(pids))
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "not ready", func() bool { return r.ready() == http.StatusServiceUnavailable })
	// The connection waits for the next workerd.
	if got, err := r.get(fresh, "a", "/"); err != nil || got != "200 a" {
		t.Errorf("%s, %v", got, err)
	}
	eventually(t, "ready again", func() bool { return r.ready() == http.StatusOK })
	if logs := r.logs(t); !strings.Contains(logs, `"workerd ended","state":"signal: killed"`) {
		t.Errorf("the log has no exit:\n%s", logs)
	}
}

func TestWorkerdWithEndlessLoopIsRestarted(t *testing.T) {
	needsWorkerd(t)
	scripts := account(t, map[string][]file{"a": {{"a.js", `export default { fetch: () => new Response("a") };`}},
		"loop": {{"loop.js", `export default { fetch() { for (;;) {} } };`}}})
	r := start(t, scripts, t.TempDir(), []worker{{Name: "a"}, {Name: "loop"}}, "--workerd-health-interval=100ms",
		"--workerd-health-timeout=2s", "--workerd-health-failures=2")
	eventually(t, "ready", func() bool { return r.ready() == http.StatusOK })
	looping := make(chan error, 1)
	go func() {
		_, err := r.get(fresh, "loop", "/")
		looping <- err
	}()
	eventually(t, "not ready", func() bool { return r.ready() == http.StatusServiceUnavailable })
	// The connection waits for the next workerd.
	if got, err := r.get(fresh, "a", "/"); err != nil || got != "200 a" {
		t.Errorf("%s, %v", got, err)
	}
	if err := <-looping; err == nil {
		t.Error("the endless loop responded")
	}
	eventually(t, "ready again", func() bool { return r.ready() == http.StatusOK })
	if logs := r.logs(t); !strings.Contains(logs, "workerd does not respond and is killed") ||
		!strings.Contains(logs, `"workerd ended","state":"signal: killed"`) {
		t.Errorf("the log has no cause:\n%s", logs)
	}
}

func TestTerminationServesUntilDrained(t *testing.T) {
	needsWorkerd(t)
	scripts := account(t, map[string][]file{"a": {{"a.js", `export default { async fetch(request) {
		if (request.url.endsWith("slow")) await scheduler.wait(2500);
		return new Response("a"); } };`}}})
	r := start(t, scripts, t.TempDir(), []worker{{Name: "a"}})
	eventually(t, "ready", func() bool { return r.ready() == http.StatusOK })
	slow := make(chan string, 1)
	go func() {
		got, err := r.get(fresh, "a", "/slow")
		slow <- fmt.Sprint(got, err)
	}()
	if got, err := r.get(fresh, "a", "/"); err != nil || got != "200 a" {
		t.Fatalf("%s, %v", got, err)
	}
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "not ready", func() bool { return r.ready() == http.StatusServiceUnavailable })
	if got, err := r.get(fresh, "a", "/"); err != nil || got != "200 a" {
		t.Errorf("a request after the signal: %s, %v", got, err)
	}
	if got := <-slow; got != "200 a<nil>" {
		t.Errorf("a request that the signal overtook: %s", got)
	}
	err := <-r.exited
	r.exited <- err
	if err != nil {
		t.Errorf("the program ended with %v", err)
	}
}

func TestBrokenScriptIsNeverReady(t *testing.T) {
	needsWorkerd(t)
	scripts := account(t, map[string][]file{"a": {{"a.js", `export default { fetch: () => new Response("a") };`}}})
	if err := os.WriteFile(filepath.Join(scripts, "a", "a.js"), []byte("export default {"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, scripts, t.TempDir(), []worker{{Name: "a"}})
	eventually(t, "an error in the log", func() bool {
		return strings.Contains(r.logs(t), "workerd could not be started") && strings.Contains(r.logs(t), "service a: ")
	})
	if status := r.ready(); status != http.StatusServiceUnavailable {
		t.Errorf("readiness: %d", status)
	}
}

func TestPushRefusesScriptThatWorkerdDoesNotLoad(t *testing.T) {
	needsWorkerd(t)
	for name, tc := range map[string]struct {
		files []file
		args  []string
		want  string
	}{
		"throws": {[]file{{"a.js", "throw new Error(`boom\nmore`); export default {};"}}, nil,
			"workerd does not load the script: Uncaught Error: boom"},
		"missing module": {[]file{{"a.js", `import "./b.js"; export default {};`}}, nil, `Module not found`},
		"missing export": {[]file{{"a.js", `import {x} from "./b.mjs"; export default {x};`}, {"b.mjs", ""}}, nil, "'x'"},
		"wrong handler":  {[]file{{"a.js", "export default 5;"}}, nil, "Incorrect type for map entry 'default'"},
		"not a module":   {[]file{{"a.wasm", "\x00asm"}}, nil, "CompileError"},
		"no WASI command": {[]file{{"a.wasm", addModule}}, nil,
			"a module without JavaScript must be a WASI command, this one does not export _start"},
		"later date": {[]file{{"a.js", "export default {fetch() {}};"}}, []string{"--compatibility-date=2999-01-01"},
			"2999-01-01"},
	} {
		t.Run(name, func(t *testing.T) {
			host := newRegistry(t)
			status, result := pushScript(t, host, "a", tc.files, tc.args...)
			message := fmt.Sprint(result["message"])
			if status != 2 || !strings.Contains(message, tc.want) || strings.Contains(message, "\n") {
				t.Errorf("status %d, %v", status, result)
			}
			if status, _ = builder(t, "build", "--base="+host+"/base:1", "--image="+host+"/shop/acme:1",
				"--worker=a="+host+"/shop/acme/a:1"); status != 1 {
				t.Errorf("the script was pushed: building its image ends with status %d", status)
			}
		})
	}
}

func TestPushRedactsSecret(t *testing.T) {
	needsWorkerd(t)
	secrets := filepath.Join(t.TempDir(), "a")
	writeSecret(t, secrets, map[string]string{"KEY": "value-1\n"})
	status, result := pushScript(t, newRegistry(t), "a", []file{{"a.js",
		`addEventListener("fetch", () => {}); throw new Error("key " + WASM_WORKER_KEY.trim() + " is refused");`}},
		"--secrets="+secrets)
	if message := fmt.Sprint(result["message"]); status != 2 || !strings.Contains(message, "key *** is refused") {
		t.Errorf("status %d, %v", status, result)
	}
}
