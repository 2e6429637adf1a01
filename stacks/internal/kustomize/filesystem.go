// Package kustomize builds kustomizations of the source in memory, and applies images, replicas and
// patches to objects of any origin. It fetches nothing and executes nothing.
package kustomize

import (
	"errors"
	"path"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/source"
)

// errReadOnly is the error of all operations other than those that builds need.
var errReadOnly = errors.New("the source is read-only")

// fileSystem presents a tree to kustomize as a read-only file system with the tree's root at /.
type fileSystem struct {
	tree *source.Tree
	// generated are files that replace or extend those of the tree.
	generated generatedFiles
}

var _ filesys.FileSystem = fileSystem{}

// relativeToRoot returns a path relative to the root of the tree.
func relativeToRoot(name string) string {
	clean := strings.TrimPrefix(path.Clean("/"+filepath.ToSlash(name)), "/")
	if clean == "" {
		return "."
	}
	return clean
}

// Exists returns true for a file or a folder.
func (f fileSystem) Exists(name string) bool {
	_, err := f.isDir(relativeToRoot(name))
	return err == nil
}

// IsDir returns true for a folder.
func (f fileSystem) IsDir(name string) bool {
	folder, err := f.isDir(relativeToRoot(name))
	return folder && err == nil
}

// isDir returns an error if neither a file nor a folder has the name.
func (f fileSystem) isDir(name string) (bool, error) {
	if _, file := f.generated.files[name]; file || f.generated.folders[name] {
		return !file, nil
	}
	info, err := f.tree.Stat(name)
	return err == nil && info.IsDir(), err
}

// ReadFile reads a file within the limits of the tree. It also limits the expansion of YAML
// aliases, because kustomize does not.
func (f fileSystem) ReadFile(name string) ([]byte, error) {
	if data, ok := f.generated.files[relativeToRoot(name)]; ok {
		return data, nil
	}
	data, err := f.tree.Read(relativeToRoot(name), source.MaxFile)
	if err != nil {
		return nil, err
	}
	return data, document.CheckAliasExpansion(relativeToRoot(name), data)
}

// ReadDir returns an error: builds do not need it.
func (f fileSystem) ReadDir(string) ([]string, error) { return nil, errReadOnly }

// CleanedAbs splits a path into its folder and file.
func (f fileSystem) CleanedAbs(name string) (filesys.ConfirmedDir, string, error) {
	clean := relativeToRoot(name)
	folder, err := f.isDir(clean)
	if err != nil {
		return "", "", err
	}
	abs := path.Join("/", clean)
	if folder {
		return filesys.ConfirmedDir(abs), "", nil
	}
	return filesys.ConfirmedDir(path.Dir(abs)), path.Base(abs), nil
}

// Glob returns an error: builds do not need it.
func (f fileSystem) Glob(string) ([]string, error) { return nil, errReadOnly }

// Open returns an error: builds do not need it.
func (f fileSystem) Open(string) (filesys.File, error) { return nil, errReadOnly }

// Create returns an error.
func (f fileSystem) Create(string) (filesys.File, error) { return nil, errReadOnly }

// Mkdir returns an error.
func (f fileSystem) Mkdir(string) error { return errReadOnly }

// MkdirAll returns an error.
func (f fileSystem) MkdirAll(string) error { return errReadOnly }

// RemoveAll returns an error.
func (f fileSystem) RemoveAll(string) error { return errReadOnly }

// WriteFile returns an error.
func (f fileSystem) WriteFile(string, []byte) error { return errReadOnly }

// Walk returns an error: builds do not need it.
func (f fileSystem) Walk(string, filepath.WalkFunc) error { return errReadOnly }
