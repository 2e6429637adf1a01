package workerd_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ksctl/gitops/internal/workers/workerd"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	_ = os.Remove(path) // it may not exist
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func TestSecretOfMountedFolder(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "..1", "b"), "old")
	write(t, filepath.Join(dir, "..2", "b"), "new\n")
	write(t, filepath.Join(dir, "..2", "a.b"), "")
	write(t, filepath.Join(dir, "..2", "nul"), "a\x00b")
	write(t, filepath.Join(dir, "..2", "large"), strings.Repeat("x", 128<<10))
	link(t, "..1", filepath.Join(dir, "..data"))
	link(t, "..data/b", filepath.Join(dir, "b"))
	before := workerd.SecretVersion(dir)
	link(t, "..2", filepath.Join(dir, "..data"))
	if workerd.SecretVersion(dir) == before {
		t.Error("the version did not change")
	}
	s, err := workerd.ReadSecret(dir)
	if err != nil {
		t.Fatal(err)
	}
	bindings, env := s.Bind("PRE_", "V_")
	want := []workerd.Binding{{Name: "PRE_a.b", Variable: "V_0"}, {Name: "PRE_b", Variable: "V_1"}}
	if !slices.Equal(bindings, want) || !slices.Equal(env, []string{"V_0=", "V_1=new\n"}) {
		t.Errorf("%v, %q", bindings, env)
	}
	if len(s.Skipped) != 2 || !strings.Contains(s.Skipped["nul"], "NUL") ||
		!strings.Contains(s.Skipped["large"], "more than 131067 bytes") {
		t.Errorf("%v", s.Skipped)
	}
}

func TestSecretOfPlainFolder(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing")
	if s, err := workerd.ReadSecret(missing); err != nil {
		t.Errorf("%v, %v", s, err)
	}
	if got := workerd.SecretVersion(missing); got != "" {
		t.Errorf("version %q of a folder that does not exist", got)
	}
	write(t, filepath.Join(dir, "a"), "1")
	before := workerd.SecretVersion(dir)
	write(t, filepath.Join(dir, "a"), "22")
	if workerd.SecretVersion(dir) == before {
		t.Error("the version did not change")
	}
	link(t, "gone", filepath.Join(dir, "..data"))
	if _, err := workerd.ReadSecret(dir); err == nil {
		t.Error("got no error for a version that does not exist")
	}
}
