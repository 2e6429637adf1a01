package layout

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
)

// Budget is the time budget of the tests of one package, in seconds.
type Budget struct{ Wall, CPU float64 }

// budgetRow matches a row of the table: package, wall seconds, CPU seconds.
var budgetRow = regexp.MustCompile("(?m)^\\| `([a-z0-9/_-]+)` \\| *(\\d+) *\\| *(\\d+) *\\|$")

// ReadBudgets reads the table of time budgets in a Markdown page, by package.
func ReadBudgets(page string) (map[string]Budget, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, fmt.Errorf("reading the time budgets: %w", err)
	}
	budgets := map[string]Budget{}
	for _, row := range budgetRow.FindAllStringSubmatch(string(text), -1) {
		// These are numbers, because the columns match \d+.
		wall, _ := strconv.ParseFloat(row[2], 64)
		cpu, _ := strconv.ParseFloat(row[3], 64)
		budgets[row[1]] = Budget{Wall: wall, CPU: cpu}
	}
	if len(budgets) == 0 {
		return nil, fmt.Errorf("%s has no table of time budgets", page)
	}
	return budgets, nil
}
