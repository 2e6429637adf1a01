package reconcile

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

func node(i int) WaitNode {
	return WaitNode{Kind: "KsctlInstall", Namespace: "ns", Name: fmt.Sprint(i)}
}

// waitGraph has the waits of each of its nodes.
type waitGraph [][]int

func (g waitGraph) edgesOf(n WaitNode) (out []appsv1.WaitReference) {
	var i int
	_, _ = fmt.Sscan(n.Name, &i)
	for _, to := range g[i] {
		out = append(out, appsv1.WaitReference{Type: appsv1.WaitDependsOn, Kind: n.Kind, Namespace: n.Namespace,
			Name: fmt.Sprint(to)})
	}
	return out
}

// distances returns the number of edges of the shortest way from each node to each other; from a
// node to itself, of the shortest cycle.
func (g waitGraph) distances() [][]int {
	const none = 1 << 20
	d := make([][]int, len(g))
	for i := range d {
		d[i] = slices.Repeat([]int{none}, len(g))
		for _, to := range g[i] {
			d[i][to] = 1
		}
	}
	for k := range d {
		for i := range d {
			for j := range d {
				d[i][j] = min(d[i][j], d[i][k]+d[k][j])
			}
		}
	}
	return d
}

// In random graphs, a cycle is found for exactly the nodes on one; it is a shortest one, and
// consists of edges of the graph.
func TestFindWaitCycleInRandomGraphs(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	cycles := 0
	for range 2000 {
		g := make(waitGraph, 1+random.IntN(9))
		for i := range g {
			for range random.IntN(3) {
				g[i] = append(g[i], random.IntN(len(g)))
			}
		}
		shortest := g.distances()
		for i := range g {
			cycle := FindWaitCycle(node(i), g.edgesOf)
			if len(cycle) == 0 {
				if shortest[i][i] <= len(g) {
					t.Fatalf("%v: no cycle through %d", g, i)
				}
				continue
			}
			cycles++
			if len(cycle) != shortest[i][i] || cycle[0].From != node(i) || cycle[len(cycle)-1].To() != node(i) {
				t.Fatalf("%v: cycle through %d: %v", g, i, cycle)
			}
			for k, e := range cycle {
				if !slices.Contains(g.edgesOf(e.From), e.WaitReference) || k > 0 && cycle[k-1].To() != e.From {
					t.Fatalf("%v: cycle through %d: %v", g, i, cycle)
				}
			}
		}
	}
	if cycles < 1000 {
		t.Errorf("only %d cycles", cycles)
	}
}

func TestDescribeWaitCycleIsEqualForAllMembers(t *testing.T) {
	g := waitGraph{{1}, {2}, {0}}
	want := "KsctlInstall ns/0 waits for KsctlInstall ns/1 (DependsOn), KsctlInstall ns/1 waits for KsctlInstall " +
		"ns/2 (DependsOn), KsctlInstall ns/2 waits for KsctlInstall ns/0 (DependsOn)"
	for i := range g {
		if got := DescribeWaitCycle(FindWaitCycle(node(i), g.edgesOf)); got != want {
			t.Errorf("from %d: %s", i, got)
		}
	}
}

// Each Waiting says what it waits for. The exception is the message of a write in between.
func TestWaitingHasReferences(t *testing.T) {
	found := 0
	for _, root := range []string{"..", "../../internal"} {
		err := filepath.WalkDir(root, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, name, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				lit, ok := n.(*ast.CompositeLit)
				if !ok || !isWaiting(lit.Type) {
					return true
				}
				found++
				at := files.Position(lit.Pos())
				hasFor := slices.ContainsFunc(lit.Elts, func(e ast.Expr) bool {
					kv, ok := e.(*ast.KeyValueExpr)
					return ok && kv.Key.(*ast.Ident).Name == "For"
				})
				// the latter sets it in a loop
				if !hasFor && at.Filename != "../reconcile/status.go" && at.Filename != "../importstate/clusters.go" {
					t.Errorf("%s: a Waiting without For", at)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 20 {
		t.Errorf("only %d outcomes found", found)
	}
}

func isWaiting(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		return e.Sel.Name == "Waiting"
	case *ast.Ident:
		return e.Name == "Waiting"
	}
	return false
}
