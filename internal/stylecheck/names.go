package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// checkNames checks the names of a file and of its folder, and those that the file declares.
func (c *checker) checkNames(name string, file *ast.File) {
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
