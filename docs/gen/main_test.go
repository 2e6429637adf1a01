package main

import (
	"slices"
	"testing"
)

func TestPagesAreFresh(t *testing.T) {
	if err := run("../..", true); err != nil {
		t.Error(err)
	}
}

func TestIncompatibleListsRemovedAndChangedDeclarations(t *testing.T) {
	stored := []byte("a: func F()\na: func G(int)\na: func H()\na: type I interface\na: type I interface, M()\n")
	const unchanged = "a: type I interface\na: type I interface, M()\n"
	for name, tc := range map[string]struct {
		current string
		want    []string
	}{
		"unchanged": {string(stored), nil},
		"added":     {string(stored) + "a: func New()\n", nil},
		"removed":   {"a: func F()\na: func G(int)\n" + unchanged, []string{"a: func H()"}},
		"changed":   {"a: func F()\na: func G(string)\na: func H()\n" + unchanged, []string{"a: func G(int)"}},
		"added to an interface": {string(stored) + "a: type I interface, N()\na: type J interface\n" +
			"a: type J interface, M()\n", []string{"a: type I interface, N()"}},
	} {
		if got := incompatible(stored, []byte(tc.current)); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
