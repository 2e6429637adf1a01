package fieldpath

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/json"
)

// object returns an object of every shape.
func object(t testing.TB) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(`{"kind": "Thing", "metadata": {"name": "x", "labels": {"a.b/c": "1"}},
		"spec": {"n": 1, "empty": {}, "none": null, "text": "a: {b: c}", "args": ["x", "y"],
		"volumes": [{"name": "v", "nfs": {"path": "/"}}],
		"containers": [{"name": "app", "image": "a", "port": 80}, {"name": "app-metrics", "image": "b"}]}}`),
		&out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSet(t *testing.T) {
	for _, tc := range []struct {
		path   string
		value  any
		create bool
		// change is the JSON that differs: "old" → "new" in the object.
		old, new string
		err      string
	}{
		{path: "spec.n", value: int64(2), old: `"n":1`, new: `"n":2`},
		{path: "spec.n", value: "2", old: `"n":1`, new: `"n":"2"`},
		{path: "spec.n", value: nil, old: `"n":1`, new: `"n":null`},
		{path: "spec.empty", value: map[string]any{"a": []any{true}}, old: `"empty":{}`, new: `"empty":{"a":[true]}`},
		{path: "spec.containers.[name=app].image", value: "c", old: `"image":"a"`, new: `"image":"c"`},
		{path: "spec.containers.[port=80].image", value: "c", old: `"image":"a"`, new: `"image":"c"`},
		{path: "spec.containers[name=app].image", value: "c", old: `"image":"a"`, new: `"image":"c"`},
		{path: "spec.containers.1.image", value: "c", old: `"image":"b"`, new: `"image":"c"`},
		{path: "spec.containers.*.name", value: "c", old: `"app","port":80},{"image":"b","name":"app-metrics"`,
			new: `"c","port":80},{"image":"b","name":"c"`},
		{path: "spec.args.[=y]", value: "z", old: `["x","y"]`, new: `["x","z"]`},
		{path: "spec.args.*", value: "z", old: `["x","y"]`, new: `["z","z"]`},
		{path: `metadata.labels.a\.b/c`, value: "2", old: `"a.b/c":"1"`, new: `"a.b/c":"2"`},
		{path: "metadata.labels.[a.b/c]", value: "2", old: `"a.b/c":"1"`, new: `"a.b/c":"2"`},
		{path: "metadata.labels[a.b/c]", value: "2", old: `"a.b/c":"1"`, new: `"a.b/c":"2"`},
		{path: "spec.none", value: "2", old: `"none":null`, new: `"none":"2"`},
		{path: "spec.none.a", value: "2", create: true, old: `"none":null`, new: `"none":{"a":"2"}`},
		{path: "spec.new.a.0.b", value: "2", create: true, old: `"none":null`,
			new: `"new":{"a":[{"b":"2"}]},"none":null`},
		{path: "spec.new.[k=v].b", value: "2", create: true, old: `"none":null`,
			new: `"new":[{"b":"2","k":"v"}],"none":null`},
		{path: "spec.args.2", value: "z", create: true, old: `["x","y"]`, new: `["x","y","z"]`},
		{path: "spec.args.[=z]", value: "z", create: true, old: `["x","y"]`, new: `["x","y","z"]`},

		{path: "spec.new", value: "2", err: "spec.new is missing: create: true adds it"},
		{path: "spec.new.a", value: "2", err: "spec.new is missing"},
		{path: "spec.none.a", value: "2", err: "spec.none is missing"},
		{path: "spec.args.2", value: "2", err: "spec.args.2 is missing"},
		{path: "spec.args.9", value: "2", create: true, err: "spec.args.9 is missing"},
		{path: "spec.containers.[name=gone].image", value: "2", err: "spec.containers.[name=gone] is missing"},
		{path: "spec.containers.name", value: "2", err: "spec.containers is a list: use an index, [key=value] or *"},
		{path: "spec.n.a", value: "2", create: true,
			err: "spec.n is no object and no list: a path does not go into a value"},
		{path: "spec.text.a", value: "2", create: true, err: "spec.text is no object and no list"},
		{path: "spec.empty.*", value: "2", create: true, err: "spec.empty is an object, not a list"},
		{path: "spec.empty.[a=b]", value: "2", create: true, err: "spec.empty is an object, not a list"},
		{path: "metadata.[name=x].uid", value: "2", create: true,
			err: "metadata is an object, not a list: [name=x] selects items of a list; write the key instead"},
		{path: "spec.containers.0.[name=app].image", value: "2",
			err: "spec.containers.0 is an object, not a list: [name=app] selects"},
		{path: "spec.containers.[name=app].[name=app]", value: "2",
			err: "spec.containers.[name=app] is an object, not a list"},
		{path: "spec.containers.[=].image", value: "2", err: "spec.containers.[=] is missing"},
		{path: "spec.volumes.[nfs=].name", value: "2", err: "spec.volumes.[nfs=] is missing"},
		{path: "spec.args.[=x].[=x]", value: "2", err: "spec.args.[=x] is no object and no list"},
		{path: "spec.new.*", value: "2", create: true, err: "spec.new is missing"},
	} {
		p, err := Parse(tc.path)
		if err != nil {
			t.Errorf("%s: %v", tc.path, err)
			continue
		}
		o := object(t)
		before := encode(t, o)
		err = p.Set(o, tc.value, tc.create)
		want := strings.Replace(before, tc.old, tc.new, 1)
		switch {
		case tc.err != "":
			if err == nil || !strings.HasPrefix(err.Error(), tc.err) {
				t.Errorf("%s: got %v, want %s", tc.path, err, tc.err)
			}
		case err != nil || encode(t, o) != want || want == before:
			t.Errorf("%s: got %s, %v\nwant %s", tc.path, encode(t, o), err, want)
		}
	}
}

func encode(t testing.TB, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestParseRejectsInvalidPaths(t *testing.T) {
	for path, want := range map[string]string{
		"": "has an empty part", ".a": "has an empty part", "a..b": "has an empty part", "a.": "ends with a dot",
		"a.[b": "has a [ without ]", "a.[]": "has an empty []", "a.[b=c]d": `has text after "[b=c]"`,
		"kind": "is kind, or contains it", "apiVersion": "is apiVersion",
		"metadata":      "is metadata.name, or contains it",
		"metadata.name": "is metadata.name", "metadata.namespace": "is metadata.namespace", "[kind]": "is kind",
		"metadata.generateName":         "is metadata.generateName",
		strings.Repeat("a.", 100) + "a": "has more than 64 parts",
	} {
		if _, err := Parse(path); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", path, err, want)
		}
	}
	for _, path := range []string{"metadata.labels", "spec.name", "spec.kind", "metadata.names", "a.[b=]"} {
		if _, err := Parse(path); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// The value of each field is a copy: a later field may change one of them.
func TestValuesAreNotShared(t *testing.T) {
	p, err := Parse("spec.containers.*.image")
	if err != nil {
		t.Fatal(err)
	}
	value := map[string]any{"a": []any{"b"}}
	o := object(t)
	if err := p.Set(o, value, false); err != nil {
		t.Fatal(err)
	}
	one, err := Parse("spec.containers.0.image.a.0")
	if err != nil {
		t.Fatal(err)
	}
	if err := one.Set(o, "c", false); err != nil {
		t.Fatal(err)
	}
	if got := encode(t, o["spec"].(map[string]any)["containers"]); strings.Count(got, `"c"`) != 1 ||
		!reflect.DeepEqual(value, map[string]any{"a": []any{"b"}}) {
		t.Errorf("got %s, %v", got, value)
	}
}

// FuzzSet sets any text at any path: only the named field differs, or the path is refused.
func FuzzSet(f *testing.F) {
	for _, path := range []string{"spec.n", "spec.containers.[name=app].image", `metadata.labels.a\.b/c`, "spec.args.*",
		"spec.new.a.0.b", "[", "a.[b=c].d"} {
		f.Add(path, "a\"b\n{{ x }} ${y}", true)
		f.Add(path, "", false)
	}
	f.Fuzz(func(t *testing.T, path, value string, create bool) {
		p, err := Parse(path)
		if err != nil {
			return
		}
		before, after := object(t), object(t)
		if err := p.Set(after, value, create); err != nil {
			return
		}
		if after["kind"] != "Thing" || after["metadata"].(map[string]any)["name"] != "x" {
			t.Fatalf("%q changes the identity: %s", path, encode(t, after))
		}
		// Setting the field back to one value for both gives the same object, unless it was added.
		if !create {
			if err := p.Set(before, "same", false); err != nil {
				t.Fatalf("%q: %v", path, err)
			}
			if err := p.Set(after, "same", false); err != nil {
				return // the value was what selected the item
			}
			if encode(t, before) != encode(t, after) {
				t.Fatalf("%q changes other fields: %s, %s", path, encode(t, before), encode(t, after))
			}
		}
	})
}
