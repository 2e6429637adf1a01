package source

import (
	"os"
	"path"
	"sync"
)

// folderHandle is the open folder that a Tree used last. Files of one folder are read one after the
// other, and a path from the root opens each of its folders.
type folderHandle struct {
	mu   sync.Mutex
	name string
	root *os.Root
}

// inFolder calls a method of os.Root for a path of the tree, relative to its folder if possible.
// A symbolic link that leaves the folder, but not the tree, needs the path from the root.
func inFolder[T any](t *Tree, name string, call func(*os.Root, string) (T, error)) (T, error) {
	if dir, base := path.Split(name); dir != "" && base != "" && base != "." && base != ".." {
		if root := t.folder.open(t.root, path.Clean(dir)); root != nil {
			if out, err := call(root, base); err == nil {
				return out, nil
			}
		}
	}
	return call(t.root, name)
}

// open returns the folder, or nil if it cannot be opened. Another open closes it, which fails calls
// that have not begun.
func (h *folderHandle) open(tree *os.Root, name string) *os.Root {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.root != nil && h.name == name {
		return h.root
	}
	root, err := tree.OpenRoot(name)
	if err != nil {
		return nil
	}
	if h.root != nil {
		_ = h.root.Close()
	}
	h.name, h.root = name, root
	return root
}

func (h *folderHandle) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.root != nil {
		_ = h.root.Close()
	}
	h.name, h.root = "", nil
}
