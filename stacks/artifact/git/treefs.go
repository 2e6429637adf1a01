package git

import (
	"errors"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

// Open implements fs.FS.
func (t *tree) Open(name string) (fs.File, error) {
	n, err := t.lookup("open", name)
	if err != nil {
		return nil, err
	}
	switch {
	case n.mode.IsDir():
		return &openDir{handle: handle{n}}, nil
	case !n.mode.IsRegular():
		return nil, pathError("open", name, errNotAFile)
	}
	r, err := n.store.content(n.hash, plumbing.BlobObject)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return &openFile{SectionReader: r, handle: handle{n}}, nil
}

func pathError(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

var errNotAFile = errors.New("is a symbolic link or a submodule")

// ReadDir implements fs.ReadDirFS.
func (t *tree) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := t.lookup("readdir", name)
	if err != nil {
		return nil, err
	}
	if !n.mode.IsDir() {
		return nil, pathError("readdir", name, errors.New("not a directory"))
	}
	return slices.Clone(n.entries), nil
}

func (t *tree) lookup(op, name string) (*node, error) {
	if !fs.ValidPath(name) {
		return nil, pathError(op, name, fs.ErrInvalid)
	}
	n := t.nodes[name]
	if n == nil {
		return nil, pathError(op, name, fs.ErrNotExist)
	}
	return n, nil
}

// Name implements fs.FileInfo and fs.DirEntry.
func (n *node) Name() string { return n.name }

// IsDir implements fs.FileInfo and fs.DirEntry.
func (n *node) IsDir() bool { return n.mode.IsDir() }

// Type implements fs.DirEntry.
func (n *node) Type() fs.FileMode { return n.mode.Type() }

// Info implements fs.DirEntry.
func (n *node) Info() (fs.FileInfo, error) { return n, nil }

// Size implements fs.FileInfo.
func (n *node) Size() int64 { return n.size }

// Mode implements fs.FileInfo.
func (n *node) Mode() fs.FileMode { return n.mode }

// ModTime implements fs.FileInfo. Git does not store modification times.
func (n *node) ModTime() time.Time { return time.Time{} }

// Sys implements fs.FileInfo.
func (n *node) Sys() any { return nil }

// handle is an open file or directory.
type handle struct{ node *node }

// Stat implements fs.File.
func (h handle) Stat() (fs.FileInfo, error) { return h.node, nil }

// Close implements fs.File.
func (h handle) Close() error { return nil }

type openFile struct {
	handle
	*io.SectionReader
}

type openDir struct {
	handle
	offset int
}

// Read implements fs.File.
func (f *openDir) Read([]byte) (int, error) {
	return 0, pathError("read", f.node.name, errors.New("is a directory"))
}

// ReadDir implements fs.ReadDirFile.
func (f *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	rest := f.node.entries[f.offset:]
	if n > 0 {
		if len(rest) == 0 {
			return nil, io.EOF
		}
		rest = rest[:min(n, len(rest))]
	}
	f.offset += len(rest)
	return slices.Clone(rest), nil
}
