// Package kustomize builds kustomizations of the source in memory, and applies
// images, replicas and patches to objects from anywhere. Nothing is fetched or run.
package kustomize

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/source"
)

// errReadOnly answers everything that would write.
var errReadOnly = errors.New("the source is read-only")

// fileSystem shows a tree to kustomize as a file system of its own, with the root at /.
type fileSystem struct{ tree *source.Tree }

var _ filesys.FileSystem = fileSystem{}

// below is the path below the root of the tree.
func below(name string) string {
	clean := strings.TrimPrefix(path.Clean("/"+filepath.ToSlash(name)), "/")
	if clean == "" {
		return "."
	}
	return clean
}

// Exists says whether there is a file or a folder.
func (f fileSystem) Exists(name string) bool {
	_, err := f.tree.Stat(below(name))
	return err == nil
}

// IsDir says whether there is a folder.
func (f fileSystem) IsDir(name string) bool { return f.tree.IsDir(below(name)) }

// ReadFile reads a file within the limits of the tree. kustomize expands what
// it reads without a bound of its own.
func (f fileSystem) ReadFile(name string) ([]byte, error) {
	data, err := f.tree.Read(below(name), source.MaxFile)
	if err != nil {
		return nil, err
	}
	return data, document.Bounded(below(name), data)
}

// ReadDir lists the names in a folder.
func (f fileSystem) ReadDir(name string) ([]string, error) {
	entries, err := f.tree.ReadDir(below(name))
	if err != nil {
		return nil, err
	}
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = e.Name()
	}
	return out, nil
}

// CleanedAbs splits a path into folder and file.
func (f fileSystem) CleanedAbs(name string) (filesys.ConfirmedDir, string, error) {
	clean := below(name)
	info, err := f.tree.Stat(clean)
	if err != nil {
		return "", "", err
	}
	abs := path.Join("/", clean)
	if info.IsDir() {
		return filesys.ConfirmedDir(abs), "", nil
	}
	return filesys.ConfirmedDir(path.Dir(abs)), path.Base(abs), nil
}

// Glob is not needed for reading.
func (f fileSystem) Glob(string) ([]string, error) { return nil, errReadOnly }

// Open is not needed for reading.
func (f fileSystem) Open(string) (filesys.File, error) { return nil, errReadOnly }

// Create is refused.
func (f fileSystem) Create(string) (filesys.File, error) { return nil, errReadOnly }

// Mkdir is refused.
func (f fileSystem) Mkdir(string) error { return errReadOnly }

// MkdirAll is refused.
func (f fileSystem) MkdirAll(string) error { return errReadOnly }

// RemoveAll is refused.
func (f fileSystem) RemoveAll(string) error { return errReadOnly }

// WriteFile is refused.
func (f fileSystem) WriteFile(string, []byte) error { return errReadOnly }

// Walk calls walk for every file.
func (f fileSystem) Walk(name string, walk filepath.WalkFunc) error {
	names, err := f.tree.Files(below(name), nil)
	if err != nil {
		return err
	}
	for _, n := range names {
		var info fs.FileInfo
		if info, err = f.tree.Stat(n); err == nil {
			err = walk("/"+n, info, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
