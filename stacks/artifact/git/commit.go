package git

import (
	"cmp"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	gitobject "github.com/go-git/go-git/v5/plumbing/object"

	"github.com/ksctl/gitops/stacks/artifact"
)

// Commit is what a commit says and changes.
type Commit struct {
	// Files are those that change, by their paths from the root: their content, or nil for
	// one that goes. Others stay as they are.
	Files map[string][]byte
	// Message of the commit.
	Message string
	// Name and Email of the author, who is the committer, too.
	Name, Email string
	// When it is made.
	When time.Time
}

// growth is what a commit adds to the objects of another.
type growth struct {
	store *store
	added []plumbing.Hash
}

// grow makes a commit on a checkout and writes its pack: what the server has not yet. Where
// nothing changes it returns the commit that there is.
func grow(on *Checkout, what Commit, pack io.Writer, limits artifact.Limits) (plumbing.Hash, error) {
	g := &growth{store: on.store}
	base, err := on.treeOf()
	if err != nil {
		return plumbing.ZeroHash, err
	}
	for _, name := range slices.Sorted(maps.Keys(what.Files)) {
		if err := committable(name, what.Files[name], limits); err != nil {
			return plumbing.ZeroHash, err
		}
	}
	tree, err := g.folder(".", base, what.Files)
	if err != nil {
		return plumbing.ZeroHash, disk(err)
	}
	if tree == base {
		return plumbing.NewHash(on.Commit), nil
	}
	who := gitobject.Signature{Name: oneLine(what.Name), Email: oneLine(what.Email), When: what.When}
	commit := &gitobject.Commit{Author: who, Committer: who, Message: what.Message, TreeHash: tree}
	if on.Commit != "" {
		commit.ParentHashes = []plumbing.Hash{plumbing.NewHash(on.Commit)}
	}
	id, err := g.add(commit.Encode)
	if err == nil {
		_, err = packfile.NewEncoder(pack, g.store, false).Encode(g.added, 0)
	}
	return id, disk(err)
}

// disk is an error of keeping objects, unless it says more.
func disk(err error) error {
	if _, ok := errors.AsType[*Error](err); ok || err == nil {
		return err
	}
	return failBy(Reason(artifact.Storage), err, "keeping objects")
}

// oneLine takes out of a name what ends it in a commit.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == '<' || r == '>' {
			return -1
		}
		return r
	}, s)
}

// committable says what is wrong with a file that is to be committed.
func committable(name string, content []byte, limits artifact.Limits) error {
	if path.Clean(name) != name || path.IsAbs(name) || len(name) > maxPath {
		return unsafeTree(artifact.UnsafePath, clip(name), "no file may have this path")
	}
	for part := range strings.SplitSeq(name, "/") {
		if !safeName(part) || len(part) > maxName {
			return unsafeTree(artifact.UnsafePath, clip(name), "no file may have this path")
		}
	}
	if int64(len(content)) > limits.FileBytes {
		return unsafeTree(artifact.TooLarge, name, "it has more than the %d bytes allowed", limits.FileBytes)
	}
	return nil
}

// treeOf is the root of a checkout's commit, as it is stored; zero where there is no commit.
func (c *Checkout) treeOf() (plumbing.Hash, error) {
	if c.Commit == "" {
		return plumbing.ZeroHash, nil
	}
	o, err := c.store.EncodedObject(plumbing.CommitObject, plumbing.NewHash(c.Commit))
	if err != nil {
		return plumbing.ZeroHash, failBy(CommitNotFound, err, "%s is not a commit", c.Commit)
	}
	var commit gitobject.Commit
	if err := commit.Decode(o); err != nil {
		return plumbing.ZeroHash, failBy(OperationFailed, err, "commit %s can't be read", c.Commit)
	}
	return commit.TreeHash, nil
}

// add keeps an object, if it is a new one.
func (g *growth) add(encode func(plumbing.EncodedObject) error) (plumbing.Hash, error) {
	o := g.store.NewEncodedObject()
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

func (g *growth) file(content []byte) (plumbing.Hash, error) {
	return g.add(func(o plumbing.EncodedObject) error {
		o.SetType(plumbing.BlobObject)
		w, err := o.Writer()
		if err == nil {
			_, err = w.Write(content)
		}
		return err
	})
}

// folder is one of the base with some files below it changed. It is zero where nothing is
// left in it: Git has no empty folders.
func (g *growth) folder(at string, base plumbing.Hash, files map[string][]byte) (plumbing.Hash, error) {
	entries, err := g.entries(base)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	below := map[string]map[string][]byte{}
	for name, content := range files {
		if first, rest, deeper := strings.Cut(name, "/"); deeper {
			if below[first] == nil {
				below[first] = map[string][]byte{}
			}
			below[first][rest] = content
			continue
		}
		if err := g.change(entries, at, name, content); err != nil {
			return plumbing.ZeroHash, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(below)) {
		have, there := entries[name]
		if there && have.Mode != filemode.Dir {
			return plumbing.ZeroHash, taken(path.Join(at, name), "is no folder")
		}
		h, err := g.folder(path.Join(at, name), have.Hash, below[name])
		if err != nil {
			return plumbing.ZeroHash, err
		}
		delete(entries, name)
		if !h.IsZero() {
			entries[name] = gitobject.TreeEntry{Name: name, Mode: filemode.Dir, Hash: h}
		}
	}
	if len(entries) == 0 && at != "." {
		return plumbing.ZeroHash, nil
	}
	t := gitobject.Tree{Entries: slices.SortedFunc(maps.Values(entries), inOrder)}
	return g.add(t.Encode)
}

// entries of a folder, by name; none of a zero one.
func (g *growth) entries(h plumbing.Hash) (map[string]gitobject.TreeEntry, error) {
	out := map[string]gitobject.TreeEntry{}
	if h.IsZero() {
		return out, nil
	}
	o, err := g.store.EncodedObject(plumbing.TreeObject, h)
	if err != nil {
		return nil, err
	}
	var t gitobject.Tree
	if err := t.Decode(o); err != nil {
		return nil, err
	}
	for _, e := range t.Entries {
		out[e.Name] = e
	}
	return out, nil
}

// change puts a file into a folder, or takes it out.
func (g *growth) change(entries map[string]gitobject.TreeEntry, at, name string, content []byte) error {
	have, there := entries[name]
	if there && !have.Mode.IsFile() || have.Mode == filemode.Symlink {
		return taken(path.Join(at, name), "is a folder, a symbolic link or a submodule")
	}
	if content == nil {
		delete(entries, name)
		return nil
	}
	h, err := g.file(content)
	entries[name] = gitobject.TreeEntry{Name: name, Mode: cmp.Or(have.Mode, filemode.Regular), Hash: h}
	return err
}

func taken(name, what string) error {
	return fail(PathTaken, "%s %s in the repository: nothing can be written there", quoted(name), what)
}

// inOrder is how Git sorts a folder: a folder in it as if its name ended in a slash.
func inOrder(a, b gitobject.TreeEntry) int {
	name := func(e gitobject.TreeEntry) string {
		if e.Mode == filemode.Dir {
			return e.Name + "/"
		}
		return e.Name
	}
	return strings.Compare(name(a), name(b))
}
