package manifests

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/konfig"

	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/kustomization"
)

// maxKustomizations bounds the kustomizations of one tree.
const maxKustomizations = 10_000

// Tree is a folder of a repository, with the files that are synced from it. It caches what is
// built, for several calls about one object. It is not safe for concurrent use.
type Tree struct {
	fsys fs.FS
	root string
	// kustomizations by folder. They may be outside the root.
	kustomizations map[string]*kustomizationFile
	// included are the files that are synced, and how.
	included map[string][]inclusion
	// entries are the folders of the outermost kustomizations, sorted.
	entries []string
	builds  map[string]build
}

// kustomizationFile has what a kustomization lists. Its paths are cleaned.
type kustomizationFile struct {
	dir, file       string
	namespace       string
	files, children []string
	// empty is true without any field that makes or changes objects. kustomize refuses to build it.
	empty bool
}

// inclusion is a way in which a file is synced.
type inclusion struct {
	// chain are the folders of the kustomizations from the outermost one to that which lists the
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
// The error is a *ConflictError without an object.
func Load(fsys fs.FS, root string) (*Tree, error) {
	t, err := loadTree(fsys, root)
	if err != nil {
		return nil, withKey(Key{}, err)
	}
	return t, nil
}

func loadTree(fsys fs.FS, root string) (*Tree, error) {
	root = path.Clean(strings.TrimPrefix(root, "/"))
	if !fs.ValidPath(root) {
		return nil, &ConflictError{File: root, Reason: "the path leaves the repository"}
	}
	t := &Tree{fsys: fsys, root: root, kustomizations: map[string]*kustomizationFile{},
		included: map[string][]inclusion{}, builds: map[string]build{}}
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
	if k == nil || slices.Contains(chain, dir) || len(chain) > artifact.DefaultLimits().Depth {
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

// kustomizationIn returns the kustomization in a folder, or nil. One that cannot be parsed lists
// nothing: its build has the error.
func (t *Tree) kustomizationIn(dir string) *kustomizationFile {
	if k, ok := t.kustomizations[dir]; ok || len(t.kustomizations) > maxKustomizations {
		return k
	}
	t.kustomizations[dir] = nil
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		file := path.Join(dir, name)
		if info, err := fs.Stat(t.fsys, file); err != nil || !info.Mode().IsRegular() {
			continue
		}
		t.kustomizations[dir] = t.parseKustomization(dir, file)
		break
	}
	return t.kustomizations[dir]
}

// listFields are the fields of a kustomization that list files and folders.
var listFields = []string{"resources", "bases", "components"}

func (t *Tree) parseKustomization(dir, file string) *kustomizationFile {
	k := &kustomizationFile{dir: dir, file: file}
	data, err := t.read(file)
	if err != nil {
		return k
	}
	segments, err := parseFile(data)
	if err != nil {
		return k
	}
	k.empty = true
	for _, s := range segments {
		if s.root == nil {
			continue
		}
		for i := 0; i < len(s.root.Content); i += 2 {
			k.empty = k.empty && slices.Contains([]string{"apiVersion", "kind", "metadata"}, s.root.Content[i].Value)
		}
		k.namespace = scalar(child(s.root, "namespace"))
		for _, field := range listFields {
			k.addEntries(t.fsys, child(s.root, field))
		}
	}
	return k
}

func (k *kustomizationFile) addEntries(fsys fs.FS, list *yaml.Node) {
	if list == nil || list.Kind != yaml.SequenceNode {
		return
	}
	for _, item := range list.Content {
		name := path.Join(k.dir, scalar(item))
		if !fs.ValidPath(name) {
			continue // outside the repository, which is an error of the build
		}
		info, err := fs.Stat(fsys, name)
		switch {
		case err != nil:
		case info.IsDir():
			k.children = append(k.children, name)
		case info.Mode().IsRegular():
			k.files = append(k.files, name)
		}
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
		b.objects, b.err = kustomization.Build(context.Background(), t.fsys, dir)
		t.builds[dir] = b
	}
	return b.objects, b.err
}

// inRoot returns true for a file below the root.
func (t *Tree) inRoot(file string) bool {
	return t.root == "." || strings.HasPrefix(file, t.root+"/")
}

// overlay is a tree with changed files.
type overlay struct {
	fs.FS
	// files are the new contents by path, nil for a deleted file.
	files map[string][]byte
}

var _ fs.ReadDirFS = overlay{}

// Open implements fs.FS.
func (o overlay) Open(name string) (fs.File, error) {
	content, changed := o.files[name]
	switch {
	case changed && content == nil:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case changed:
		return &changedFile{changedInfo{path.Base(name), int64(len(content)), 0o644}, bytes.NewReader(content)}, nil
	}
	f, err := o.FS.Open(name)
	if errors.Is(err, fs.ErrNotExist) && o.hasFolder(name) {
		return &changedFile{changedInfo{path.Base(name), 0, fs.ModeDir | 0o755}, bytes.NewReader(nil)}, nil
	}
	return f, err
}

// hasFolder returns true if a changed file is below a folder.
func (o overlay) hasFolder(name string) bool {
	for file, content := range o.files {
		if content != nil && (name == "." || strings.HasPrefix(file, name+"/")) {
			return true
		}
	}
	return false
}

// ReadDir implements fs.ReadDirFS.
func (o overlay) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(o.FS, name)
	if err != nil && (!errors.Is(err, fs.ErrNotExist) || !o.hasFolder(name)) {
		return nil, err
	}
	byName := map[string]fs.DirEntry{}
	for _, e := range entries {
		byName[e.Name()] = e
	}
	for file, content := range o.files {
		rest := file
		if name != "." {
			below, ok := strings.CutPrefix(file, name+"/")
			if !ok {
				continue
			}
			rest = below
		}
		first, _, deeper := strings.Cut(rest, "/")
		switch {
		case deeper && content != nil && byName[first] == nil:
			byName[first] = fs.FileInfoToDirEntry(changedInfo{first, 0, fs.ModeDir | 0o755})
		case !deeper && content == nil:
			delete(byName, first)
		case !deeper:
			byName[first] = fs.FileInfoToDirEntry(changedInfo{first, int64(len(content)), 0o644})
		}
	}
	out := make([]fs.DirEntry, 0, len(byName))
	for _, k := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, byName[k])
	}
	return out, nil
}
