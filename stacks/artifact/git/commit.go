package git

import (
	"cmp"
	"io"
	"maps"
	"path"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	gitobject "github.com/go-git/go-git/v5/plumbing/object"

	"github.com/ksctl/gitops/stacks/artifact"
)

// Commit describes a commit to push.
type Commit struct {
	// Files maps paths from the root to new contents, or to nil for a file to delete. Other
	// files are not changed.
	Files map[string][]byte
	// Message of the commit.
	Message string
	// Name and Email of the author and committer.
	Name, Email string
	// When is the time of the commit.
	When time.Time
}

// commitBuilder creates the objects of a new commit that its parent does not have.
type commitBuilder struct {
	store *objectStore
	added []plumbing.Hash
}

// commitFiles creates a commit on top of a checkout and writes a pack with the objects that
// the server does not have. If no file changes, it returns the commit of the checkout.
func commitFiles(checkout *Checkout, change Commit, pack io.Writer, limits artifact.Limits) (plumbing.Hash, error) {
	builder := &commitBuilder{store: checkout.store}
	base := checkout.tree.nodes["."].hash
	for _, name := range slices.Sorted(maps.Keys(change.Files)) {
		if err := validateFile(name, change.Files[name], limits); err != nil {
			return plumbing.ZeroHash, err
		}
	}
	tree, err := builder.buildTree(".", base, change.Files)
	if err != nil {
		return plumbing.ZeroHash, storageError(err)
	}
	if tree == base {
		return plumbing.NewHash(checkout.Commit), nil
	}
	author := gitobject.Signature{Name: sanitizeIdentity(change.Name), Email: sanitizeIdentity(change.Email),
		When: change.When}
	commit := &gitobject.Commit{Author: author, Committer: author, Message: change.Message, TreeHash: tree}
	if checkout.Commit != "" {
		commit.ParentHashes = []plumbing.Hash{plumbing.NewHash(checkout.Commit)}
	}
	id, err := builder.addObject(commit.Encode)
	if err == nil {
		_, err = packfile.NewEncoder(pack, builder.store, false).Encode(builder.added, 0)
	}
	return id, storageError(err)
}

// sanitizeIdentity removes the characters from a name or email that end it in a commit.
func sanitizeIdentity(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == '<' || r == '>' {
			return -1
		}
		return r
	}, s)
}

// validateFile returns an error if a file must not be committed.
func validateFile(name string, content []byte, limits artifact.Limits) error {
	unsafe := func(part string) bool { return !safeName(part) || len(part) > maxName }
	if len(name) > maxPath || slices.ContainsFunc(strings.Split(name, "/"), unsafe) {
		return treeError(artifact.UnsafePath, truncate(name), "the path is not allowed for a file")
	}
	if int64(len(content)) > limits.FileBytes {
		return treeError(artifact.TooLarge, name, "the file has more than the %d bytes allowed", limits.FileBytes)
	}
	return nil
}

// addObject stores an object unless the store has it, and returns its ID.
func (g *commitBuilder) addObject(encode func(plumbing.EncodedObject) error) (plumbing.Hash, error) {
	o := &plumbing.MemoryObject{}
	if err := encode(o); err != nil {
		return plumbing.ZeroHash, err
	}
	if g.store.has(o.Hash()) {
		return o.Hash(), nil
	}
	h, err := g.store.SetEncodedObject(o)
	g.added = append(g.added, h)
	return h, err
}

func (g *commitBuilder) addBlob(content []byte) (plumbing.Hash, error) {
	return g.addObject(func(o plumbing.EncodedObject) error {
		o.SetType(plumbing.BlobObject)
		w, err := o.Writer()
		if err == nil {
			_, err = w.Write(content)
		}
		return err
	})
}

// buildTree stores a copy of the tree base with the changed files, and returns its ID. It returns
// zero if a tree other than the root becomes empty: Git has no empty directories.
func (g *commitBuilder) buildTree(dir string, base plumbing.Hash,
	files map[string][]byte) (id plumbing.Hash, err error) {
	entries, err := g.treeEntries(base)
	if err != nil {
		return id, err
	}
	subtrees := map[string]map[string][]byte{}
	for name, content := range files {
		if first, rest, deeper := strings.Cut(name, "/"); deeper {
			if subtrees[first] == nil {
				subtrees[first] = map[string][]byte{}
			}
			subtrees[first][rest] = content
			continue
		}
		if err := g.setEntry(entries, dir, name, content); err != nil {
			return id, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(subtrees)) {
		existing, exists := entries[name]
		if exists && existing.Mode != filemode.Dir {
			return id, pathTakenError(path.Join(dir, name), "is not a directory")
		}
		h, err := g.buildTree(path.Join(dir, name), existing.Hash, subtrees[name])
		if err != nil {
			return id, err
		}
		delete(entries, name)
		if !h.IsZero() {
			entries[name] = gitobject.TreeEntry{Name: name, Mode: filemode.Dir, Hash: h}
		}
	}
	if len(entries) == 0 && dir != "." {
		return plumbing.ZeroHash, nil
	}
	t := gitobject.Tree{Entries: slices.Collect(maps.Values(entries))}
	sort.Sort(gitobject.TreeEntrySorter(t.Entries))
	return g.addObject(t.Encode)
}

// treeEntries returns the entries of a tree by name, and none for the zero ID.
func (g *commitBuilder) treeEntries(h plumbing.Hash) (map[string]gitobject.TreeEntry, error) {
	out := map[string]gitobject.TreeEntry{}
	if h.IsZero() {
		return out, nil
	}
	entries, err := g.store.treeEntries(h)
	for _, e := range entries {
		out[e.Name] = e
	}
	return out, err
}

// setEntry adds or replaces a file in the entries of a tree, or deletes it if content is nil.
func (g *commitBuilder) setEntry(entries map[string]gitobject.TreeEntry, dir, name string, content []byte) error {
	existing, exists := entries[name]
	if exists && !existing.Mode.IsFile() || existing.Mode == filemode.Symlink {
		return pathTakenError(path.Join(dir, name), "is a directory, a symbolic link or a submodule")
	}
	if content == nil {
		delete(entries, name)
		return nil
	}
	h, err := g.addBlob(content)
	entries[name] = gitobject.TreeEntry{Name: name, Mode: cmp.Or(existing.Mode, filemode.Regular), Hash: h}
	return err
}

func pathTakenError(name, state string) error {
	return newError(PathTaken, "%s %s in the repository, so that no file can be written there", quoteName(name), state)
}
