package main

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"strconv"
)

// excess is how much of its budget a package may take before the run warns.
const excess = 1.5

// budget is what the tests of one package may take, in seconds.
type budget struct{ wall, cpu float64 }

type budgets map[string]budget

// budgetRow is a row of the table: package, wall seconds, CPU seconds.
var budgetRow = regexp.MustCompile("(?m)^\\| `([a-z0-9/_-]+)` \\| *(\\d+) *\\| *(\\d+) *\\|")

// readBudgets reads the table of a page.
func readBudgets(page string) (budgets, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, fmt.Errorf("reading the time budgets: %w", err)
	}
	b := budgets{}
	for _, m := range budgetRow.FindAllStringSubmatch(string(text), -1) {
		wall, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, err
		}
		cpu, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return nil, err
		}
		b[m[1]] = budget{wall, cpu}
	}
	if len(b) == 0 {
		return nil, fmt.Errorf("%s has no table of time budgets", page)
	}
	return b, nil
}

// compare orders packages by wall time, longest first, so that none of the long ones is
// started last. A package without a budget comes first: nobody knows how long it takes.
func (b budgets) compare(x, y string) int {
	bx, hasX := b[x]
	by, hasY := b[y]
	if hasX != hasY {
		if hasY {
			return -1
		}
		return 1
	}
	return cmp.Compare(by.wall, bx.wall)
}

// exceeded describes by how much a package exceeded its budget; "" if it did not.
func (b budgets) exceeded(u usage) string {
	// Below that, the speed of the machine decides.
	const least = 10
	have, ok := b[u.Package]
	if !ok || u.Wall < least && u.CPU < least || u.Wall <= have.wall*excess && u.CPU <= have.cpu*excess {
		return ""
	}
	return fmt.Sprintf("%s: wall %.0f s of %.0f, CPU %.0f s of %.0f", u.Package, u.Wall, have.wall, u.CPU, have.cpu)
}
