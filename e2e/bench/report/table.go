package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Table returns the report as a Markdown page. titles has the descriptions of scenarios, by name.
func (r Report) Table(titles map[string]string) string {
	var b strings.Builder
	medians := Medians(r.Results)
	fmt.Fprintf(&b, "# Results\n\n%s, commit %s.\n%s, %d processors, %d MiB, %s.\n",
		r.Began.UTC().Format("2 January 2006 15:04 MST"), r.Commit,
		r.Machine.Processor, r.Machine.Processors, r.Machine.MemoryMiB, r.Machine.System)
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		fmt.Fprintf(&b, "- %s %s\n", name, r.Versions[name])
	}
	b.WriteString("\nValues are medians if there was more than one run. Requests exclude watches, leases and " +
		"events.\n" +
		"(0.5×) is half the value of " + Flux + ", or of " + ArgoCD + " if " + Flux + " did not run.\n")
	for _, group := range grouped(medians) {
		first := group[0]
		fmt.Fprintf(&b, "\n## %s, %d installs\n\n", heading(first.Scenario, titles), first.Installs)
		b.WriteString("| peer | runs | wall | CPU | CPU of workers | peak RSS | p50 | p95 | p99 | status writes | " +
			"requests | events |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n")
		for _, m := range group {
			b.WriteString(row(m, group))
		}
	}
	b.WriteString(targetTable(Evaluate(medians, Targets)))
	return b.String()
}

func heading(scenario string, titles map[string]string) string {
	if title := titles[scenario]; title != "" {
		return scenario + ": " + title
	}
	return scenario
}

// grouped groups the results by scenario and number of installs.
func grouped(medians []Result) [][]Result {
	return groupBy(medians, func(r Result) key { return key{scenario: r.Scenario, installs: r.Installs} })
}

func row(m Result, group []Result) string {
	cells := []string{m.Peer, fmt.Sprint(m.Run), withRatio(Wall, m, group), withRatio(CPU, m, group),
		secondsIfAny(m.WorkerCPUSeconds),
		withRatio(RSS, m, group), secondsIfAny(m.Latency.P50), secondsIfAny(m.Latency.P95), secondsIfAny(m.Latency.P99),
		fmt.Sprint(m.StatusWrites), requests(m), fmt.Sprint(m.Events)}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

func secondsIfAny(v float64) string {
	if v <= 0 {
		return "–"
	}
	return seconds(v)
}

// withRatio returns a formatted value with its ratio to Flux' value, or to Argo CD's if Flux did
// not run.
func withRatio(metric Metric, m Result, group []Result) string {
	value, ok := metric.Value(m)
	if !ok {
		return "–"
	}
	text := metric.Format(value)
	base, ok := findLargest(group, m.Scenario, Flux)
	if !ok {
		base, ok = findLargest(group, m.Scenario, ArgoCD)
	}
	if !ok || m.Peer == base.Peer {
		return text
	}
	theirs, ok := metric.Value(base)
	if ratio, has := Ratio(value, theirs); ok && has {
		text += fmt.Sprintf(" (%.2g×)", ratio)
	}
	return text
}

// requests returns the number of requests, in total and by verb.
func requests(m Result) string {
	var parts []string
	for _, verb := range slices.Sorted(maps.Keys(m.Requests)) {
		if n := m.Requests[verb]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", verb, n))
		}
	}
	if len(parts) == 0 {
		return "0"
	}
	return fmt.Sprintf("%d: %s", m.Total(), strings.Join(parts, ", "))
}

func targetTable(all []Evaluation) string {
	if len(all) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n## Targets\n\n| scenario | installs | target | limit | ours | |\n|---|---|---|---|---|---|\n")
	for _, v := range all {
		result := "missed"
		if v.Met {
			result = "met"
		}
		format := v.Target.Metric.Format
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %s | %s |\n", v.Target.Scenario, v.Installs, v.Target, format(v.Limit),
			format(v.Value), result)
	}
	return b.String()
}
