package main

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func object(version string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"kind": "Deployment", "metadata": map[string]any{"namespace": "ns", "name": "x", "resourceVersion": version},
		"spec":   spec,
		"status": map[string]any{"seen": version},
	}}
}

func TestCompareObjects(t *testing.T) {
	container := func(image string) map[string]any {
		return map[string]any{"containers": []any{map[string]any{"name": "main", "image": image}}}
	}
	before := objects{"same": object("1", nil), "status": object("1", container("a")),
		"changed": object("1", container("a")), "gone": object("1", nil)}
	after := objects{"same": object("1", nil), "status": object("2", container("a")),
		"changed": object("2", container("b")), "new": object("1", nil)}
	changed, statusOnly, same := before.compare(after)
	if statusOnly != 1 || same != 1 || len(changed) != 3 {
		t.Fatalf("%d changed, %d in status only, %d the same", len(changed), statusOnly, same)
	}
	if want := []fieldChange{{"spec.containers[main].image", `"a" → "b"`}}; !reflect.DeepEqual(changed[0].fields,
		want) {
		t.Errorf("fields %v", changed[0].fields)
	}
	for i, want := range []string{"resourceVersion 1 → 2, generation 0 → 0", "deleted, resourceVersion was 1",
		"created, resourceVersion 1"} {
		if got := changed[i].versions(); got != want || changed[i].name() != "Deployment ns/x" {
			t.Errorf("%s is %q, want %q", changed[i].name(), got, want)
		}
	}
}

func TestCompareFields(t *testing.T) {
	before, after := fields{"a": "1", "b": "2", "c": "3"}, fields{"a": "1", "b": "4", "d": "5"}
	want := []fieldChange{{"b", "2 → 4"}, {"c", "removed 3"}, {"d", "added 5"}}
	if got := before.compare(after); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestReplaceOnce(t *testing.T) {
	if got, err := replaceOnce("a b", "a", "c"); err != nil || got != "c b" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, text := range []string{"", "a a"} {
		if _, err := replaceOnce(text, "a", "c"); err == nil {
			t.Errorf("replaceOnce accepted %q, which does not contain \"a\" exactly once", text)
		}
	}
	if got := short("main@sha1:0123456789abcdef"); got != "main@sha1:0123456789ab" {
		t.Errorf("got %q", got)
	}
}
