package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ksctl/gitops/internal/testrun/layout"
)

// Every package with tests has a time budget, and every budget is that of a package with tests.
func TestEveryTestPackageHasATimeBudget(t *testing.T) {
	rows, err := layout.ReadBudgets(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]bool{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (d.Name() == "bin" || d.Name() == "testdata" || isModule(path)) {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, "_test.go") {
			folder, err := filepath.Rel(root, filepath.Dir(path))
			packages[filepath.ToSlash(folder)] = err == nil
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for p := range packages {
		if _, ok := rows[p]; !ok {
			t.Errorf("CONTRIBUTING.md has no time budget for %s", p)
		}
	}
	for p := range rows {
		if !packages[p] {
			t.Errorf("CONTRIBUTING.md has a time budget for %s, which has no tests", p)
		}
	}
}

// isModule reports whether a folder is a separate Go module, whose tests are not part of the run.
func isModule(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, "go.mod"))
	return err == nil
}
