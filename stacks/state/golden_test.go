package state

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ksctl/gitops/internal/golden"
)

// stateFiles returns the names of the files in testdata, which several releases of ksctl wrote.
func stateFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	return files
}

// ksctl reads its states under these names and keys.
func TestGoldenStore(t *testing.T) {
	var lines strings.Builder
	for _, c := range []struct{ what, name string }{
		{"namespace", StoreNamespace}, {"ConfigMap of states", StoreConfigMap},
		{"Secret of credentials", StoreSecret}, {"Secret of a MongoDB", ExternalStoreSecret},
	} {
		_, _ = fmt.Fprintf(&lines, "%s: %s\n", c.what, c.name)
	}
	for _, name := range stateFiles(t) {
		f, _ := parseTestFile(t, name)
		for _, c := range f.Clusters {
			_, _ = fmt.Fprintf(&lines, "%s: %s\n", name, c.ID.Key())
			if back, ok := ParseKey(c.ID.Key()); !ok || back != c.ID {
				t.Errorf("%s: the key %s is parsed as %+v", name, c.ID.Key(), back)
			}
		}
	}
	full := ID{Cloud: "aws", Type: "selfmanaged", Name: "prod-eu", Region: "eu-north-1"}
	golden.Complete(t, full)
	_, _ = fmt.Fprintf(&lines, "every field: %s\nleast: %s\n", full.Key(), ID{}.Key())
	golden.Equal(t, "store.txt", []byte(lines.String()))
}

// Statuses contain these dialects.
func TestGoldenDialects(t *testing.T) {
	var lines strings.Builder
	seen := map[Dialect]bool{}
	for _, name := range stateFiles(t) {
		f, _ := parseTestFile(t, name)
		for _, c := range f.Clusters {
			_, _ = fmt.Fprintf(&lines, "%s: %s\n", name, c.Dialect)
			seen[c.Dialect] = true
		}
	}
	for _, d := range []Dialect{V1, V12, V126, V2, V27} {
		if !seen[d] {
			t.Errorf("no test file has the dialect %s", d)
		}
	}
	golden.Equal(t, "dialects.txt", []byte(lines.String()))
}

// These bytes are written to the store of ksctl, sent to its agent, and encrypted in exports.
func TestGoldenExports(t *testing.T) {
	var clusters []*Cluster
	var credentials []*Credentials
	for _, name := range stateFiles(t) {
		f, _ := parseTestFile(t, name)
		clusters, credentials = append(clusters, f.Clusters...), append(credentials, f.Credentials...)
		for _, c := range f.Clusters {
			golden.Equal(t, "document-"+name, c.JSON())
		}
	}
	for name, e := range map[string]struct {
		clusters    []*Cluster
		credentials []*Credentials
	}{
		"export-empty.json": {}, "export.json": {clusters, credentials},
	} {
		data, err := Export(e.clusters, e.credentials)
		if err != nil {
			t.Fatal(err)
		}
		golden.Equal(t, name, data)
		back, err := Parse(name, data)
		if err != nil || back.Form != ExportForm || len(back.Clusters) != len(e.clusters) ||
			len(back.Credentials) != len(e.credentials) {
			t.Errorf("%s: parsed as %v, error %v", name, back, err)
		}
	}
	slices.Reverse(clusters)
	if data, err := Export(clusters, credentials); err != nil || !bytes.Equal(data, golden.Read(t, "export.json")) {
		t.Errorf("the order of the files changes the export: %v", err)
	}
}

// Hashes in statuses are computed from these bytes.
func TestGoldenCanonical(t *testing.T) {
	data, err := Canonical([]byte(`{"z": [1, 1.0, 1.50, 1e3, 1E-7, 12345678901234567890, -0.0, 0], 
		"a": {"html": "<&>", "line": "\u2028", "text": "\u00e4\ud83d\ude00\\"},
		"empty": [{}, [], "", null, true, false]}`))
	if err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "canonical.json", data)
}

// Encrypted files contain the expression that selects the values that SOPS leaves readable.
func TestGoldenUnencryptedRegex(t *testing.T) {
	var lines strings.Builder
	for _, name := range stateFiles(t) {
		_, data := parseTestFile(t, name)
		tree, err := decode(data)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(&lines, "%s: %s\n", name, unencryptedRegex(tree))
	}
	golden.Equal(t, "rules.txt", []byte(lines.String()))
}
