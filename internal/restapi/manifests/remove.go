package manifests

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Remove returns the files to write so that the repository has no document of an object. A file
// without another document is deleted, which its content nil means, and removed from the
// kustomizations that list it; the last one of a folder without a kustomization gets a comment. The
// error is a *ConflictError, also if there is no document.
func Remove(ctx context.Context, fsys fs.FS, root string, key Key) (map[string][]byte, error) {
	t, err := loadTree(ctx, fsys, root)
	if err != nil {
		return nil, withKey(key, err)
	}
	return t.Remove(key)
}

// Remove is like the function Remove.
func (t *Tree) Remove(key Key) (map[string][]byte, error) {
	f, err := t.find(key)
	if err != nil {
		return nil, withKey(key, err)
	}
	files := map[string][]byte{}
	if data, err := f.without(); err != nil {
		return nil, conflict(key, f.file, "%s", err)
	} else if files[f.file] = data; data == nil {
		if err := t.unlist(key, f, files); err != nil {
			return nil, err
		}
		if len(t.included) == 1 && len(t.entries) == 0 {
			files[placeholderFor(f.file)] = []byte(placeholder)
		}
	}
	return files, t.verifyRemoved(key, f, files)
}

// placeholder is the content of the last file of a folder without a kustomization. Without a file,
// Git would have no folder, and Flux would fail instead of pruning the objects. Some versions of
// Flux need a manifest: they fail for a folder with other files only.
const placeholder = "# This folder has no objects. The file keeps the folder.\n"

// placeholderFor returns the path of the placeholder for a file. JSON has no comments.
func placeholderFor(file string) string {
	if name, ok := strings.CutSuffix(file, ".json"); ok {
		return name + ".yaml"
	}
	return file
}

// without returns the file without the document, and nil if it has no other one.
func (f *found) without() ([]byte, error) {
	others := 0
	for i, s := range f.segments {
		if i != f.index && s.root != nil {
			others++
		}
	}
	if others == 0 {
		return nil, nil
	}
	s := f.segment()
	from, to := s.marker, s.end
	if f.index == 0 {
		// The next document needs its marker only if that has a comment.
		if next := f.segments[1]; isBlank(firstLine(next.text(f.data))) {
			to = next.start + len(firstLine(next.text(f.data)))
		}
	}
	data := slices.Concat(f.data[:from], f.data[to:])
	after, err := parseFile(data)
	if err != nil {
		return nil, errNotEditable
	}
	var kept [][]byte
	for i, one := range f.segments {
		if i != f.index && one.root != nil {
			kept = append(kept, one.text(f.data))
		}
	}
	for _, one := range after {
		if one.root == nil {
			continue
		}
		if len(kept) == 0 || !bytes.HasSuffix(kept[0], one.text(data)) {
			return nil, errNotEditable
		}
		kept = kept[1:]
	}
	if len(kept) > 0 {
		return nil, errNotEditable
	}
	return data, nil
}

// firstLine returns the first line of a text with its line break.
func firstLine(text []byte) []byte {
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		return text[:i+1]
	}
	return text
}

// unlist removes a file from the kustomizations that list it.
func (t *Tree) unlist(key Key, f *found, files map[string][]byte) error {
	for _, k := range t.kustomizations {
		if k == nil || !slices.Contains(k.files, f.file) {
			continue
		}
		if !t.inRoot(k.file) {
			return conflict(key, k.file, "this kustomization lists %s, and is outside the folder %s", f.file, t.root)
		}
		file, value, err := t.readKustomization(k)
		if err == nil {
			for _, field := range listFields {
				if list, ok := value[field].([]any); ok {
					value[field] = slices.DeleteFunc(list, func(v any) bool {
						return path.Join(k.dir, asString(v)) == f.file
					})
				}
			}
			files[k.file], err = file.replace(value)
		}
		if err != nil {
			return conflict(key, k.file, "%s cannot be removed from the resources: %s", f.file, err)
		}
	}
	return nil
}

// verifyRemoved returns an error if the object is still synced after the change, or if its
// kustomization cannot be built any more.
func (t *Tree) verifyRemoved(key Key, f *found, files map[string][]byte) error {
	changed, err := loadTree(t.ctx, overlay{t.fsys, files}, t.root)
	if err != nil {
		return withKey(key, err)
	}
	if dir, ok := f.how.entry(); ok && !changed.listsOnly(dir) {
		if _, err := changed.render(dir); err != nil {
			return t.buildConflict(key, t.kustomizations[dir].file, err)
		}
	}
	_, err = changed.find(key)
	if e, ok := errors.AsType[*ConflictError](err); ok && e.NotFound {
		return nil
	}
	if err == nil {
		return conflict(key, f.file, "the object is still in the folder without this document")
	}
	return withKey(key, err)
}
