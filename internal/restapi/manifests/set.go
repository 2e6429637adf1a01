package manifests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Set returns the files to write so that the repository has the object as given, and its document
// in them. There are no files if nothing differs. Without a document, it creates
// <namespace>-<name>.yaml in the folder, and adds that to the kustomization there. The status and
// the metadata of the server are not written. The error is a *ConflictError, or says what is wrong
// with the object.
func Set(ctx context.Context, fsys fs.FS, root string, key Key, object *unstructured.Unstructured) (map[string][]byte,
	*Document, error) {
	t, err := loadTree(ctx, fsys, root)
	if err != nil {
		return nil, nil, withKey(key, err)
	}
	return t.Set(key, object)
}

// Set is like the function Set.
func (t *Tree) Set(key Key, object *unstructured.Unstructured) (map[string][]byte, *Document, error) {
	desired, err := desiredValue(key, object)
	if err != nil {
		return nil, nil, err
	}
	f, err := t.find(key)
	if e, ok := errors.AsType[*ConflictError](err); ok && e.NotFound {
		return t.create(key, desired)
	}
	if err != nil {
		return nil, nil, withKey(key, err)
	}
	keepUnwritten(f.value, desired, key)
	if equal(f.value, desired) {
		return nil, f.document(key), nil
	}
	data, err := f.replace(desired)
	if err != nil {
		return nil, nil, conflict(key, f.file, "%s", err)
	}
	return t.verified(key, desired, map[string][]byte{f.file: data})
}

// desiredValue returns a copy of an object without the fields that are never written.
func desiredValue(key Key, object *unstructured.Unstructured) (map[string]any, error) {
	copied, err := normalize(object.Object)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	desired := asMap(copied)
	own := keyOfValue(desired)
	if own.Namespace == "" && key.Namespace != "" {
		unstructured.SetNestedField(desired, key.Namespace, "metadata", "namespace") //nolint:errcheck // checked below
		own = keyOfValue(desired)
	}
	if own != key {
		return nil, fmt.Errorf("%s: the object is %s: set apiVersion, kind, metadata.name and metadata.namespace "+
			"accordingly", key, own)
	}
	for _, field := range unwritten {
		unstructured.RemoveNestedField(desired, field...)
	}
	if meta := asMap(desired["metadata"]); len(asMap(meta["annotations"])) == 0 {
		delete(meta, "annotations")
	}
	return desired, nil
}

// unwritten are the fields that the API server sets, and owners, which are objects of one cluster.
var unwritten = [][]string{
	{"status"},
	{"metadata", "managedFields"}, {"metadata", "uid"}, {"metadata", "resourceVersion"}, {"metadata", "generation"},
	{"metadata", "creationTimestamp"}, {"metadata", "selfLink"}, {"metadata", "deletionTimestamp"},
	{"metadata", "deletionGracePeriodSeconds"}, {"metadata", "ownerReferences"},
	{"metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"},
}

// keepUnwritten sets the fields that are never written, and the namespace, to what the document
// has.
func keepUnwritten(written, desired map[string]any, key Key) {
	for _, field := range unwritten {
		v, ok, err := unstructured.NestedFieldNoCopy(written, field...)
		if ok && err == nil {
			unstructured.SetNestedField(desired, v, field...) //nolint:errcheck // the parents are mappings
		}
	}
	meta, own := asMap(desired["metadata"]), asMap(written["metadata"])
	if namespace, ok := own["namespace"]; ok {
		meta["namespace"] = namespace
	} else if meta["namespace"] == key.Namespace {
		delete(meta, "namespace")
	}
	for _, field := range []string{"labels", "annotations"} {
		// An empty mapping and none are the same.
		if v, ok := own[field]; ok && len(asMap(v)) == 0 && len(asMap(meta[field])) == 0 {
			meta[field] = v
		}
	}
}

// replace returns the file with another value of the document. All other documents keep their
// bytes.
func (f *found) replace(desired map[string]any) ([]byte, error) {
	s := f.segment()
	text, err := editDocument(s.text(f.data), desired, s.marker < s.start)
	if err != nil {
		return nil, err
	}
	data := slices.Concat(f.data[:s.start], text, f.data[s.end:])
	after, err := parseFile(data)
	if err != nil || len(after) != len(f.segments) {
		return nil, errNotEditable
	}
	for i := range after {
		switch {
		case i != f.index && !bytes.Equal(after[i].text(data), f.segments[i].text(f.data)):
			return nil, errNotEditable
		case i == f.index:
			if _, got, err := parseValue(after[i].text(data)); err != nil || !equal(got, desired) {
				return nil, errNotEditable
			}
		}
	}
	return data, nil
}

// verified returns changed files and the document of an object in them, if the object has the
// desired value there.
func (t *Tree) verified(key Key, desired map[string]any, files map[string][]byte) (map[string][]byte, *Document,
	error) {
	changed, err := loadTree(t.ctx, overlay{t.fsys, files}, t.root)
	if err != nil {
		return nil, nil, withKey(key, err)
	}
	f, err := changed.find(key)
	if e, ok := errors.AsType[*ConflictError](err); ok && e.NotFound {
		return nil, nil, conflict(key, t.root, "the folder does not sync the object after the change")
	}
	if err != nil {
		return nil, nil, withKey(key, err)
	}
	if field := firstDifference(desired, f.value, ""); field != "" {
		return nil, nil, conflict(key, f.file, "the field %s cannot be written", field)
	}
	return files, f.document(key), nil
}

// create returns a new file with an object, and the changed kustomization.
func (t *Tree) create(key Key, desired map[string]any) (map[string][]byte, *Document, error) {
	name, err := t.newFile(key)
	if err != nil {
		return nil, nil, err
	}
	files := map[string][]byte{name: []byte(defaultStyle().mapping(desired, 0) + "\n")}
	if k := t.kustomizationIn(t.root); k != nil {
		data, err := t.editResources(k, func(list []any) []any { return append(list, path.Base(name)) })
		if err != nil {
			return nil, nil, conflict(key, k.file, "%s cannot be added to the resources: %s", path.Base(name), err)
		}
		files[k.file] = data
		if k.namespace != "" && key.Namespace != "" && k.namespace != key.Namespace {
			return nil, nil, conflict(key, k.file,
				"the kustomization sets the namespace %s, so that the object cannot be "+
					"in %s: use another folder", k.namespace, key.Namespace)
		}
	}
	return t.verified(key, desired, files)
}

// maxSuffix bounds the names that are tried for a new file.
const maxSuffix = 100

// newFile returns the path of a new file.
func (t *Tree) newFile(key Key) (string, error) {
	base := key.Name
	if key.Namespace != "" {
		base = key.Namespace + "-" + key.Name
	}
	base = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_' {
			return r
		}
		return '-'
	}, base)
	base = path.Join(t.root, strings.TrimLeft(base, "."))
	name := base + ".yaml"
	for n := 1; n <= maxSuffix; n++ {
		if _, err := fs.Stat(t.fsys, name); errors.Is(err, fs.ErrNotExist) {
			return name, nil
		}
		if data, err := t.read(name); err == nil && string(data) == placeholder && t.kustomizationIn(t.root) == nil {
			return name, nil
		}
		// Other objects may have the same name in another kind, or a dash elsewhere.
		if name = base + "-" + strings.ToLower(key.Kind) + ".yaml"; n > 1 {
			name = fmt.Sprintf("%s-%s-%d.yaml", base, strings.ToLower(key.Kind), n)
		}
	}
	return "", conflict(key, name, "the file exists, and does not have the object: rename it")
}

// editResources returns a kustomization with changed resources.
func (t *Tree) editResources(k *kustomizationFile, edit func([]any) []any) ([]byte, error) {
	f, value, err := t.readKustomization(k)
	if err != nil {
		return nil, err
	}
	list, ok := value["resources"].([]any)
	if !ok && value["resources"] != nil {
		return nil, errors.New("its field resources is not a list")
	}
	value["resources"] = edit(slices.Clone(list))
	return f.replace(value)
}

// readKustomization returns the one document of a kustomization.
func (t *Tree) readKustomization(k *kustomizationFile) (*found, map[string]any, error) {
	data, err := t.read(k.file)
	if err != nil {
		return nil, nil, err
	}
	segments, err := parseFile(data)
	if err != nil {
		return nil, nil, err
	}
	index := slices.IndexFunc(segments, func(s segment) bool { return s.root != nil })
	if index < 0 {
		return nil, nil, errors.New("the kustomization is empty")
	}
	root := segments[index].root
	if anchorLine(root) > 0 {
		return nil, nil, errors.New("it has an anchor, an alias or a merge key")
	}
	value, err := valueOf(root, 0)
	if err != nil {
		return nil, nil, err
	}
	if asMap(value) == nil {
		return nil, nil, errors.New("it is not a mapping")
	}
	return &found{file: k.file, data: data, segments: segments, index: index}, asMap(value), nil
}
