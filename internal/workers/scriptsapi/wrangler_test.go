package scriptsapi

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ksctl/gitops/e2e/workers/wrangler"
	"github.com/ksctl/gitops/internal/workers/filestore"
)

// project are the files of a worker with a module of each kind that wrangler does not bundle.
var project = map[string]string{
	"wrangler.toml": `name = "hello"
main = "src/index.js"
compatibility_date = "2025-09-01"
workers_dev = false
[vars]
GREETING = "hi"
`,
	"src/index.js": `import {greet} from "./greet.mjs"
import page from "./page.html"
import add from "./add.wasm"
export default { fetch(request, env) { return new Response(greet(env.GREETING) + page + add) } }
`,
	"src/greet.mjs": "export const greet = (greeting) => greeting + '!'\n",
	"src/page.html": "<p>page</p>\n",
	// The smallest module.
	"src/add.wasm": "\x00asm\x01\x00\x00\x00",
}

// wranglerFixture is an API and a project that wrangler deploys.
type wranglerFixture struct {
	*fixture
	wrangler.Client
	project string
}

func startWrangler(t *testing.T) *wranglerFixture {
	t.Helper()
	if testing.Short() {
		t.Skip("with -short, nothing is installed with npm")
	}
	if reason := wrangler.MissingRequirement(); reason != "" {
		t.Skip(reason)
	}
	dir, err := wrangler.Install(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f := &wranglerFixture{fixture: start(t), project: t.TempDir()}
	f.Client = wrangler.Client{Dir: dir, Home: t.TempDir(), Server: f.http.URL, Account: "acme", Token: acmeToken}
	for name, content := range project {
		f.setFile(name, content)
	}
	return f
}

func (f *wranglerFixture) setFile(name, content string) {
	f.Helper()
	path := filepath.Join(f.project, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		f.Fatal(err)
	}
}

// wrangler runs wrangler, and returns what it printed.
func (f *wranglerFixture) wrangler(input string, succeeds bool, args ...string) string {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), 2*time.Minute)
	defer cancel()
	cmd := f.Command(ctx, f.project, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if (err == nil) != succeeds {
		f.Fatalf("wrangler %v: %v\n%s\n%s", args, err, out, f.allLogs())
	}
	return string(out)
}

func TestWranglerDeploysAndDeletes(t *testing.T) {
	f := startWrangler(t)
	out := f.wrangler("", true, "deploy")
	if !strings.Contains(out, "Uploaded hello") || !strings.Contains(out, "Current Version ID:") {
		t.Errorf("got %s", out)
	}
	first := f.template("hello")
	files := f.scriptFiles(first)
	for content, suffix := range map[string]string{"greet(env.GREETING)": "index.js", "<p>page</p>": "-page.html",
		"\x00asm": "-add.wasm"} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(files)), func(name string) bool {
			return strings.HasSuffix(name, suffix) && strings.Contains(files[name], content)
		}) {
			t.Errorf("no file %s with %q in %v", suffix, content, files)
		}
	}
	if len(files) != 3 || !strings.HasSuffix(first.ScriptURLs[0], "/index.js") ||
		first.CompatibilityDate != "2025-09-01" {
		t.Errorf("got %+v", first)
	}
	f.expectKeys("plain GREETING=hi")

	// Wrangler deploys a script that exists by a version.
	f.newWrites()
	f.wrangler("", true, "deploy")
	if writes := f.newWrites(); len(writes) > 0 {
		t.Errorf("the same script again: got writes %v", writes)
	}
	f.setFile("src/greet.mjs", "export const greet = (greeting) => greeting + '?'\n")
	f.wrangler("", true, "deploy")
	if second := f.template("hello"); second.etag() == first.etag() || second.WorkerNumber != first.WorkerNumber {
		t.Errorf("got %+v after %+v", second, first)
	}

	f.wrangler("hunter2\n", true, "secret", "put", "KEY")
	f.expectKeys("plain GREETING=hi, secre KEY=hunter2")
	if out := f.wrangler("", true, "secret", "list"); !strings.Contains(out, `"name": "KEY"`) ||
		strings.Contains(out, "GREETING") {
		t.Errorf("got %s", out)
	}
	f.wrangler("", true, "deploy")
	f.expectKeys("plain GREETING=hi, secre KEY=hunter2")
	f.wrangler("", true, "secret", "delete", "KEY")
	f.expectKeys("plain GREETING=hi")

	if out := f.wrangler("", true, "delete"); !strings.Contains(out, "Successfully deleted hello") {
		t.Errorf("got %s", out)
	}
	if o, err := f.server.deployments.get(t.Context(), "acme", "hello"); o != nil || err != nil {
		t.Errorf("got %v, %v", o, err)
	}
}

// scriptFiles returns the files of a script.
func (f *wranglerFixture) scriptFiles(t template) map[string]string {
	f.Helper()
	out := map[string]string{}
	for _, u := range t.ScriptURLs {
		file, ok := filestore.ParseURL(u)
		if !ok {
			f.Fatalf("got URL %s", u)
		}
		content, err := f.server.opts.Files.Get(f.Context(), file)
		if err != nil {
			f.Fatal(err)
		}
		out[file.Name] = string(content)
	}
	return out
}

func TestWranglerShowsErrors(t *testing.T) {
	f := startWrangler(t)
	// A secret of a script that does not exist makes an empty script.
	f.wrangler("hunter2\n", true, "secret", "put", "KEY")
	f.expectKeys("secre KEY=hunter2")
	for name, tc := range map[string]struct{ add, want string }{
		"KV":    {"[[kv_namespaces]]\nbinding = \"KV\"\nid = \"0123456789abcdef0123456789abcdef\"\n", "kv_namespace"},
		"flags": {"", "compatibility_flags is not supported"},
	} {
		content := project["wrangler.toml"] + tc.add
		if tc.add == "" {
			content = "compatibility_flags = [\"nodejs_compat\"]\n" + content
		}
		f.setFile("wrangler.toml", content)
		if out := f.wrangler("", false, "deploy"); !strings.Contains(out, tc.want) || !strings.Contains(out,
			"[code: 10021]") {
			t.Errorf("%s: got %s", name, out)
		}
	}
	f.setFile("wrangler.toml", strings.Replace(project["wrangler.toml"], "workers_dev = false\n", "", 1))
	if out := f.wrangler("", false, "deploy"); !strings.Contains(out, "set workers_dev = false") {
		t.Errorf("got %s", out)
	}
	f.Token = otherToken
	if out := f.wrangler("", false, "deploy"); !strings.Contains(out, "[code: 9109]") {
		t.Errorf("got %s", out)
	}
	f.Token = "unknown-token-0123456789"
	if out := f.wrangler("", false, "deploy"); !strings.Contains(out, "[code: 10000]") {
		t.Errorf("got %s", out)
	}
}
