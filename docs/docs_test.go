// Package docs_test checks that the pages say what the code does.
package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = ".."

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// inside are reasons that code decides by and that no condition has: a failed
// download is ArtifactFailed on every object.
var inside = []string{"DigestMismatch", "NotFound", "Unreachable", "BranchMoved"}

func TestEveryReasonIsDescribed(t *testing.T) {
	inCode := map[string]bool{}
	for _, dir := range []string{"controllers", "stacks/artifact", "stacks/chart", "stacks/sops"} {
		reasons(t, dir, inCode)
	}
	page := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z][A-Za-z]+)` \\|").FindAllStringSubmatch(read(t, "docs/conditions.md"), -1) {
		page[m[1]] = true
	}
	for _, reason := range slices.Sorted(maps.Keys(inCode)) {
		if !page[reason] && !slices.Contains(inside, reason) {
			t.Errorf("docs/conditions.md does not describe %s", reason)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(page)) {
		if !inCode[reason] {
			t.Errorf("docs/conditions.md describes %s, which no code sets", reason)
		}
	}
}

// reasons collects the reasons of conditions and events that packages set:
// constants called …Reason or of a type Reason, and those of Flux.
func reasons(t *testing.T, dir string, into map[string]bool) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		// What the engine and the index call reasons are parts of messages.
		if d.IsDir() && (d.Name() == "engine" || d.Name() == "live") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			collect(n, into)
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func collect(n ast.Node, into map[string]bool) {
	switch n := n.(type) {
	case *ast.ValueSpec:
		kind, _ := n.Type.(*ast.Ident)
		for i, name := range n.Names {
			if i < len(n.Values) && (strings.HasSuffix(name.Name, "Reason") || kind != nil && kind.Name == "Reason") {
				literal(n.Values[i], into)
			}
		}
	case *ast.SelectorExpr: // fluxmeta.ProgressingReason = "Progressing"
		pkg, _ := n.X.(*ast.Ident)
		if reason, ok := strings.CutSuffix(n.Sel.Name, "Reason"); ok && reason != "" && pkg != nil && pkg.Name == "fluxmeta" {
			into[reason] = true
		}
	case *ast.CompositeLit: // {"Adopted", corev1.EventTypeNormal, …}
		if len(n.Elts) > 1 && eventType(n.Elts[1]) {
			literal(n.Elts[0], into)
		}
	case *ast.CallExpr: // Event(corev1.EventTypeWarning, "Contested", …)
		if len(n.Args) > 1 && eventType(n.Args[0]) {
			literal(n.Args[1], into)
		}
	}
}

func eventType(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	return ok && strings.HasPrefix(s.Sel.Name, "EventType")
}

func literal(e ast.Expr, into map[string]bool) {
	if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
		if s, err := strconv.Unquote(l.Value); err == nil && s != "" {
			into[s] = true
		}
	}
}

// pages are all that people read.
func pages(t *testing.T) []string {
	t.Helper()
	out, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range out {
		out[i] = filepath.Join("docs", filepath.Base(out[i]))
	}
	return append(out, "README.md")
}

func TestLinksAndCommandsExist(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)
	target := regexp.MustCompile("(?m)(?:^|`|\\$ )make ([a-z][a-z-]*)")
	run := regexp.MustCompile(`go run (\./[\w./-]+)`)
	makefile := read(t, "Makefile")
	for _, page := range pages(t) {
		text := read(t, page)
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: link to %s: %v", page, m[1], err)
			}
		}
		for _, m := range target.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s: there is no target %q", page, m[1])
			}
		}
		for _, m := range run.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}
