// Package report evaluates benchmark results: medians, ratios, targets, a table and charts. It
// measures nothing itself.
package report

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"
)

// Result is one measurement of a scenario with a peer.
type Result struct {
	Scenario string `json:"scenario"`
	Peer     string `json:"peer"`
	// Installs is the number of installs. Run is the number of the run, from 1; in a median it is
	// the number of runs.
	Installs int `json:"installs"`
	Run      int `json:"run"`

	// WallSeconds is the time until all installs were in the expected state.
	WallSeconds float64 `json:"wallSeconds"`
	// CPUSeconds is the CPU time of the controller and its child processes; WorkerCPUSeconds is the
	// part of the child processes. Both are zero for a peer without a process.
	CPUSeconds       float64 `json:"cpuSeconds"`
	WorkerCPUSeconds float64 `json:"workerCPUSeconds"`
	// PeakRSSBytes is the peak of the total resident set of all processes. An executable that
	// several processes run counts once.
	PeakRSSBytes int64 `json:"peakRSSBytes"`

	// Requests is the number of the peer's requests by verb, including status subresources, without
	// watches, leases and events. Events is the number of event writes.
	Requests     map[string]int `json:"requests"`
	StatusWrites int            `json:"statusWrites"`
	Events       int            `json:"events"`

	// Latency is the time from the start (such as the commit) to the expected state (such as Ready)
	// of each install that the scenario changes.
	Latency Latency `json:"latencySeconds"`
	// Ordered is true if a removal respected the order of dependencies; nil if the scenario has
	// none.
	Ordered *bool `json:"ordered,omitempty"`
}

// Latency is a distribution in seconds.
type Latency struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

// Report has all results of one run of the benchmark.
type Report struct {
	Began    time.Time         `json:"began"`
	Commit   string            `json:"commit"`
	Machine  Machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	Results  []Result          `json:"results"`
	// Done lists the completed jobs, which -resume skips.
	Done []string `json:"done"`
}

// Machine describes the machine that the benchmark ran on.
type Machine struct {
	Processor  string `json:"processor"`
	Processors int    `json:"processors"`
	MemoryMiB  int64  `json:"memoryMiB"`
	System     string `json:"system"`
}

// JSON returns the report as indented JSON for a file.
func (r Report) JSON() ([]byte, error) {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the results: %w", err)
	}
	return append(data, '\n'), nil
}

// Total returns the total number of requests.
func (r Result) Total() int {
	n := 0
	for _, count := range r.Requests {
		n += count
	}
	return n
}

// NewLatency returns the percentiles of durations.
func NewLatency(took []time.Duration) Latency {
	seconds := make([]float64, len(took))
	for i, d := range took {
		seconds[i] = d.Seconds()
	}
	return Latency{P50: Percentile(seconds, 50), P95: Percentile(seconds, 95), P99: Percentile(seconds, 99)}
}

// Percentile returns the smallest value that p percent of the values do not exceed (nearest rank),
// or 0 for no values.
func Percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Median returns the middle value, or the mean of the two middle values, or 0 for no values.
func Median[T int | int64 | float64](values []T) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// Medians returns one result with the medians for each scenario, peer and number of installs, in
// the order of their first occurrence. Its Run is the number of runs.
func Medians(results []Result) []Result {
	var out []Result
	for _, same := range groupBy(results, keyOf) {
		out = append(out, medianResult(same))
	}
	return out
}

// groupBy groups results by a key, in the order of its first occurrence.
func groupBy(results []Result, by func(Result) key) [][]Result {
	var out [][]Result
	at := map[key]int{}
	for _, r := range results {
		i, ok := at[by(r)]
		if !ok {
			i = len(out)
			at[by(r)] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], r)
	}
	return out
}

type key struct {
	scenario, peer string
	installs       int
}

func keyOf(r Result) key { return key{r.Scenario, r.Peer, r.Installs} }

// medianResult returns the medians of results with the same key.
func medianResult(same []Result) Result {
	out := same[0]
	out.Run = len(same)
	out.WallSeconds = medianOf(same, func(r Result) float64 { return r.WallSeconds })
	out.CPUSeconds = medianOf(same, func(r Result) float64 { return r.CPUSeconds })
	out.WorkerCPUSeconds = medianOf(same, func(r Result) float64 { return r.WorkerCPUSeconds })
	out.PeakRSSBytes = medianOf(same, func(r Result) int64 { return r.PeakRSSBytes })
	out.StatusWrites = medianOf(same, func(r Result) int { return r.StatusWrites })
	out.Events = medianOf(same, func(r Result) int { return r.Events })
	out.Latency = Latency{
		P50: medianOf(same, func(r Result) float64 { return r.Latency.P50 }),
		P95: medianOf(same, func(r Result) float64 { return r.Latency.P95 }),
		P99: medianOf(same, func(r Result) float64 { return r.Latency.P99 }),
	}
	out.Requests = map[string]int{}
	for _, r := range same {
		for verb := range r.Requests {
			out.Requests[verb] = medianOf(same, func(r Result) int { return r.Requests[verb] })
		}
		// A single run that is out of order counts.
		if r.Ordered != nil && !*r.Ordered {
			out.Ordered = r.Ordered
		}
	}
	return out
}

func medianOf[T int | int64 | float64](results []Result, of func(Result) T) T {
	values := make([]T, len(results))
	for i, r := range results {
		values[i] = of(r)
	}
	return Median(values)
}

// Ratio returns a/b, and false if b is 0.
func Ratio(a, b float64) (float64, bool) {
	if b == 0 {
		return 0, false
	}
	return a / b, true
}

// findLargest returns the result of a scenario and peer with the largest number of installs.
func findLargest(medians []Result, scenario, peer string) (largest Result, ok bool) {
	for _, r := range medians {
		if r.Scenario == scenario && r.Peer == peer && (!ok || r.Installs > largest.Installs) {
			largest, ok = r, true
		}
	}
	return largest, ok
}
