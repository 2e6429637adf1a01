// Command stylecheck checks the Go code of a module: stylecheck [folder].
//
// It finds names that are not words of the field. words.tsv has these words, and what to use
// instead; exceptions.tsv has the names that stay. The check splits file names and the identifiers
// that the code declares into words. An entry that is not one lower-case word is compared with
// string constants.
//
// It also finds files and lines that are too long. A linter limits the length of functions.
package main

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

var (
	//go:embed words.tsv
	wordsFile []byte
	//go:embed exceptions.tsv
	exceptionsFile []byte
)

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	problems, err := check(os.DirFS(root), wordsFile, exceptionsFile)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	for _, p := range problems {
		fmt.Println(p)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

// exception is a name that stays in the files below a folder.
type exception struct{ folder, name string }

// checker checks files.
type checker struct {
	// instead maps a word, or a string constant, to what to use instead of it.
	instead map[string]string
	// used tells which exceptions were needed.
	used     map[exception]bool
	files    *token.FileSet
	problems []string
}

// check returns what is wrong with the Go files in a module, one line each.
func check(module fs.FS, words, exceptions []byte) ([]string, error) {
	c := &checker{instead: map[string]string{}, used: map[exception]bool{}, files: token.NewFileSet()}
	for _, f := range rows(words, 2) {
		c.instead[f[0]] = f[1]
	}
	for _, f := range rows(exceptions, 3) {
		c.used[exception{f[0], f[1]}] = false
	}
	err := fs.WalkDir(module, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "bin" || d.Name() == "testdata" || name != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		return c.checkFile(module, name)
	})
	if err != nil {
		return nil, err
	}
	for e, used := range c.used {
		if !used {
			c.problems = append(c.problems, fmt.Sprintf("exceptions.tsv: %s in %s is not needed", e.name, e.folder))
		}
	}
	slices.Sort(c.problems)
	return c.problems, nil
}

// rows returns the fields of the rows that have n of them. Other lines are comments.
func rows(table []byte, n int) (out [][]string) {
	for line := range strings.Lines(string(table)) {
		if f := strings.Split(strings.TrimSpace(line), "\t"); len(f) == n {
			out = append(out, f)
		}
	}
	return out
}

func (c *checker) checkFile(module fs.FS, name string) error {
	text, err := fs.ReadFile(module, name)
	if err != nil {
		return err
	}
	file, err := parser.ParseFile(c.files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if ast.IsGenerated(file) {
		return nil
	}
	c.checkSize(name, string(text), file)
	c.checkNames(name, file)
	return nil
}
