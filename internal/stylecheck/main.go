// Command stylecheck finds names in the Go code that are not words of the field: stylecheck [folder].
//
// words.tsv has these words, and what to use instead; exceptions.tsv has the names that stay. The
// check splits file names and the identifiers that the code declares into words. An entry that is
// not one lower-case word is compared with string constants.
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
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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

// check returns what is wrong with the names of the Go files in a module, one line each.
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
	c.checkName(name, strings.TrimSuffix(path.Base(name), ".go"))
	c.checkName(name, path.Base(path.Dir(name)))
	ast.Inspect(file, func(n ast.Node) bool {
		for _, id := range declared(n) {
			c.checkName(c.files.Position(id.Pos()).String(), id.Name)
		}
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			if s, err := strconv.Unquote(l.Value); err == nil && !isWord.MatchString(s) {
				c.report(c.files.Position(l.Pos()).String(), s, s)
			}
		}
		return true
	})
	return nil
}

// declared returns the identifiers that a node declares.
func declared(n ast.Node) (out []*ast.Ident) {
	expressions := func(list ...ast.Expr) {
		for _, e := range list {
			if id, ok := e.(*ast.Ident); ok {
				out = append(out, id)
			}
		}
	}
	switch n := n.(type) {
	case *ast.FuncDecl:
		out = append(out, n.Name)
	case *ast.TypeSpec:
		out = append(out, n.Name)
	case *ast.ValueSpec:
		return n.Names
	case *ast.Field:
		return n.Names
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			expressions(n.Lhs...)
		}
	case *ast.RangeStmt:
		if n.Tok == token.DEFINE {
			expressions(n.Key, n.Value)
		}
	case *ast.ImportSpec:
		if n.Name != nil {
			out = append(out, n.Name)
		}
	}
	return out
}

var (
	wordInName = regexp.MustCompile(`[A-Z]+[a-z0-9]*|[a-z0-9]+`)
	isWord     = regexp.MustCompile(`^[a-z]*$`)
)

func (c *checker) checkName(at, name string) {
	for _, word := range wordInName.FindAllString(name, -1) {
		c.report(at, name, strings.ToLower(word))
	}
}

// report reports a word, or a string constant, of a name unless an exception allows it.
func (c *checker) report(at, name, word string) {
	instead, found := c.instead[word]
	if !found {
		return
	}
	for folder := path.Dir(filepath.ToSlash(at)); ; folder = path.Dir(folder) {
		for _, allowed := range []string{name, word} {
			e := exception{folder, allowed}
			if _, known := c.used[e]; known {
				c.used[e] = true
				return
			}
		}
		if folder == "." {
			break
		}
	}
	c.problems = append(c.problems, fmt.Sprintf("%s: %s: use %s instead of %s", at, name, instead, word))
}
