package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The Go code in docs/library.md is quoted from code that is compiled and tested.
func TestLibraryCodeIsQuoted(t *testing.T) {
	var code strings.Builder
	for _, dir := range []string{"examples/library", "e2e/client"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
				return err
			}
			data, err := os.ReadFile(path)
			code.Write(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, "docs/library.md"), -1)
	if len(blocks) < 5 {
		t.Errorf("found only %d code blocks in docs/library.md", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(code.String(), block[1]) {
			t.Errorf("no file in examples/library or e2e/client contains\n%s", block[1])
		}
	}
}
