package manifests

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ksctl/gitops/stacks/kustomization"
	"github.com/ksctl/gitops/stacks/problem"
	"github.com/ksctl/gitops/stacks/sops"
)

// Find returns the document of an object below the folder root. The error is a *ConflictError, also
// if there is no document, or that of ctx.
func Find(ctx context.Context, fsys fs.FS, root string, key Key) (*Document, error) {
	t, err := loadTree(ctx, fsys, root)
	if err != nil {
		return nil, withKey(key, err)
	}
	return t.Find(key)
}

// Find is like the function Find.
func (t *Tree) Find(key Key) (*Document, error) {
	f, err := t.find(key)
	if err != nil {
		return nil, withKey(key, err)
	}
	return f.document(key), nil
}

// withKey sets the object of a ConflictError, and returns other errors as one, unless the context
// has ended.
func withKey(key Key, err error) error {
	if e, ok := errors.AsType[*ConflictError](err); ok {
		e.Key = key
		return e
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return conflict(key, "", "the repository cannot be read: %s", err)
}

// found is the document of an object.
type found struct {
	file     string
	data     []byte
	segments []segment
	index    int
	// value as written.
	value map[string]any
	how   inclusion
}

func (f *found) segment() segment { return f.segments[f.index] }

// document returns the document with its namespace.
func (f *found) document(key Key) *Document {
	object := &unstructured.Unstructured{Object: f.value}
	object = object.DeepCopy()
	if key.Namespace != "" {
		object.SetNamespace(key.Namespace)
	}
	return &Document{File: f.file, Hash: f.segment().hash(f.data), Object: object}
}

// candidates are the documents that matter for an object.
type candidates struct {
	matches []*found
	// withoutNamespace are files with a document that no namespace is set for.
	withoutNamespace []string
	// lists are files with a list that has the object.
	lists []string
	// unreadable are files that may have the object, with the reason why they cannot be read.
	unreadable []ConflictError
}

// scan reads the files that are synced.
func (t *Tree) scan(key Key) candidates {
	var c candidates
	for _, file := range t.files() {
		data, err := t.read(file)
		if err == nil && !mayHave(data, key.Name) {
			continue
		}
		var segments []segment
		if err == nil {
			segments, err = parseFile(data)
		}
		if err != nil {
			if errors.Is(err, errTooLarge) || mayHave(data, key.Name) && bytes.Contains(data, []byte(key.Kind)) {
				c.unreadable = append(c.unreadable, ConflictError{File: file, Reason: err.Error()})
			}
			continue
		}
		for i, s := range segments {
			if s.root != nil {
				c.addDocument(t.included[file], &found{file: file, data: data, segments: segments, index: i}, key)
			}
		}
	}
	return c
}

// mayHave is false if a file cannot contain a name. A backslash may escape a part of it.
func mayHave(data []byte, name string) bool {
	return bytes.Contains(data, []byte(name)) || bytes.IndexByte(data, '\\') >= 0
}

func (c *candidates) addDocument(included []inclusion, f *found, key Key) {
	root := f.segment().root
	matches := func(own Key, how inclusion) bool {
		if how.namespace != "" && key.Namespace != "" {
			own.Namespace = how.namespace
		}
		return own == key
	}
	own := keyOf(root)
	if line := mergedIdentity(root); line > 0 && own != key && own.mayBe(key) {
		c.unreadable = append(c.unreadable, ConflictError{File: f.file, Reason: fmt.Sprintf(
			"the document has a merge key (line %d), which may set its name: write it without", f.lineOf(line))})
		return
	}
	if own.Group != key.Group || own.Kind != key.Kind || own.Name != key.Name {
		for _, item := range listItems(root) {
			if slices.ContainsFunc(included, func(how inclusion) bool { return matches(keyOf(item), how) }) {
				c.lists = append(c.lists, f.file)
			}
		}
		return
	}
	for _, how := range included {
		switch {
		case matches(own, how):
			match := *f
			match.how = how
			c.matches = append(c.matches, &match)
		case own.Namespace == "" && how.namespace == "":
			c.withoutNamespace = append(c.withoutNamespace, f.file)
		}
	}
}

// listItems returns the items of a List, such as a ConfigMapList.
func listItems(n *yaml.Node) []*yaml.Node {
	items := child(n, "items")
	if !strings.HasSuffix(scalar(child(n, "kind")), "List") || items == nil || items.Kind != yaml.SequenceNode {
		return nil
	}
	return items.Content
}

// find returns the document of an object that can be edited.
func (t *Tree) find(key Key) (*found, error) {
	c := t.scan(key)
	if len(c.matches) == 0 {
		return nil, t.explainMissing(key, c)
	}
	f := c.matches[0]
	for _, other := range c.matches[1:] {
		if other.file != f.file || other.index != f.index {
			return nil, conflict(key, other.file, "this is another document of the object, which is also in %s: "+
				"remove one of them", f.file)
		}
	}
	if len(c.lists) > 0 {
		return nil, conflict(key, c.lists[0], "a list in this file has the object, which is also in %s: remove one of "+
			"them", f.file)
	}
	if included := t.included[f.file]; len(included) > 1 {
		return nil, conflict(key, f.file, "an edit would change several objects, because %s include this file: "+
			"move the object to a file that one kustomization lists", t.describe(included))
	}
	return f, t.check(key, f)
}

// describe lists the kustomizations that include a file.
func (t *Tree) describe(included []inclusion) string {
	var out []string
	for _, how := range included {
		if dir, ok := how.entry(); ok {
			out = append(out, t.kustomizations[dir].file)
		}
	}
	return strings.Join(slices.Compact(out), ", ")
}

// explainMissing returns why there is no document of an object. Only if nothing else may have the
// object, one can be created.
func (t *Tree) explainMissing(key Key, c candidates) error {
	switch {
	case len(c.lists) > 0:
		return conflict(key, c.lists[0], "the object is an item of a list: move it to a document of its own")
	case len(c.withoutNamespace) > 0:
		return conflict(key, c.withoutNamespace[0],
			"the document of the object has no namespace, and no kustomization "+
				"sets one: set metadata.namespace")
	}
	for _, dir := range t.entries {
		if t.listsOnly(dir) {
			continue
		}
		file := t.kustomizations[dir].file
		objects, err := t.render(dir)
		if err != nil {
			return t.buildConflict(key, file, err)
		}
		for _, o := range objects {
			if keyOfValue(o) == key {
				return conflict(key, file, "this kustomization makes the object from something other than a document "+
					"with its name: change it there")
			}
		}
	}
	if len(c.unreadable) > 0 {
		return conflict(key, c.unreadable[0].File, "this file may have the object: %s", c.unreadable[0].Reason)
	}
	e := conflict(key, t.root, "no file below the folder has the object")
	e.NotFound = true
	return e
}

// buildConflict is the error of an object of a kustomization that cannot be built. Its text does
// not have the error of the build, which may quote files of others.
func (t *Tree) buildConflict(key Key, file string, err error) error {
	if t.ctx.Err() != nil {
		return fmt.Errorf("%s: building %s: %w", key, file, context.Cause(t.ctx))
	}
	e := conflict(key, file, "the kustomization cannot be built: correct it, see the log of the controller")
	if p, ok := errors.AsType[*problem.Error](err); ok && !slices.Contains([]string{"", file, path.Dir(file)}, p.File) {
		e = conflict(key, p.File, "the kustomization %s includes this file, and cannot be built: correct it, see the "+
			"log of the controller", file)
	}
	e.Err = err
	return e
}

// check sets the value of a document, and returns why the document cannot be edited.
func (t *Tree) check(key Key, f *found) error {
	if !t.inRoot(f.file) {
		return conflict(key, f.file, "the file with the object is outside the folder %s", t.root)
	}
	if _, encrypted := sops.Detect(f.file, f.data); encrypted {
		return conflict(key, f.file, "the file is encrypted with SOPS: edit it with the sops program")
	}
	root := f.segment().root
	if line := anchorLine(root); line > 0 {
		return conflict(key, f.file, "the document has an anchor, an alias or a merge key (line %d): write it without",
			f.lineOf(line))
	}
	value, err := valueOf(root, 0)
	if at, ok := errors.AsType[*lineError](err); ok {
		return conflict(key, f.file, "line %d: %s", f.lineOf(at.line), at.reason)
	}
	if err != nil {
		return conflict(key, f.file, "the document cannot be read: %s", err)
	}
	f.value = asMap(value)
	dir, ok := f.how.entry()
	switch {
	case (!ok || t.listsOnly(dir)) && isUnchanged(f.value, f.how.namespace):
		return nil
	case !ok:
		return t.checkLoose(key, f)
	}
	objects, err := t.render(dir)
	if err != nil {
		return t.buildConflict(key, t.kustomizations[dir].file, err)
	}
	return t.compareRendered(key, f, dir, objects)
}

// checkLoose returns an error if the kustomization that Flux generates for a folder without one
// changes the object.
func (t *Tree) checkLoose(key Key, f *found) error {
	content, err := json.Marshal(map[string]any{"resources": []string{path.Base(f.file)}})
	if err != nil {
		return fmt.Errorf("%s: %s: %w", key, f.file, err)
	}
	dir := path.Dir(f.file)
	generated := overlay{t.fsys, map[string][]byte{path.Join(dir, "kustomization.yaml"): content}}
	objects, err := kustomization.Build(t.ctx, generated, dir)
	if err != nil {
		return t.buildConflict(key, f.file, err)
	}
	for _, o := range objects {
		if keyOfValue(o) == key && changedField(f.value, o) == "" {
			return nil
		}
	}
	return conflict(key, f.file, "kustomize changes or removes the object because of an annotation: remove "+
		"annotations such as config.kubernetes.io/local-config")
}

// lineOf returns the line in the file of a line of the document.
func (f *found) lineOf(line int) int {
	return bytes.Count(f.data[:f.segment().start], []byte("\n")) + line
}

// compareRendered returns an error if a kustomization changes the object.
func (t *Tree) compareRendered(key Key, f *found, dir string, objects []map[string]any) error {
	file := t.kustomizations[dir].file
	var rendered map[string]any
	for _, o := range objects {
		if keyOfValue(o) == key {
			if rendered != nil {
				return conflict(key, file, "the kustomization makes the object twice")
			}
			rendered = o
		}
	}
	if rendered == nil {
		return conflict(key, file, "the kustomization renames the object of %s, or removes it", f.file)
	}
	field := changedField(f.value, rendered)
	if field == "" {
		return nil
	}
	return conflict(key, t.innermostChange(key, f), "this kustomization changes the field %s of the object of %s: "+
		"change it there", field, f.file)
}

// innermostChange returns the file of the innermost kustomization that changes the object.
func (t *Tree) innermostChange(key Key, f *found) string {
	for _, dir := range slices.Backward(f.how.chain) {
		objects, err := t.render(dir)
		if err != nil {
			continue // such as a component, which is not built alone
		}
		for _, o := range objects {
			own := keyOfValue(o)
			own.Namespace = key.Namespace // an outer kustomization may set it
			if own == key && changedField(f.value, o) != "" {
				return t.kustomizations[dir].file
			}
		}
	}
	return t.kustomizations[f.how.chain[0]].file
}

// changedField returns the first field that rendering changes, other than the namespace, and labels
// and annotations that it adds.
func changedField(written, rendered map[string]any) string {
	a := (&unstructured.Unstructured{Object: written}).DeepCopy()
	b := (&unstructured.Unstructured{Object: rendered}).DeepCopy()
	for _, field := range []string{"labels", "annotations"} {
		own, _, _ := unstructured.NestedMap(a.Object, "metadata", field)
		all, _, _ := unstructured.NestedMap(b.Object, "metadata", field)
		for k := range all {
			if _, ok := own[k]; !ok {
				unstructured.RemoveNestedField(b.Object, "metadata", field, k)
			}
		}
		if len(own) == 0 {
			unstructured.RemoveNestedField(a.Object, "metadata", field)
			unstructured.RemoveNestedField(b.Object, "metadata", field)
		}
	}
	unstructured.RemoveNestedField(a.Object, "metadata", "namespace")
	unstructured.RemoveNestedField(b.Object, "metadata", "namespace")
	return firstDifference(a.Object, b.Object, "")
}
