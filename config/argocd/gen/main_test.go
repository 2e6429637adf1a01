package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The shipped argocd-cm has the scripts in the folders, which the tests run.
func TestConfigMapIsUpToDate(t *testing.T) {
	if err := run("..", true); err != nil {
		t.Error(err)
	}
}

func TestCheckDetectsStaleConfigMap(t *testing.T) {
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS("..")); err != nil {
		t.Fatal(err)
	}
	if err := run(root, true); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(root, folder, "apps.ksctl.com", "KsctlSource", "actions", "resume", "action.lua")
	if err := os.WriteFile(script, []byte("return obj\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(root, true); err == nil || !strings.Contains(err.Error(), "make manifests") {
		t.Errorf("changed action: got %v, want an error that names make manifests", err)
	}
	if err := run(root, false); err != nil {
		t.Fatal(err)
	}
	if err := run(root, true); err != nil {
		t.Errorf("after writing the file: %v", err)
	}
}
