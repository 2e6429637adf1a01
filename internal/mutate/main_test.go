package main

import (
	"os"
	"path/filepath"
	"testing"
)

// After a change of the code, mutations.tsv must be updated.
func TestMutationsMatchSource(t *testing.T) {
	mutations, err := parse(mutationsTSV)
	if err != nil {
		t.Fatal(err)
	}
	if len(mutations) < 30 {
		t.Errorf("%d mutations, want at least 30", len(mutations))
	}
	for _, m := range mutations {
		source, err := os.ReadFile(filepath.Join("..", "..", m.File))
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := m.apply(string(source)); err != nil {
			t.Error(err)
		}
		if m.Old == m.New {
			t.Errorf("%s changes nothing", m)
		}
	}
}

func TestParseErrorNamesLine(t *testing.T) {
	for text, want := range map[string]string{
		"# comment\n\na\tb\n": "mutations.tsv:3: 2 columns, want file, old, new, package and note",
	} {
		if _, err := parse(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
