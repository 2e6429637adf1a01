// Package docs_test checks the documentation against the code.
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

// internalReasons are reasons in the code that never occur in a condition, so they are not
// documented: a failed download, for example, is ArtifactFailed on every object.
var internalReasons = []string{"DigestMismatch", "NotFound", "Unreachable", "BranchMoved", "Scaling"}

func TestEveryReasonIsDocumented(t *testing.T) {
	inCode := map[string]bool{}
	for _, dir := range []string{"api", "controllers", "internal/sources", "internal/clusters", "internal/scaling",
		"internal/agent", "internal/statestore", "stacks/artifact", "stacks/chart", "stacks/sops"} {
		collectReasons(t, dir, inCode)
	}
	page := map[string]bool{}
	// A row has one reason, or several with the same meaning.
	reason := regexp.MustCompile("`([A-Z][A-Za-z]+)`")
	current, _, found := strings.Cut(read(t, "docs/conditions.md"), "\n## Renamed reasons\n")
	if !found {
		t.Fatal("docs/conditions.md does not list renamed reasons")
	}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[A-Z][A-Za-z]+`(?:, `[A-Z][A-Za-z]+`)*) \\|").
		FindAllStringSubmatch(current, -1) {
		for _, m := range reason.FindAllStringSubmatch(row[1], -1) {
			page[m[1]] = true
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(inCode)) {
		if !page[reason] && !slices.Contains(internalReasons, reason) {
			t.Errorf("docs/conditions.md does not describe %s", reason)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(page)) {
		if !inCode[reason] {
			t.Errorf("docs/conditions.md describes %s, which no code sets", reason)
		}
	}
}

// collectReasons collects the reasons of conditions and events in the packages below a folder:
// constants named …Reason or of a type Reason, Flux's reasons, and codes of failures.
func collectReasons(t *testing.T, dir string, into map[string]bool) {
	t.Helper()
	c := collector{into: into, operations: operations(t)}
	walkSources(t, dir, func(file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			c.collect(n)
			return true
		})
	})
}

// walkSources calls visit for each Go file below a folder, except tests.
func walkSources(t *testing.T, dir string, visit func(*ast.File)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		// In these packages, a "reason" is a part of a message.
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
		visit(file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// operations returns the operation kinds of the cluster API. Reasons of events start with them.
func operations(t *testing.T) []string {
	t.Helper()
	found := map[string]bool{}
	c := collector{into: found}
	walkSources(t, "api/cluster/v1", func(file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && isIdent(spec.Type, "OperationKind") {
				for _, v := range spec.Values {
					c.add(v)
				}
			}
			return true
		})
	})
	if len(found) == 0 {
		t.Fatal("no kinds of operations were found")
	}
	return slices.Sorted(maps.Keys(found))
}

// collector collects reasons from syntax trees.
type collector struct {
	into map[string]bool
	// operations are the possible values of string(op.Kind).
	operations []string
}

// collect adds the reasons that a node sets.
func (c *collector) collect(n ast.Node) {
	switch n := n.(type) {
	case *ast.ValueSpec:
		for i, name := range n.Names {
			if i < len(n.Values) &&
				(strings.HasSuffix(name.Name, "Reason") || isIdent(n.Type, "Reason") ||
					codeName.MatchString(name.Name)) {
				c.add(n.Values[i])
			}
		}
	case *ast.SelectorExpr: // fluxmeta.ProgressingReason = "Progressing"
		if reason, ok := strings.CutSuffix(n.Sel.Name, "Reason"); ok && reason != "" && isIdent(n.X, "fluxmeta") {
			c.into[reason] = true
		}
	case *ast.CompositeLit: // {"Adopted", corev1.EventTypeNormal, …}
		if len(n.Elts) > 1 && eventType(n.Elts[1]) {
			c.add(n.Elts[0])
		}
	case *ast.KeyValueExpr: // metav1.Condition{Reason: "Idle", …}
		if isIdent(n.Key, "Reason") {
			c.add(n.Value)
		}
	case *ast.AssignStmt: // c.Status, c.Reason = metav1.ConditionFalse, "NoState"
		for i, to := range n.Lhs {
			if s, ok := to.(*ast.SelectorExpr); ok && s.Sel.Name == "Reason" && len(n.Lhs) == len(n.Rhs) {
				c.add(n.Rhs[i])
			}
		}
	// Event(corev1.EventTypeWarning, "Contested", …), newCondition(clusterv1.…Condition, "Serving",
	// …)
	case *ast.CallExpr:
		if len(n.Args) > 1 && (eventType(n.Args[0]) || isIdent(n.Fun, "newCondition") && conditionType(n.Args[0])) {
			c.add(n.Args[1])
		}
	}
}

// codeName matches the name of a constant with the code of a failure, which is the reason of a
// backoff.
var codeName = regexp.MustCompile(`^Code[A-Z]`)

func isIdent(e ast.Expr, name string) bool {
	i, ok := e.(*ast.Ident)
	return ok && i.Name == name
}

func conditionType(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	return ok && strings.HasSuffix(s.Sel.Name, "Condition")
}

func eventType(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	return ok && strings.HasPrefix(s.Sel.Name, "EventType")
}

// add adds the possible values of an expression.
func (c *collector) add(e ast.Expr) {
	for _, value := range c.words(e) {
		if value != "" {
			c.into[value] = true
		}
	}
}

// words returns the possible values of an expression: a literal, string(op.Kind), or a
// concatenation of these.
func (c *collector) words(e ast.Expr) (out []string) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); e.Kind == token.STRING && err == nil {
			return []string{s}
		}
	case *ast.CallExpr:
		if len(e.Args) == 1 && isIdent(e.Fun, "string") {
			if s, ok := e.Args[0].(*ast.SelectorExpr); ok && s.Sel.Name == "Kind" {
				return c.operations
			}
		}
	case *ast.BinaryExpr:
		for _, first := range c.words(e.X) {
			for _, last := range c.words(e.Y) {
				out = append(out, first+last)
			}
		}
	}
	return out
}

// pages returns the paths of all documentation pages.
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
				t.Errorf("%s: the Makefile has no target %q", page, m[1])
			}
		}
		for _, m := range run.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}
