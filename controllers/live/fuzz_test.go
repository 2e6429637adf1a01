package live

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/ksctl/gitops/stacks/readyexpr"
)

// FuzzProject projects arbitrary JSON. Project does not panic, does not change the object, is
// deterministic and bounded; pack and unpack keep the result.
func FuzzProject(f *testing.F) {
	files, err := filepath.Glob("testdata/drift/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal("no captured objects", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		var c map[string]any
		if err := json.Unmarshal(b, &c); err != nil {
			f.Fatal(err)
		}
		after, err := json.Marshal(c["after"])
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(after))
	}
	for _, seed := range []string{
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"status":{"phase":"Running","containerStatuses":[1]}}`,
		`{"apiVersion":"x/v1","kind":"T","metadata":{"name":"x","managedFields":[{"manager":"ksctl-gitops","operation":"Apply","fieldsV1":{"f:a":{"k:{\"n\":1}":{".":{},"f:v":{}},"v:1":{},"i:0":{}}}}]},"a":[{"n":1.0,"v":2},1]}`,
		`{"apiVersion":"x/v1","kind":"T","metadata":{"name":"x","annotations":{"ksctl.com/ignore":"[\"/a/0/b\"]"},"managedFields":[{"manager":"m","fieldsV1":{"f:a":{}}},{"manager":"ksctl-gitops","operation":"Apply","fieldsV1":{"f:a":{"f:b":{}}}}]},"a":[{"b":null}]}`,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x","managedFields":[{"manager":"ksctl-gitops","operation":"Apply","fieldsV1":{"f:data":{"f:a":{}},"f:stringData":{".":{}}}}]},"data":{"a":1}}`,
		`{"apiVersion":"apps/v1","kind":"T","metadata":{"name":"x","managedFields":[{"manager":"m","subresource":"scale","fieldsV1":{"f:spec":{"f:replicas":{}}}}]},"spec":{"replicas":"x"}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var m map[string]any
		if err := json.Unmarshal([]byte(text), &m); err != nil || m == nil {
			return
		}
		u := &unstructured.Unstructured{Object: m}
		before := u.DeepCopy()
		o, err := Project(u)
		if !reflect.DeepEqual(before, u) {
			t.Error("Project changed the object")
		}
		if err != nil {
			return
		}
		if again, err := Project(u); err != nil || !reflect.DeepEqual(o, again) {
			t.Errorf("projected twice: %+v, then %+v (%v)", o, again, err)
		}
		if len(o.Message) > maxMessageBytes || len(o.OwnedHash) < ownedHashLen || len(o.OwnedHash) > ownedHashLen+1 ||
			len(o.Finalizers) > maxFinalizers || len(o.KeptFields) > maxIgnoredFields+1 {
			t.Errorf("out of bounds: %+v", o)
		}
		e := pack(&o, &interner{})
		e.owner = o.Mark.Owner
		got := e.unpack(o.Ref.GroupKind(), objectKey{o.Ref.Namespace, o.Ref.Name})
		got.Mark = o.Mark
		if !reflect.DeepEqual(got, o) {
			t.Errorf("packed and unpacked: got %+v, want %+v", got, o)
		}
	})
}

// FuzzAnnotations projects an object with arbitrary text in its annotations.
func FuzzAnnotations(f *testing.F) {
	f.Add("a/b/c/d/e|n_x_x.io_Thing", `["/spec/replicas","/metadata/annotations/a~1b"]`, "status.phase == 'Up'")
	f.Add("|", `["/spec/list/*/a","/spec/list/[b=x]/-"]`, "true")
	f.Add("|", `["/"]`, "[1].exists(x, [x] == [1])")
	f.Add("", "[", "self.spec.list.filter(x, x.a > 1).all(x, has(x.b))")
	f.Fuzz(func(t *testing.T, mark, ignore, expr string) {
		if m, err := ParseMark(mark); err == nil {
			if again, err := ParseMark(m.String()); err != nil || again != m {
				t.Errorf("%q is %+v, formatted and parsed again %+v (%v)", mark, m, again, err)
			}
		}
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "x.io/v1", "kind": "Thing",
			"metadata": map[string]any{"name": "x", "namespace": "n", "generation": int64(1),
				"annotations": map[string]any{
					MarkAnnotation: mark, IgnoreAnnotation: ignore, ReadyExprAnnotation: expr}},
			"spec": map[string]any{"list": []any{map[string]any{"a": int64(1), "b": "x"}, map[string]any{"a": 2.5}},
				"replicas": int64(1)},
			"status": map[string]any{"phase": "Up"},
		}}
		o, err := Project(u)
		if err != nil {
			t.Fatal(err)
		}
		if !utf8.ValidString(o.Message) && utf8.ValidString(expr) {
			t.Errorf("message %q", o.Message)
		}
		if expr != "" && readyexpr.Check(expr) != nil && o.Readiness == Current {
			t.Errorf("%q does not compile, but the object is Current", expr)
		}
		if paths, err := parseIgnoreAnnotation(ignore); err == nil && len(paths) > len(o.KeptFields) {
			t.Errorf("%d ignored paths, but %d kept fields", len(paths), len(o.KeptFields))
		}
	})
}

// FuzzReadPage reads arbitrary text as a page of a list.
func FuzzReadPage(f *testing.F) {
	f.Add(`{"kind":"List","metadata":{"resourceVersion":"7","continue":"c"},"items":[{"a":1},{"b":[2]}]}`)
	f.Add(`{"items":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = readPage(strings.NewReader(text), func(raw []byte) error {
			if len(raw) == 0 {
				t.Error("an empty item")
			}
			return nil
		})
	})
}
