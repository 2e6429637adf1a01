package tools

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestRecipeForEveryTool(t *testing.T) {
	w, err := newBuilder(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, name := range All() {
		tool, err := lookup(name)
		if err != nil {
			t.Fatalf("All lists %s, but lookup does not find it: %v", name, err)
		}
		r, err := w.recipe(tool)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !strings.HasPrefix(r.version, "v") {
			t.Errorf("%s: version %q", name, r.version)
		}
		if other, twice := seen[r.binary]; twice {
			t.Errorf("%s and %s share %s", name, other, r.binary)
		}
		seen[r.binary] = name
		if tool.Dir == "controlplane" && tool.Module == "k8s.io/kubernetes" &&
			!strings.Contains(r.ldflags, "k8s.io/component-base/version.gitVersion="+r.version) {
			t.Errorf("%s: the linker flags set no version: %s", name, r.ldflags)
		}
	}
}

func TestModuleDir(t *testing.T) {
	dir, err := ModuleDir(t.Context(), Etcd)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Error(err)
	}
	if _, err := ModuleDir(t.Context(), "etcdd"); err == nil {
		t.Error("ModuleDir returned no error for an unknown tool")
	}
}

// The main module renders charts with Helm's library. Suites compare the objects with those of the
// helm command.
func TestHelmHasTheVersionOfTheLibrary(t *testing.T) {
	gomod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	want, err := requiredVersion(gomod, "helm.sh/helm/v4")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Version(Helm); err != nil || got != want {
		t.Errorf("the command is Helm %s, the library %s (%v)", got, want, err)
	}
}

func TestKeyDependsOnAllBuildInputs(t *testing.T) {
	base := recipe{tool: Tool{Name: "x", Package: "p"}, version: "v1", ldflags: "-s"}
	w := builder{goVersion: "go1"}
	keys := map[string]bool{w.key(base, []byte("mod"), []byte("sum")): true}
	add := func(what, key string) {
		if keys[key] {
			t.Errorf("a different %s gives the same folder %s", what, key)
		}
		keys[key] = true
	}
	add("go.mod", w.key(base, []byte("mod2"), []byte("sum")))
	add("go.sum", w.key(base, []byte("mod"), []byte("sum2")))
	add("split", w.key(base, []byte("mods"), []byte("um")))
	add("Go version", builder{goVersion: "go2"}.key(base, []byte("mod"), []byte("sum")))
	flags := base
	flags.ldflags = "-w"
	add("flag", w.key(flags, []byte("mod"), []byte("sum")))
}

func TestBuildUsesProvidedPrograms(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, Etcd)
	version, err := Version(Etcd)
	if err != nil {
		t.Fatal(err)
	}
	printing := func(version string) {
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho etcd Version: "+version+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	printing(strings.TrimPrefix(version, "v"))
	if err := os.WriteFile(filepath.Join(dir, Kubectl), []byte("not executable"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv(AssetsVariable, dir)
	if got := provided(Kubectl); got != "" {
		t.Errorf("a file that is not executable was used: %s", got)
	}
	paths, err := Build(t.Context(), nil, Etcd)
	if err != nil {
		t.Fatal(err)
	}
	if paths[Etcd] != path {
		t.Errorf("got %s, want %s", paths[Etcd], path)
	}
	for _, other := range []string{"3.4.1", "4.6.16", "unknown"} {
		printing(other)
		checkedVersions.Clear()
		if _, err := Build(t.Context(), nil, Etcd); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("version %s: error %v", other, err)
		}
	}
}

func TestBuiltProgramsPrintTheirVersion(t *testing.T) {
	for _, name := range controlPlane {
		missing, err := Missing(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if missing {
			t.Logf("%s is not built", name)
			continue
		}
		paths, err := Build(t.Context(), nil, name)
		if err != nil {
			t.Fatal(err)
		}
		version, err := Version(name)
		if err != nil {
			t.Fatal(err)
		}
		tool, _ := lookup(name)
		if err := checkVersion(t.Context(), tool, paths[name], version); err != nil {
			t.Error(err)
		}
	}
}

func TestAnnounceListsProgramsAndTime(t *testing.T) {
	var out bytes.Buffer
	announce(&out, []recipe{{tool: Tool{Name: "a", BuildTime: time.Minute}},
		{tool: Tool{Name: "b", BuildTime: 30 * time.Second}}})
	if want := "tools: building a, b from source, once: about 1m30s on two processors\n"; out.String() != want {
		t.Errorf("%q, want %q", &out, want)
	}
}

func TestBuildRejectsUnknownTool(t *testing.T) {
	_, err := Build(t.Context(), nil, "etcdd")
	if err == nil || !strings.Contains(err.Error(), `"etcdd"`) || !strings.Contains(err.Error(), Kwok) {
		t.Errorf("error %v does not name the tool and the known tools", err)
	}
}

func TestLockIsExclusive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	p := &reporter{out: &bytes.Buffer{}, subject: "x", start: time.Now()}
	release, err := lock(t.Context(), path, p)
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lock(ctx, path, p); !errors.Is(err, context.Canceled) {
		t.Errorf("locking with a canceled context: %v", err)
	}

	var wg sync.WaitGroup
	wg.Go(func() {
		second, err := lock(t.Context(), path, p)
		if err != nil {
			t.Errorf("second: %v", err)
			return
		}
		second()
	})
	release()
	wg.Wait()
}

func TestFailedBuildLeavesNoFiles(t *testing.T) {
	w, err := newBuilder(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.cache = t.TempDir()
	r, err := w.recipe(Tool{Name: "nothing", Dir: "controlplane", Package: "go.etcd.io/etcd/nothing",
		Module: "go.etcd.io/etcd/server/v3"})
	if err != nil {
		t.Fatal(err)
	}
	out := &bytes.Buffer{}
	p := &reporter{out: out, subject: "nothing", start: time.Now()}
	if err := w.build(t.Context(), r, p); err == nil || !strings.Contains(err.Error(), "go.etcd.io/etcd/nothing") {
		t.Errorf("error %v does not contain the go command's output", err)
	}
	left, err := filepath.Glob(r.binary + "*")
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if !strings.Contains(out.String(), "nothing: building") {
		t.Errorf("no progress: %q", out)
	}
}
