package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Table is the report as a page of Markdown. Titles says in words what each
// scenario is.
func (r Report) Table(titles map[string]string) string {
	var b strings.Builder
	medians := Medians(r.Results)
	fmt.Fprintf(&b, "# Results\n\n%s, commit %s.\n%s, %d processors, %d MiB, %s.\n", r.Began.UTC().Format("2 January 2006 15:04 MST"), r.Commit,
		r.Machine.Processor, r.Machine.Processors, r.Machine.MemoryMiB, r.Machine.System)
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		fmt.Fprintf(&b, "- %s %s\n", name, r.Versions[name])
	}
	b.WriteString("\nMedians where there was more than one run. Requests are without watches, leases and events.\n" +
		"(0.5×) is half of what " + Flux + " has, or " + ArgoCD + " where that had no part.\n")
	for _, group := range grouped(medians) {
		first := group[0]
		fmt.Fprintf(&b, "\n## %s, %d installs\n\n", heading(first.Scenario, titles), first.Installs)
		b.WriteString("| peer | runs | wall | CPU | of it workers | peak RSS | p50 | p95 | p99 | status writes | requests | events |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n")
		for _, m := range group {
			b.WriteString(row(m, group))
		}
	}
	b.WriteString(verdicts(Judge(medians, Marks)))
	return b.String()
}

func heading(scenario string, titles map[string]string) string {
	if title := titles[scenario]; title != "" {
		return scenario + ": " + title
	}
	return scenario
}

// grouped are the results of the same scenario and number of installs together.
func grouped(medians []Result) [][]Result {
	var out [][]Result
	at := map[key]int{}
	for _, m := range medians {
		k := key{scenario: m.Scenario, installs: m.Installs}
		i, ok := at[k]
		if !ok {
			i = len(out)
			at[k] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], m)
	}
	return out
}

func row(m Result, group []Result) string {
	cells := []string{m.Peer, fmt.Sprint(m.Run), withRatio(Wall, m, group), withRatio(CPU, m, group)}
	workers := "–"
	if m.WorkerCPUSeconds > 0 {
		workers = seconds(m.WorkerCPUSeconds)
	}
	cells = append(cells, workers, withRatio(RSS, m, group))
	for _, l := range []float64{m.Latency.P50, m.Latency.P95, m.Latency.P99} {
		if l == 0 {
			cells = append(cells, "–")
			continue
		}
		cells = append(cells, seconds(l))
	}
	cells = append(cells, fmt.Sprint(m.StatusWrites), requests(m), fmt.Sprint(m.Events))
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// withRatio is a number, and how it stands to that of Flux, or of Argo CD where Flux had
// no part.
func withRatio(metric Metric, m Result, group []Result) string {
	value, ok := metric.Of(m)
	if !ok {
		return "–"
	}
	text := metric.Format(value)
	base := Flux
	if !slices.ContainsFunc(group, func(r Result) bool { return r.Peer == Flux }) {
		base = ArgoCD
	}
	for _, other := range group {
		if other.Peer != base || m.Peer == base {
			continue
		}
		theirs, ok := metric.Of(other)
		if ratio, has := Ratio(value, theirs); ok && has {
			text += fmt.Sprintf(" (%.2g×)", ratio)
		}
	}
	return text
}

// requests is the number of requests, and of each verb.
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

func verdicts(all []Verdict) string {
	if len(all) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n## Marks\n\n| scenario | installs | mark | limit | ours | |\n|---|---|---|---|---|---|\n")
	for _, v := range all {
		word := "missed"
		if v.Met {
			word = "met"
		}
		format := v.Mark.Metric.Format
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %s | %s |\n", v.Mark.Scenario, v.Installs, v.Mark, format(v.Limit), format(v.Value), word)
	}
	return b.String()
}
