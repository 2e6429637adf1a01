package main

import (
	"fmt"
	"strings"
	"time"
)

// maxFlakes is how many tests may need a second attempt in a run that passes.
const maxFlakes = 3

// passed reports whether no test failed and not too many tests flaked.
func (r *result) passed() bool {
	return !r.failed && len(r.failures) == 0 && len(r.flakes) <= maxFlakes
}

// summary returns the summary of a run, which fits on one screen.
func (r *result) summary(b budgets, f reportFiles) string {
	var out strings.Builder
	section := func(title string, lines []string) {
		if len(lines) > 0 {
			fmt.Fprintf(&out, "== %s\n%s\n", title, strings.Join(lines, "\n"))
		}
	}
	var skips, exceeded []string
	for _, s := range r.skips {
		skips = append(skips, fmt.Sprintf("%s: %s: %s", s.Package, s.Name, s.Error))
	}
	for _, u := range r.usages {
		if text := b.exceeded(u); text != "" {
			exceeded = append(exceeded, text)
		}
	}
	section("SKIPPED", skips)
	section(fmt.Sprintf("OVER BUDGET: more than %g times the table in CONTRIBUTING.md (a warning)", budgetTolerance),
		exceeded)
	section("FLAKED: failed first and passed when repeated; fix each, or describe its cause in docs/flakes.md",
		describe(r.flakes))
	section("FAILED", describe(r.failures))
	switch {
	case r.failed && len(r.failures) == 0:
		fmt.Fprintln(&out, "error: go test failed; see its output above")
	case len(r.flakes) > maxFlakes:
		fmt.Fprintf(&out, "error: %d tests flaked; at most %d may\n", len(r.flakes), maxFlakes)
	}
	fmt.Fprintf(&out, "== %d failed, %d flaked, %d skipped in %s; reports in %s\n",
		len(r.failures), len(r.flakes), len(r.skips), r.wall.Round(time.Second), f.folder)
	return out.String()
}

func describe(list []testReport) []string {
	var lines []string
	for _, f := range list {
		name := f.Name
		if name == "" {
			name = "the package"
		}
		if f.Seed != 0 {
			name += fmt.Sprintf(" (seed %d)", f.Seed)
		}
		lines = append(lines, fmt.Sprintf("%s: %s\n    %s\n    logs: %s", f.Package, name, f.Error, f.Logs))
	}
	return lines
}
