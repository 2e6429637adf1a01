package stored

import (
	"fmt"
	"slices"
	"strings"
)

// Reasons are the reasons for a difference from Helm.
var Reasons = []string{"claims are kept", "CRDs and hook objects are removed", "drift is put right",
	"post hooks wait for readiness", "CRDs in templates come first", "CRDs are updated", "hooks end with their success"}

// Row is a row of the table of differences from Helm in the docs.
type Row struct {
	// Case is the chart.
	Case string
	Difference
	Reason string
}

// ParseTable returns the rows of a Markdown table with the columns Chart, Object, Field, Reason. A
// dash stands for the whole object.
func ParseTable(text string) (rows []Row, err error) {
	_, table, found := strings.Cut(text, "| Chart | Object | Field | Reason |\n|---|---|---|---|\n")
	if !found {
		return nil, fmt.Errorf("there is no table with the columns Chart, Object, Field, Reason")
	}
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		if len(cells) != 4 {
			return nil, fmt.Errorf("a row must have 4 cells: %s", line)
		}
		for i := range cells {
			cells[i] = strings.Trim(cells[i], " `")
		}
		row := Row{Case: cells[0], Difference: Difference{Object: cells[1], Field: cells[2]}, Reason: cells[3]}
		if row.Field == "–" {
			row.Field = ""
		}
		if !slices.Contains(Reasons, row.Reason) {
			return nil, fmt.Errorf("the reason %q is not one of: %s", row.Reason, strings.Join(Reasons, ", "))
		}
		rows = append(rows, row)
	}
	return rows, nil
}
