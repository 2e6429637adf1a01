package main

import (
	"cmp"
	"fmt"
	"math"

	"github.com/ksctl/gitops/internal/testrun/layout"
)

const (
	// budgetTolerance is the multiple of its budget that a package may take before the run warns.
	budgetTolerance = 1.5
	// minSeconds is the time below which budgets are not checked: short times vary too much between
	// machines.
	minSeconds = 10
)

// budgets are the time budgets by package.
type budgets map[string]layout.Budget

// compare orders packages by wall time, the longest first, so that no long package starts last.
// Packages without a budget come first, because their time is unknown.
func (b budgets) compare(x, y string) int {
	wall := func(pkg string) float64 {
		if budget, ok := b[pkg]; ok {
			return budget.Wall
		}
		return math.Inf(1)
	}
	return cmp.Compare(wall(y), wall(x))
}

// exceeded describes how a package exceeded its budget; "" if it did not.
func (b budgets) exceeded(u usage) string {
	budget, ok := b[u.Package]
	if !ok || u.Wall < minSeconds && u.CPU < minSeconds || u.Wall <= budget.Wall*budgetTolerance &&
		u.CPU <= budget.CPU*budgetTolerance {
		return ""
	}
	return fmt.Sprintf("%s: wall %.0f s of %.0f, CPU %.0f s of %.0f", u.Package, u.Wall, budget.Wall, u.CPU, budget.CPU)
}
