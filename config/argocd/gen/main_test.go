package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a user applies is what the folders say and their tests run.
func TestTheKeysAreFresh(t *testing.T) {
	if err := run("..", true); err != nil {
		t.Error(err)
	}
}

func TestStaleKeysAreNoticed(t *testing.T) {
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
		t.Errorf("another action: %v", err)
	}
	if err := run(root, false); err != nil {
		t.Fatal(err)
	}
	if err := run(root, true); err != nil {
		t.Errorf("just written: %v", err)
	}
}
