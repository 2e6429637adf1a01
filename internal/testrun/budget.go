package main

import (
	"cmp"
	"fmt"

	"github.com/ksctl/gitops/internal/testrun/layout"
)

const (
	// excess is the part of its budget that a package may take before the run warns.
	excess = 1.5
	// least is the number of seconds below which times vary too much between machines.
	least = 10
)

// budgets are those of packages.
type budgets map[string]layout.Budget

// compare orders packages by wall time, longest first, so that no long one starts last. A
// package without a budget comes first, as its time is unknown.
func (b budgets) compare(x, y string) int {
	bx, hasX := b[x]
	by, hasY := b[y]
	if hasX != hasY {
		if hasY {
			return -1
		}
		return 1
	}
	return cmp.Compare(by.Wall, bx.Wall)
}

// exceeded describes by how much a package exceeded its budget; "" if it did not.
func (b budgets) exceeded(u usage) string {
	have, ok := b[u.Package]
	if !ok || u.Wall < least && u.CPU < least || u.Wall <= have.Wall*excess && u.CPU <= have.CPU*excess {
		return ""
	}
	return fmt.Sprintf("%s: wall %.0f s of %.0f, CPU %.0f s of %.0f", u.Package, u.Wall, have.Wall, u.CPU, have.CPU)
}
