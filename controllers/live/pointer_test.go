package live

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseIgnoreAnnotation(t *testing.T) {
	got, err := parseIgnoreAnnotation(`["/spec/replicas","/metadata/annotations/a~1b~01"]`)
	want := []string{"/spec/replicas", "/metadata/annotations/a~1b~01"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	tokens, err := ParsePointer(got[1])
	if want := []string{"metadata", "annotations", "a/b~1"}; err != nil || !reflect.DeepEqual(tokens, want) {
		t.Errorf("tokens %q, %v; want %q", tokens, err, want)
	}
}

func TestParseIgnoreAnnotationRejectsInvalid(t *testing.T) {
	for _, s := range []string{"{", `{"a":1}`, `[1]`, `[""]`, `["spec"]`,
		`["` + strings.Repeat(`/a","`, maxIgnoredPaths+1) + `/b"]`} {
		if got, err := parseIgnoreAnnotation(s); err == nil {
			t.Errorf("ParseIgnored(%.30q) = %q, want an error", s, got)
		}
	}
}

func TestLookup(t *testing.T) {
	object := map[string]any{"a": []any{map[string]any{"b": "x"}, nil}, "n": nil}
	for _, tc := range []struct {
		pointer string
		want    any
		ok      bool
	}{
		{"/a/0/b", "x", true},
		{"/a/1", nil, true},
		{"/n", nil, true},
		{"/a/2", nil, false},
		{"/a/-1", nil, false},
		{"/a/-", nil, false},
		{"/a/x", nil, false},
		{"/a/0/b/c", nil, false},
		{"/n/c", nil, false},
	} {
		tokens, err := ParsePointer(tc.pointer)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := lookup(object, tokens); got != tc.want || ok != tc.ok {
			t.Errorf("%s: got %v, %v; want %v, %v", tc.pointer, got, ok, tc.want, tc.ok)
		}
	}
}
