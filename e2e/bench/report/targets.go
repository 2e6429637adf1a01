package report

import "fmt"

// Names of the peers.
const (
	Ours   = "ours"
	Flux   = "kustomize-controller"
	ArgoCD = "argo-cd"
	Floor  = "floor"
)

// Metric is one number of a result.
type Metric struct {
	Name string
	// Of is the number, and false where the result has none.
	Of func(Result) (float64, bool)
	// Format shows it.
	Format func(float64) string
}

// Metrics that marks, tables and charts use.
var (
	Wall = Metric{"wall", func(r Result) (float64, bool) { return r.WallSeconds, r.WallSeconds > 0 }, seconds}
	CPU  = Metric{"CPU", func(r Result) (float64, bool) { return r.CPUSeconds, r.Peer != Floor }, seconds}
	RSS  = Metric{"peak RSS", func(r Result) (float64, bool) { return float64(r.PeakRSSBytes), r.PeakRSSBytes > 0 }, mebibytes}
	P95  = Metric{"p95", func(r Result) (float64, bool) { return r.Latency.P95, r.Latency.P95 > 0 }, seconds}
	// Status is status writes for each install; Other are all other requests.
	Status   = Metric{"status writes per install", perInstall, count}
	Other    = Metric{"other requests", func(r Result) (float64, bool) { return float64(r.Total() - r.StatusWrites), true }, count}
	Requests = Metric{"requests", func(r Result) (float64, bool) { return float64(r.Total()), true }, count}
	// Disorder is 1 when a removal did not keep its order.
	Disorder = Metric{"out of order", disorder, count}
)

func perInstall(r Result) (float64, bool) {
	return Ratio(float64(r.StatusWrites), float64(r.Installs))
}

func disorder(r Result) (float64, bool) {
	switch {
	case r.Ordered == nil:
		return 0, false
	case *r.Ordered:
		return 0, true
	}
	return 1, true
}

func seconds(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f s", v)
	case v >= 1:
		return fmt.Sprintf("%.1f s", v)
	}
	return fmt.Sprintf("%.0f ms", v*1000)
}

func mebibytes(v float64) string { return fmt.Sprintf("%.0f MiB", v/(1<<20)) }

func count(v float64) string { return fmt.Sprintf("%g", v) }

// Mark is what a scenario must show of ours.
type Mark struct {
	Scenario string
	Metric   Metric
	// Limit times what Against has, or the limit itself when that is empty.
	Limit   float64
	Against string
	// OrFloor, when set, is another limit in times of the floor: the larger counts.
	OrFloor float64
	// Base is the scenario of ours that it is compared with instead of a peer.
	Base string
	// MinInstalls is from how many installs on it is a mark.
	MinInstalls int
}

// Marks are all of them.
var Marks = []Mark{
	{Scenario: "a", Metric: CPU, Limit: 0.3, Against: Flux, MinInstalls: 1000},
	{Scenario: "a", Metric: Wall, Limit: 0.2, Against: Flux, OrFloor: 1.5, MinInstalls: 1000},
	{Scenario: "a", Metric: Wall, Limit: 1.5, Against: Floor, MinInstalls: 1000},
	{Scenario: "a", Metric: RSS, Limit: 0.6, Against: Flux, MinInstalls: 1000},
	{Scenario: "b", Metric: Wall, Limit: 0.2, Against: Flux, OrFloor: 1.5},
	{Scenario: "b", Metric: Wall, Limit: 1.5, Against: Floor},
	{Scenario: "c", Metric: P95, Limit: 0.2, Against: Flux},
	{Scenario: "c", Metric: P95, Limit: 0.5},
	{Scenario: "d1", Metric: Requests, Limit: 0},
	{Scenario: "d2", Metric: CPU, Limit: 0.05, Against: Flux},
	{Scenario: "d2", Metric: CPU, Limit: 1, Against: ArgoCD},
	{Scenario: "d2", Metric: Status, Limit: 1},
	{Scenario: "d2", Metric: Other, Limit: 0},
	{Scenario: "e", Metric: Wall, Limit: 0.05, Against: Flux},
	{Scenario: "f", Metric: Wall, Limit: 1.1, Base: "f0"},
	{Scenario: "g1", Metric: Wall, Limit: 0.5, Against: Flux},
	{Scenario: "g1", Metric: Wall, Limit: 1.3, Against: Floor},
	{Scenario: "g1", Metric: RSS, Limit: 0.5, Against: Flux},
	{Scenario: "g2", Metric: Requests, Limit: 2},
	{Scenario: "i", Metric: Disorder, Limit: 0},
	{Scenario: "i", Metric: Wall, Limit: 1, Against: Flux},
	{Scenario: "k", Metric: Wall, Limit: 0.05, Against: Flux},
	{Scenario: "k", Metric: RSS, Limit: 0.05, Against: Flux},
}

// Verdict is what became of a mark.
type Verdict struct {
	Mark Mark
	// Value of ours, and Limit in the same unit.
	Value, Limit float64
	Installs     int
	Met          bool
}

// Judge returns a verdict for each mark that the medians can tell of, with the
// largest number of installs that ours was run with.
func Judge(medians []Result, marks []Mark) []Verdict {
	var out []Verdict
	for _, m := range marks {
		if v, ok := judge(medians, m); ok {
			out = append(out, v)
		}
	}
	return out
}

func judge(medians []Result, m Mark) (Verdict, bool) {
	ours, ok := find(medians, m.Scenario, Ours)
	if !ok || ours.Installs < m.MinInstalls {
		return Verdict{}, false
	}
	value, ok := m.Metric.Of(ours)
	if !ok {
		return Verdict{}, false
	}
	limit, ok := m.limit(medians, ours)
	return Verdict{Mark: m, Value: value, Limit: limit, Installs: ours.Installs, Met: value <= limit}, ok
}

// limit is what ours may have at most.
func (m Mark) limit(medians []Result, ours Result) (float64, bool) {
	if m.Base != "" {
		base, ok := find(medians, m.Base, Ours)
		if !ok {
			return 0, false
		}
		value, ok := m.Metric.Of(base)
		return m.Limit * value, ok
	}
	if m.Against == "" {
		return m.Limit, true
	}
	limit, ok := m.times(medians, ours, m.Against, m.Limit)
	if m.OrFloor == 0 || !ok {
		return limit, ok
	}
	floor, ok := m.times(medians, ours, Floor, m.OrFloor)
	return max(limit, floor), ok
}

// times is a multiple of what a peer has with as many installs.
func (m Mark) times(medians []Result, ours Result, peer string, factor float64) (float64, bool) {
	for _, r := range medians {
		if r.Scenario == ours.Scenario && r.Peer == peer && r.Installs == ours.Installs {
			value, ok := m.Metric.Of(r)
			return factor * value, ok
		}
	}
	return 0, false
}

// String says what the mark asks for.
func (m Mark) String() string {
	switch {
	case m.Base != "":
		return fmt.Sprintf("%s ≤ %g× of %s", m.Metric.Name, m.Limit, m.Base)
	case m.Against == "":
		return fmt.Sprintf("%s ≤ %s", m.Metric.Name, m.Metric.Format(m.Limit))
	case m.OrFloor != 0:
		return fmt.Sprintf("%s ≤ the larger of %g× %s and %g× %s", m.Metric.Name, m.Limit, m.Against, m.OrFloor, Floor)
	}
	return fmt.Sprintf("%s ≤ %g× %s", m.Metric.Name, m.Limit, m.Against)
}
