package workerd_test

import (
	"os"
	"strings"
	"testing"

	"github.com/ksctl/gitops/internal/workers/workerd"
)

// testWorkers are a worker of each format.
var testWorkers = []workerd.Worker{
	{Name: "internet", Folder: "/workers/internet", Address: "*:8080",
		Script: workerd.Script{Format: workerd.FormatModule, CompatibilityDate: "2026-01-01", Modules: []workerd.Module{
			{File: "a.mjs", Type: workerd.TypeES}, {File: "b.cjs", Type: workerd.TypeCommonJS},
			{File: "c.wasm", Type: workerd.TypeWASM}, {File: "d.txt", Type: workerd.TypeText},
			{File: "e.json", Type: workerd.TypeJSON}, {File: "f", Type: workerd.TypeData}}},
		Bindings: []workerd.Binding{{Name: "WASM_WORKER_a", Variable: "SECRET_0_0"},
			{Name: "tls.\"key\\\"\n\x01 ü", Variable: "SECRET_0_1"}}},
	{Name: "classic", Folder: "/workers/classic", Address: "*:8081", CompatibilityDate: "2026-02-02",
		Script: workerd.Script{Format: workerd.FormatServiceWorker, CompatibilityDate: "2026-01-01",
			Modules: []workerd.Module{{File: "a.js", Type: workerd.TypeES}, {File: "b-1.wasm", Type: workerd.TypeWASM},
				{File: "2.txt", Type: workerd.TypeText}, {File: "c.json", Type: workerd.TypeJSON},
				{File: "d", Type: workerd.TypeData}}}},
}

func TestConfig(t *testing.T) {
	const file = "testdata/workerd.capnp"
	got := workerd.Config(testWorkers, []string{"public", "10.0.0.0/8"})
	if os.Getenv("KSCTL_GOLDEN_WRITE") != "" {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || got != string(want) {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestConfigRunsWASICommandByProgram(t *testing.T) {
	got := workerd.Config([]workerd.Worker{{Name: "a", Folder: "/workers/a", Address: "*:8080",
		Script: workerd.Script{Format: workerd.FormatWASI,
			Modules: []workerd.Module{{File: "main.wasm", Type: workerd.TypeWASM}}}}}, nil)
	program := strings.Index(got, `(name = "wasi.mjs", esModule = "// Runs a WASI command`)
	module := strings.Index(got, `(name = "module.wasm", wasm = embed "/workers/a/main.wasm"),`)
	if program < 0 || module < program ||
		!strings.Contains(got, `compatibilityDate = "`+workerd.DefaultCompatibilityDate+`"`) {
		t.Error(got)
	}
}

func TestConfigOfSource(t *testing.T) {
	got := workerd.Config([]workerd.Worker{{Name: ":a", Source: `export default "b";`, Address: "127.0.0.1:0"}}, nil)
	if !strings.Contains(got, `modules = [(name = "main.mjs", esModule = "export default \"b\";")],`) ||
		!strings.Contains(got, `(name = ":a", address = "127.0.0.1:0", http = (), service = ":a"),`) {
		t.Error(got)
	}
}

func TestNewModule(t *testing.T) {
	for file, want := range map[string]workerd.ModuleType{"a.js": workerd.TypeES, "A_1.mjs": workerd.TypeES,
		"a.cjs": workerd.TypeCommonJS, "a.wasm": workerd.TypeWASM, "a.html": workerd.TypeText,
		"a.json": workerd.TypeJSON, "a": workerd.TypeData, "a.tar.gz": workerd.TypeData, "a.py": workerd.TypeData} {
		if m, err := workerd.NewModule(file); err != nil || m.Type != want || m.File != file {
			t.Errorf("%s: %v, %v", file, m, err)
		}
	}
	for _, file := range []string{"", ".", "..", "/", ".env", "-a.js", "a b.js", "a/b.js", "a\n.js", "ä.js",
		"worker.json", "a.ts", "a.jsx", strings.Repeat("a", 129)} {
		if m, err := workerd.NewModule(file); err == nil {
			t.Errorf("%q: %v", file, m)
		}
	}
}

func TestCheckName(t *testing.T) {
	for name, valid := range map[string]bool{"a": true, "a-b.c_d__e---f": true, "1": true, "": false, "A": false,
		"a/b": false, "..": false, "a..b": false, "-a": false, "a-": false, "a=b": false, "a b": false,
		strings.Repeat("a", 129): false} {
		if err := workerd.CheckName(name); (err == nil) != valid {
			t.Errorf("%q: %v", name, err)
		}
	}
}
