// Package golden compares what the program stores with files that an earlier version wrote.
//
// Clusters, repositories and disks hold these forms: a program that writes other bytes, or
// reads the old ones differently, loses what it had recorded. So a file in testdata/golden is
// never rewritten. A form that has to change gets a second file beside the first, and the test
// shows that both are read.
package golden

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"
)

// WriteVariable is the environment variable that makes tests create files that are missing.
const WriteVariable = "KSCTL_GOLDEN_WRITE"

// Folder holds the golden files of a package.
const Folder = "testdata/golden"

// Equal fails the test unless the golden file has exactly these bytes.
func Equal(t *testing.T, name string, got []byte) {
	t.Helper()
	want := read(t, name, got)
	if !bytes.Equal(got, want) {
		t.Errorf("%s: the stored form has changed\ngot:\n%s\nwant:\n%s", filepath.Join(Folder, name), got, want)
	}
}

// JSON compares a value as indented JSON. It also reads the file back, strictly, into a new
// value of the same type, and fails unless that is written as the same bytes.
func JSON[T any](t *testing.T, name string, got *T) {
	t.Helper()
	data := encode(t, got)
	Equal(t, name, data)
	var stored T
	if err := yaml.UnmarshalStrict(read(t, name, data), &stored); err != nil {
		t.Fatalf("%s: %v", filepath.Join(Folder, name), err)
	}
	if again := encode(t, &stored); !bytes.Equal(again, data) {
		t.Errorf("%s: what was read is written as\n%s", filepath.Join(Folder, name), again)
	}
}

// Read returns a golden file that the program can read but not write, such as one with
// random values. It must exist.
func Read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(Folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(data, '\n')
}

func read(t *testing.T, name string, got []byte) []byte {
	t.Helper()
	path := filepath.Join(Folder, name)
	want, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && os.Getenv(WriteVariable) != "" {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, got, 0o644)); err != nil {
			t.Fatal(err)
		}
		return got
	}
	if err != nil {
		t.Fatalf("%v; set %s=1 to create it", err, WriteVariable)
	}
	return want
}
