package git

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	gitobject "github.com/go-git/go-git/v5/plumbing/object"

	"github.com/ksctl/gitops/stacks/artifact"
)

// tree is the files of a commit, all found before the first is read: a tree
// that names itself a thousand times a level is stopped by the limit of files.
type tree struct {
	store *store
	nodes map[string]*node
	// bytes are those of all files.
	bytes int64
}

type node struct {
	name string
	mode fs.FileMode
	hash plumbing.Hash
	// store has the content: that of a submodule is another.
	store   *store
	size    int64
	entries []fs.DirEntry
}

var _ fs.ReadDirFS = (*tree)(nil)

// FS shows the files of the commit. Symbolic links, and submodules that were
// not added, are there as entries that can't be opened.
func (c *Checkout) FS() fs.FS { return c.tree }

func readTree(ctx context.Context, st *store, commit plumbing.Hash, limits artifact.Limits) (*tree, error) {
	t, _, err := readCommit(ctx, st, commit, limits)
	return t, err
}

// readCommit gives the files of a commit, and where its submodules are.
func readCommit(ctx context.Context, st *store, commit plumbing.Hash, limits artifact.Limits) (*tree, []string, error) {
	o, err := st.EncodedObject(plumbing.CommitObject, commit)
	if err != nil {
		return nil, nil, failBy(CommitNotFound, err, "%s is not a commit", commit)
	}
	var c gitobject.Commit
	if err := c.Decode(o); err != nil {
		return nil, nil, failBy(OperationFailed, err, "commit %s can't be read", commit)
	}
	b := &treeBuilder{ctx: ctx, limits: limits, tree: &tree{store: st, nodes: map[string]*node{}}}
	if err := b.folder(".", c.TreeHash, 0); err != nil {
		return nil, nil, badContent(ctx, err)
	}
	return b.tree, b.links, nil
}

// What a file system takes, and what keeps a hostile tree of few objects from
// filling the memory with names.
const (
	maxName = 255
	maxPath = 2048
)

type treeBuilder struct {
	ctx    context.Context
	limits artifact.Limits
	tree   *tree
	links  []string // paths of submodules
}

func (b *treeBuilder) folder(at string, h plumbing.Hash, depth int) error {
	if err := b.ctx.Err(); err != nil {
		return err
	}
	if depth >= b.limits.Depth {
		return unsafeTree(artifact.TooDeep, at, "there are more than %d folders in each other", b.limits.Depth)
	}
	if b.tree.store.objects[h].size > int64(b.limits.Files)*(maxName+32) {
		return b.tooMany()
	}
	o, err := b.tree.store.EncodedObject(plumbing.TreeObject, h)
	if err != nil {
		return fmt.Errorf("folder %q: %w", at, err)
	}
	var t gitobject.Tree
	if err := t.Decode(o); err != nil {
		return fmt.Errorf("folder %q: %w", at, err)
	}
	n := &node{name: path.Base(at), mode: fs.ModeDir | 0o755, hash: h}
	b.tree.nodes[at] = n
	for _, e := range t.Entries {
		if err := b.entry(n, at, e, depth); err != nil {
			return err
		}
	}
	slices.SortFunc(n.entries, func(x, y fs.DirEntry) int { return strings.Compare(x.Name(), y.Name()) })
	return nil
}

func (b *treeBuilder) entry(in *node, at string, e gitobject.TreeEntry, depth int) error {
	name := path.Join(at, e.Name)
	if !safeName(e.Name) {
		return unsafeTree(artifact.UnsafePath, name, "no tree may hold this name")
	}
	if len(e.Name) > maxName || len(name) > maxPath {
		return unsafeTree(artifact.Malformed, name, "a path of more than %d bytes, or a name of more than %d", maxPath, maxName)
	}
	if b.tree.nodes[name] != nil {
		return unsafeTree(artifact.Malformed, name, "comes twice")
	}
	if len(b.tree.nodes) > b.limits.Files {
		return b.tooMany()
	}
	if e.Mode == filemode.Dir {
		if err := b.folder(name, e.Hash, depth+1); err != nil {
			return err
		}
		in.entries = append(in.entries, b.tree.nodes[name])
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
		b.links = append(b.links, name)
	default:
		return unsafeTree(artifact.Malformed, name, "has the unknown mode %s", e.Mode)
	}
	if n.mode.IsRegular() {
		if err := b.content(n, name); err != nil {
			return err
		}
	}
	b.tree.nodes[name] = n
	in.entries = append(in.entries, n)
	return nil
}

func (b *treeBuilder) content(n *node, name string) error {
	o, ok := b.tree.store.objects[n.hash]
	if !ok || o.kind != plumbing.BlobObject {
		return fmt.Errorf("file %q: %w", name, plumbing.ErrObjectNotFound)
	}
	n.size = o.size
	if b.tree.bytes += o.size; b.tree.bytes > b.limits.UnpackedBytes {
		return unsafeTree(artifact.TooLarge, name, "with this file the tree has more than the %d bytes allowed", b.limits.UnpackedBytes)
	}
	return nil
}

func (b *treeBuilder) tooMany() error {
	return unsafeTree(artifact.TooManyFiles, "", "the tree holds more than %d files and folders", b.limits.Files)
}

// safeName refuses names that git itself refuses to check out.
func safeName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00") && !strings.EqualFold(name, ".git")
}
