package source

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Links are followed within the tree, whichever folder was read before.
func TestLinksBetweenFoldersAreFollowed(t *testing.T) {
	tree, root := newTree(t)
	outside := filepath.Join(t.TempDir(), "outside")
	err := errors.Join(os.MkdirAll(filepath.Join(root, "a", "b"), 0o755), os.Mkdir(filepath.Join(root, "c"), 0o755),
		os.WriteFile(filepath.Join(root, "c", "f"), []byte("f"), 0o600), os.WriteFile(outside, nil, 0o600),
		os.WriteFile(filepath.Join(root, "a", "b", "g"), []byte("g"), 0o600),
		os.Symlink("../../c/f", filepath.Join(root, "a", "b", "up")),
		os.Symlink(outside, filepath.Join(root, "a", "b", "leaves")),
		os.Symlink("../c", filepath.Join(root, "a", "folder")))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for name, want := range map[string]string{"a/b/g": "g", "a/b/up": "f", "a/folder/f": "f", "c/f": "f"} {
			if data, err := tree.Read(name, MaxFile); err != nil || string(data) != want {
				t.Errorf("%s: %q, %v", name, data, err)
			}
		}
		if _, err := tree.Read("a/b/leaves", MaxFile); err == nil || !strings.Contains(err.Error(), "escapes") {
			t.Errorf("a link that leaves the tree: %v", err)
		}
	}
}

func TestFoldersAreReadConcurrently(t *testing.T) {
	tree, root := newTree(t)
	var all sync.WaitGroup
	for _, dir := range []string{"a", "b", "c", "d"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, dir, "f"), []byte(dir), 0o600); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			for range 200 {
				if data, err := tree.Read(dir+"/f", MaxFile); err != nil || string(data) != dir {
					t.Errorf("%s: %q, %v", dir, data, err)
				}
			}
		})
	}
	all.Wait()
}
