package manifests

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/kustomization"
)

// Tree is a folder of a repository, with the files that are synced from it. It caches what is
// built, for several calls about one object. It is not safe for concurrent use.
type Tree struct {
	// ctx ends builds.
	ctx  context.Context
	fsys fs.FS
	root string
	// kustomizations by folder. They may be outside the root.
	kustomizations map[string]*kustomizationFile
	// included are the files that are synced, and how.
	included map[string][]inclusion
	// entries are the folders of the outermost kustomizations, sorted.
	entries []string
	builds  map[string]build
	// listing caches listsOnly. includes counts the calls of include.
	listing  map[string]bool
	includes int
}

// inclusion is a way in which a file is synced.
type inclusion struct {
	// chain are the folders of the kustomizations from the outermost one to the one that lists the
	// file; empty if none does.
	chain []string
	// namespace replaces that of the document if it is not empty.
	namespace string
}

// entry returns the folder of the outermost kustomization.
func (i inclusion) entry() (string, bool) {
	if len(i.chain) == 0 {
		return "", false
	}
	return i.chain[0], true
}

type build struct {
	objects []map[string]any
	err     error
}

// Load finds the files that are synced from the folder root. A folder that does not exist is empty.
// The error is a *ConflictError without an object. ctx is used until the last call of a method.
func Load(ctx context.Context, fsys fs.FS, root string) (*Tree, error) {
	t, err := loadTree(ctx, fsys, root)
	if err != nil {
		return nil, withKey(Key{}, err)
	}
	return t, nil
}

func loadTree(ctx context.Context, fsys fs.FS, root string) (*Tree, error) {
	root = path.Clean(strings.TrimPrefix(root, "/"))
	if !fs.ValidPath(root) {
		return nil, &ConflictError{File: root, Reason: "the path leaves the repository"}
	}
	t := &Tree{ctx: ctx, fsys: fsys, root: root, kustomizations: map[string]*kustomizationFile{},
		included: map[string][]inclusion{}, builds: map[string]build{}, listing: map[string]bool{}}
	info, err := fs.Stat(fsys, root)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil || !info.IsDir() {
		return nil, &ConflictError{File: root, Reason: "the path is not a folder of the repository"}
	}
	var loose, candidates []string
	if t.kustomizationIn(root) != nil {
		candidates = []string{root}
	} else if loose, candidates, err = t.walk(); err != nil {
		return nil, err
	}
	reached := map[string]bool{}
	for _, dir := range candidates {
		for _, c := range t.kustomizationIn(dir).children {
			t.reach(c, reached)
		}
	}
	for _, dir := range candidates {
		if !reached[dir] || dir == root {
			t.entries = append(t.entries, dir)
			t.include(dir, "", nil)
		}
	}
	if t.includes > maxKustomizations {
		return nil, &ConflictError{File: root,
			Reason: "the folder has too many kustomizations, or they include each other " +
				"too often"}
	}
	for _, file := range loose {
		t.included[file] = append(t.included[file], inclusion{})
	}
	return t, nil
}

// walk returns the manifests of folders without a kustomization in them or above them, and the
// folders of the kustomizations without another one above them.
func (t *Tree) walk() (loose, candidates []string, err error) {
	limits, count := artifact.DefaultLimits(), 0
	err = fs.WalkDir(t.fsys, t.root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if count++; count > limits.Files || strings.Count(name, "/") > limits.Depth {
			return &ConflictError{File: t.root, Reason: "the folder has too many files, or is nested too deeply"}
		}
		hidden := name != t.root && strings.HasPrefix(d.Name(), ".")
		switch {
		case d.IsDir() && hidden:
			return fs.SkipDir
		case d.IsDir() && t.kustomizationIn(name) != nil:
			candidates = append(candidates, name)
			return fs.SkipDir
		case !hidden && d.Type().IsRegular() && isManifest(name):
			loose = append(loose, name)
		}
		return nil
	})
	return loose, candidates, err
}

func isManifest(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(path.Ext(name)))
}

// reach marks the kustomizations that are included by others.
func (t *Tree) reach(dir string, reached map[string]bool) {
	k := t.kustomizationIn(dir)
	if k == nil || reached[dir] {
		return
	}
	reached[dir] = true
	for _, c := range k.children {
		t.reach(c, reached)
	}
}

// include adds the files of a kustomization. outer is the namespace of those that include it.
func (t *Tree) include(dir, outer string, chain []string) {
	k := t.kustomizationIn(dir)
	if t.includes++; t.includes > maxKustomizations || k == nil || slices.Contains(chain,
		dir) || len(chain) > artifact.DefaultLimits().Depth {
		return
	}
	chain = append(slices.Clone(chain), dir)
	if outer == "" {
		outer = k.namespace
	}
	for _, file := range k.files {
		t.included[file] = append(t.included[file], inclusion{chain: chain, namespace: outer})
	}
	for _, c := range k.children {
		t.include(c, outer, chain)
	}
}

// errTooLarge is the error of a file that is not read.
var errTooLarge = errors.New("it is too large to be read")

// read reads a regular file.
func (t *Tree) read(file string) ([]byte, error) {
	f, err := t.fsys.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(data) > maxFileBytes {
		err = errTooLarge
	}
	return data, err
}

// files returns the files that are synced, sorted.
func (t *Tree) files() []string { return slices.Sorted(maps.Keys(t.included)) }

// render builds the kustomization in a folder, once.
func (t *Tree) render(dir string) ([]map[string]any, error) {
	b, ok := t.builds[dir]
	if !ok && !t.kustomizationIn(dir).empty {
		b.objects, b.err = kustomization.Build(t.ctx, t.fsys, dir)
		t.builds[dir] = b
	}
	return b.objects, b.err
}

// inRoot returns true for a file below the root.
func (t *Tree) inRoot(file string) bool { return below(t.root, file) }

// below returns true for a path below a folder.
func below(dir, name string) bool { return dir == "." || strings.HasPrefix(name, dir+"/") }
