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
	stored := []byte("a: func F()\na: func G(int)\na: func H()\n")
	for name, tc := range map[string]struct {
		current string
		want    []string
	}{
		"unchanged": {string(stored), nil},
		"added":     {string(stored) + "a: func New()\n", nil},
		"removed":   {"a: func F()\na: func G(int)\n", []string{"a: func H()"}},
		"changed":   {"a: func F()\na: func G(string)\na: func H()\n", []string{"a: func G(int)"}},
	} {
		if got := incompatible(stored, []byte(tc.current)); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
