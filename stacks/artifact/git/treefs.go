package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	gitobject "github.com/go-git/go-git/v5/plumbing/object"

	"github.com/ksctl/gitops/stacks/artifact"
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

// tree is the file tree of a commit. It is built completely before the first file is read, so
// that the file limit stops a Git tree that contains the same subtree many times per level.
type tree struct {
	store *objectStore
	nodes map[string]*node
	// bytes is the total size of all files.
	bytes int64
}

type node struct {
	name string
	mode fs.FileMode
	hash plumbing.Hash
	// store has the content. Files of submodules are in other stores.
	store   *objectStore
	size    int64
	entries []fs.DirEntry
}

var _ fs.ReadDirFS = (*tree)(nil)

// FS returns the files of the commit. It contains symbolic links, and submodules that were not
// added, as entries that can't be opened.
func (c *Checkout) FS() fs.FS { return c.tree }

// readCommit returns the file tree of a commit and the paths of its submodules.
func readCommit(ctx context.Context, st *objectStore, commit plumbing.Hash,
	limits artifact.Limits) (*tree, []string, error) {
	c, err := st.commit(commit)
	if err != nil {
		return nil, nil, err
	}
	b := &treeBuilder{ctx: ctx, limits: limits, tree: &tree{store: st, nodes: map[string]*node{}}}
	if err := b.addDir(".", c.TreeHash, 0); err != nil {
		return nil, nil, packContentError(ctx, err)
	}
	return b.tree, b.submodulePaths, nil
}

// Limits of paths, in bytes. File systems have the same, and a hostile tree with few objects
// could otherwise fill the memory with names.
const (
	maxName = 255
	maxPath = 2048
)

type treeBuilder struct {
	ctx            context.Context
	limits         artifact.Limits
	tree           *tree
	submodulePaths []string // paths of submodules
}

func (b *treeBuilder) addDir(dir string, h plumbing.Hash, depth int) error {
	if err := b.ctx.Err(); err != nil {
		return err
	}
	if depth >= b.limits.Depth {
		return treeError(artifact.TooDeep, dir, "directories are nested more than %d levels deep", b.limits.Depth)
	}
	if b.tree.store.objects[h].size > int64(b.limits.Files)*(maxName+32) {
		return b.tooManyFilesError()
	}
	entries, err := b.tree.store.treeEntries(h)
	if err != nil {
		return fmt.Errorf("directory %q: %w", dir, err)
	}
	n := &node{name: path.Base(dir), mode: fs.ModeDir | 0o755, hash: h}
	b.tree.nodes[dir] = n
	for _, e := range entries {
		if err := b.addEntry(n, dir, e, depth); err != nil {
			return err
		}
	}
	slices.SortFunc(n.entries, func(x, y fs.DirEntry) int { return strings.Compare(x.Name(), y.Name()) })
	return nil
}

func (b *treeBuilder) addEntry(parent *node, dir string, e gitobject.TreeEntry, depth int) error {
	name := path.Join(dir, e.Name)
	if !safeName(e.Name) {
		return treeError(artifact.UnsafePath, name, "the name is not allowed")
	}
	if len(e.Name) > maxName || len(name) > maxPath {
		return treeError(artifact.Malformed, name, "the path has more than %d bytes, or an element of more than %d",
			maxPath, maxName)
	}
	if b.tree.nodes[name] != nil {
		return treeError(artifact.Malformed, name, "the path appears twice")
	}
	if len(b.tree.nodes) > b.limits.Files {
		return b.tooManyFilesError()
	}
	if e.Mode == filemode.Dir {
		if err := b.addDir(name, e.Hash, depth+1); err != nil {
			return err
		}
		parent.entries = append(parent.entries, b.tree.nodes[name])
		return nil
	}
	n := &node{name: e.Name, hash: e.Hash, store: b.tree.store}
	switch e.Mode {
	case filemode.Regular, filemode.Deprecated:
		n.mode = 0o644
	case filemode.Executable:
		n.mode = 0o755
	case filemode.Symlink:
		n.mode = fs.ModeSymlink | 0o777
	case filemode.Submodule:
		n.mode = fs.ModeIrregular
		b.submodulePaths = append(b.submodulePaths, name)
	default:
		return treeError(artifact.Malformed, name, "the entry has the unknown mode %s", e.Mode)
	}
	if n.mode.IsRegular() {
		if err := b.addFileBytes(n, name); err != nil {
			return err
		}
	}
	b.tree.nodes[name] = n
	parent.entries = append(parent.entries, n)
	return nil
}

func (b *treeBuilder) addFileBytes(n *node, name string) error {
	o, ok := b.tree.store.objects[n.hash]
	if !ok || o.kind != plumbing.BlobObject {
		return fmt.Errorf("file %q: %w", name, plumbing.ErrObjectNotFound)
	}
	n.size = o.size
	if b.tree.bytes += o.size; b.tree.bytes > b.limits.UnpackedBytes {
		return treeError(artifact.TooLarge, name, "with this file the tree has more than the %d bytes allowed",
			b.limits.UnpackedBytes)
	}
	return nil
}

func (b *treeBuilder) tooManyFilesError() error {
	return treeError(artifact.TooManyFiles, "", "the tree has more than %d files and directories", b.limits.Files)
}

// safeName is false for names that git itself refuses to check out.
func safeName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00") &&
		!strings.EqualFold(name, ".git")
}
