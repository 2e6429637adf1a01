package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Every test in docs/reliability.md exists.
func TestReliabilityNamesTestsThatExist(t *testing.T) {
	reference := regexp.MustCompile("`([a-z][\\w/-]*)`: ([^;|]+)")
	names := map[string][]string{}
	rows := 0
	for line := range strings.Lines(read(t, "docs/reliability.md")) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 {
			t.Errorf("the row has %d cells, want 3 (fault, what happens, tests): %s", len(cells), line)
			continue
		}
		if strings.HasPrefix(cells[0], "---") || strings.TrimSpace(cells[0]) == "Fault" {
			continue
		}
		rows++
		found := reference.FindAllStringSubmatch(cells[2], -1)
		if len(found) == 0 {
			t.Errorf("no test for the fault: %s", cells[0])
		}
		for _, m := range found {
			pkg, name := m[1], strings.TrimSpace(m[2])
			if names[pkg] == nil {
				names[pkg] = testNames(t, pkg)
			}
			if !slices.Contains(names[pkg], name) {
				t.Errorf("%s has no test %q", pkg, name)
			}
		}
	}
	if rows < 30 {
		t.Errorf("found only %d rows in docs/reliability.md", rows)
	}
}

// testNames returns the names of the tests of a package: of functions, and of Ginkgo containers and
// specs with their full text.
func testNames(t *testing.T, pkg string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no tests: %v", pkg, err)
	}
	var out []string
	for _, path := range files {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, source, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok &&
				(strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
				out = append(out, f.Name.Name)
			}
		}
		specTexts(file, "", &out)
	}
	return out
}

// specNodes are the functions of Ginkgo whose first argument is a text.
var specNodes = []string{"Describe", "Context", "When", "It", "Specify", "DescribeTable", "DescribeTableSubtree",
	"Entry"}

// constantText returns the value of a string, which may be broken into several.
func constantText(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		x, isText := constantText(e.X)
		y, both := constantText(e.Y)
		return x + y, isText && both && e.Op == token.ADD
	}
	return "", false
}

// specTexts appends the full texts of the containers and specs below a node to out. within is the
// text of the containers around the node.
func specTexts(n ast.Node, within string, out *[]string) {
	ast.Inspect(n, func(c ast.Node) bool {
		call, ok := c.(*ast.CallExpr)
		if !ok {
			return true
		}
		fn, ok := call.Fun.(*ast.Ident)
		if !ok || !slices.Contains(specNodes, fn.Name) || len(call.Args) < 2 {
			return true
		}
		s, ok := constantText(call.Args[0])
		if !ok {
			return true
		}
		name := strings.TrimSpace(within + " " + s)
		*out = append(*out, name)
		for _, arg := range call.Args[1:] {
			specTexts(arg, name, out)
		}
		return false
	})
}
