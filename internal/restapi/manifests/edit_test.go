package manifests

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// mergePatch applies a merge patch.
func mergePatch(target any, patch map[string]any) map[string]any {
	out := asMap(target)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range patch {
		if m, ok := v.(map[string]any); ok {
			out[k] = mergePatch(out[k], m)
		} else if v == nil {
			delete(out, k)
		} else {
			out[k] = v
		}
	}
	return out
}

func readYAML(t testing.TB, data []byte) map[string]any {
	t.Helper()
	var out map[string]any
	if err := yaml.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// documentKey returns the key of the object with the name web.
func documentKey(t testing.TB, data []byte) Key {
	t.Helper()
	segments, err := parseFile(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range segments {
		if s.root != nil && keyOf(s.root).Name == "web" {
			return keyOf(s.root)
		}
	}
	t.Fatal("there is no document with the name web")
	return Key{}
}

// Each folder of testdata/edit has a file, a merge patch of its object web, and the file after
// that.
func TestSetEditsInPlace(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join("testdata", "edit", "*"))
	if err != nil || len(dirs) == 0 {
		t.Fatal(dirs, err)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			befores, err := filepath.Glob(filepath.Join(dir, "before.*"))
			if err != nil || len(befores) != 1 {
				t.Fatal(befores, err)
			}
			ext := filepath.Ext(befores[0])
			before, err := os.ReadFile(befores[0])
			patch, patchErr := os.ReadFile(filepath.Join(dir, "patch.yaml"))
			if err := errors.Join(err, patchErr); err != nil {
				t.Fatal(err)
			}
			key, name := documentKey(t, before), "apps/file"+ext
			fsys := fstest.MapFS{name: {Data: before}}
			doc, err := Find(t.Context(), fsys, "apps", key)
			if err != nil {
				t.Fatal(err)
			}
			desired := mergePatch(doc.Object.DeepCopy().Object, readYAML(t, patch))
			files, _, err := Set(t.Context(), fsys, "apps", key, &unstructured.Unstructured{Object: desired})
			if err != nil || len(files) != 1 {
				t.Fatal(files, err)
			}
			expectFile(t, filepath.Join(dir, "after"+ext), files[name])
			// The second time, nothing differs.
			if files, _, err := Set(t.Context(), fstest.MapFS{name: {Data: files[name]}}, "apps", key,
				&unstructured.Unstructured{Object: desired}); err != nil || len(files) > 0 {
				t.Errorf("the second time: %s, %v", files, err)
			}
		})
	}
}

// expectFile compares with a file of testdata, which KSCTL_GOLDEN_WRITE=1 writes.
func expectFile(t *testing.T, file string, got []byte) {
	t.Helper()
	if os.Getenv("KSCTL_GOLDEN_WRITE") != "" {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// A change of one scalar changes one line.
func TestSetChangesOneLine(t *testing.T) {
	before, err := os.ReadFile(filepath.Join("testdata", "edit", "scalar", "before.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	fsys, key := fstest.MapFS{"web.yaml": {Data: before}}, documentKey(t, before)
	doc, err := Find(t.Context(), fsys, ".", key)
	if err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedField(doc.Object.Object, int64(7), "spec", "replicas"); err != nil {
		t.Fatal(err)
	}
	files, updated, err := Set(t.Context(), fsys, ".", key, doc.Object)
	if err != nil {
		t.Fatal(err)
	}
	if updated.Hash == doc.Hash {
		t.Error("the hash did not change")
	}
	old, now := bytes.Split(before, []byte("\n")), bytes.Split(files["web.yaml"], []byte("\n"))
	changed := 0
	for i := range old {
		if !bytes.Equal(old[i], now[i]) {
			changed++
		}
	}
	if len(old) != len(now) || changed != 1 {
		t.Errorf("%d lines changed:\n%s", changed, files["web.yaml"])
	}
}

// FuzzSet sets an object of any file to any value. The result has exactly that value, and all other
// documents keep their bytes.
func FuzzSet(f *testing.F) {
	befores, err := filepath.Glob(filepath.Join("testdata", "edit", "*", "before.*"))
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range befores {
		before, err := os.ReadFile(name)
		patch, patchErr := os.ReadFile(filepath.Join(filepath.Dir(name), "patch.yaml"))
		if err := errors.Join(err, patchErr); err != nil {
			f.Fatal(err)
		}
		f.Add(before, patch)
	}
	f.Fuzz(func(t *testing.T, before, patch []byte) {
		segments, err := parseFile(before)
		var m map[string]any
		if err != nil || yaml.Unmarshal(patch, &m) != nil {
			t.Skip()
		}
		index := slices.IndexFunc(segments, func(s segment) bool { return s.root != nil && keyOf(s.root).Name != "" })
		if index < 0 {
			t.Skip()
		}
		key := keyOf(segments[index].root)
		fsys := fstest.MapFS{"file.yaml": {Data: before}}
		doc, err := Find(t.Context(), fsys, ".", key)
		if err != nil {
			_ = mustConflict(t, err)
			t.Skip()
		}
		object := &unstructured.Unstructured{Object: mergePatch(doc.Object.DeepCopy().Object, m)}
		desired, err := desiredValue(key, object)
		if err != nil {
			t.Skip()
		}
		files, updated, err := Set(t.Context(), fsys, ".", key, object)
		if err != nil {
			_ = mustConflict(t, err)
			return
		}
		after, changed := files["file.yaml"]
		if !changed {
			after = before
		}
		checkSet(t, before, after, segments, doc, updated, key, desired)
	})
}

// checkSet checks a result of Set, independently of it.
func checkSet(t *testing.T, before, after []byte, segments []segment, doc, updated *Document, key Key,
	desired map[string]any) {
	t.Helper()
	now, err := parseFile(after)
	if err != nil || len(now) != len(segments) {
		t.Fatalf("%d documents, want %d: %v\n%s", len(now), len(segments), err, after)
	}
	for i := range now {
		if segments[i].hash(before) != doc.Hash && !bytes.Equal(now[i].text(after), segments[i].text(before)) {
			t.Errorf("another document changed:\n%q\n%q", before, after)
		}
	}
	keepUnwritten(asMap(mustValue(t, segments, before, doc.Hash)), desired, key)
	if got := mustValue(t, now, after, updated.Hash); !equal(got, desired) {
		t.Errorf("got %v, want %v\n%q\n%q", got, desired, before, after)
	}
}

func mustValue(t *testing.T, segments []segment, data []byte, hash string) any {
	t.Helper()
	for _, s := range segments {
		if s.hash(data) == hash {
			value, err := valueOf(s.root, 0)
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("no document has the hash %s", hash)
	return nil
}

func mustConflict(t *testing.T, err error) *ConflictError {
	t.Helper()
	e, ok := errors.AsType[*ConflictError](err)
	if !ok || e.Reason == "" {
		t.Fatalf("got %v", err)
	}
	return e
}
