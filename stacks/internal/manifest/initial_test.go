package manifest

import (
	"slices"
	"testing"
)

func TestInitialFields(t *testing.T) {
	first := `{apiVersion: v1, kind: X, metadata: {name: x, annotations: {a/b: c}}, spec: {same: 1, only: 2, other: 3,
		named: [{name: "b", only: 1}, {name: "a", same: 1}, {name: "new"}], indexed: [{only: 1}], longer: [{only: 1}, {}],
		plain: [1, 2]}}`
	next := `{apiVersion: v1, kind: X, metadata: {name: x}, spec: {same: 1, other: 4,
		named: [{name: "a", same: 1}, {name: "b"}], indexed: [{}], longer: [{}], plain: [1]}}`
	parse := func(text string) *Object {
		t.Helper()
		objects, err := Parse("x.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return objects[0]
	}
	object := parse(first)
	SetInitialFields([]*Object{object}, []*Object{parse(next)})
	want := []string{"/metadata/annotations/a~1b", "/spec/indexed/0/only", "/spec/named/[name=b]/only", "/spec/only"}
	if got := object.InitialPointers(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}

	// An override that sets another value wants that value.
	spec, _ := object.Value["spec"].(map[string]any)
	spec["only"] = 5
	if got := object.InitialPointers(); !slices.Equal(got, want[:3]) {
		t.Errorf("got %v, want %v", got, want[:3])
	}
}
