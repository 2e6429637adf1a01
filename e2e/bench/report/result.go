// Package report says what benchmarks measured and what that means: medians,
// ratios, verdicts, a table and charts. It measures nothing itself.
package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"
)

// Result is one measurement: a scenario and a peer.
type Result struct {
	Scenario string `json:"scenario"`
	Peer     string `json:"peer"`
	// Installs that there were, and which run of the same it is.
	Installs int `json:"installs"`
	Run      int `json:"run"`

	// WallSeconds is the time until everything was as it should be.
	WallSeconds float64 `json:"wallSeconds"`
	// CPUSeconds of the controller and all processes that it starts; WorkerCPUSeconds
	// is the part of those. Zero for a peer without a process of its own.
	CPUSeconds       float64 `json:"cpuSeconds"`
	WorkerCPUSeconds float64 `json:"workerCPUSeconds"`
	// PeakRSSBytes is the largest resident set of all processes together; the file
	// that several of them run counts once.
	PeakRSSBytes int64 `json:"peakRSSBytes"`

	// Requests of the peer by verb, those to its status resources among them.
	// Watches, leases and events are not in it; Events are counted beside it.
	Requests     map[string]int `json:"requests"`
	StatusWrites int            `json:"statusWrites"`
	Events       int            `json:"events"`

	// Latency from the commit to Ready, over the installs that the commit is about.
	Latency Latency `json:"latencySeconds"`
	// Ordered tells whether a removal kept its order; nil where there is none.
	Ordered *bool `json:"ordered,omitempty"`
}

// Latency is a distribution in seconds.
type Latency struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

// Report is everything of one run of the benchmark.
type Report struct {
	Began    time.Time         `json:"began"`
	Commit   string            `json:"commit"`
	Machine  Machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	Results  []Result          `json:"results"`
	// Done is what was measured in one go, so that it can be gone on with later.
	Done []string `json:"done"`
}

// Machine is where it ran.
type Machine struct {
	Processor  string `json:"processor"`
	Processors int    `json:"processors"`
	MemoryMiB  int64  `json:"memoryMiB"`
	System     string `json:"system"`
}

// JSON of the report, for a file.
func (r Report) JSON() ([]byte, error) {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the results as JSON: %w", err)
	}
	return append(data, '\n'), nil
}

// Total is how many requests there were.
func (r Result) Total() int {
	n := 0
	for _, count := range r.Requests {
		n += count
	}
	return n
}

// NewLatency sums up how long each took.
func NewLatency(took []time.Duration) Latency {
	seconds := make([]float64, len(took))
	for i, d := range took {
		seconds[i] = d.Seconds()
	}
	return Latency{P50: Percentile(seconds, 50), P95: Percentile(seconds, 95), P99: Percentile(seconds, 99)}
}

// Percentile is the smallest value that p percent of the values do not exceed
// (nearest rank); 0 of none.
func Percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Median is the middle of the values, or the mean of the two in the middle; 0 of none.
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

// Medians joins the runs of the same scenario, peer and number of installs into
// one result each, in the order in which they come first. Its Run is how many
// there were.
func Medians(results []Result) []Result {
	var out []Result
	seen := map[key]bool{}
	for _, r := range results {
		if seen[keyOf(r)] {
			continue
		}
		seen[keyOf(r)] = true
		var same []Result
		for _, other := range results {
			if keyOf(other) == keyOf(r) {
				same = append(same, other)
			}
		}
		out = append(out, join(same))
	}
	return out
}

type key struct {
	scenario, peer string
	installs       int
}

func keyOf(r Result) key { return key{r.Scenario, r.Peer, r.Installs} }

// join takes the median of each number of results of the same.
func join(same []Result) Result {
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
		// One run that did not keep the order is too many.
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

// Ratio of two numbers; false where there is none.
func Ratio(a, b float64) (float64, bool) {
	if b == 0 {
		return 0, false
	}
	return a / b, true
}

// find returns the largest number of installs that a scenario was run with by a peer.
func find(medians []Result, scenario, peer string) (Result, bool) {
	var found []Result
	for _, r := range medians {
		if r.Scenario == scenario && r.Peer == peer {
			found = append(found, r)
		}
	}
	if len(found) == 0 {
		return Result{}, false
	}
	return slices.MaxFunc(found, func(a, b Result) int { return cmp.Compare(a.Installs, b.Installs) }), true
}
