package report

import (
	"cmp"
	"fmt"
)

// Names of the peers.
const (
	Ours   = "ours"
	Kind   = "kind"
	Flux   = "kustomize-controller"
	ArgoCD = "argo-cd"
	Floor  = "floor"
)

// Metric is one value of a result.
type Metric struct {
	Name string
	// Value returns the value, and false if the result has none.
	Value func(Result) (float64, bool)
	// Format formats the value with its unit.
	Format func(float64) string
}

// Metrics that targets, tables and charts use.
var (
	Wall = Metric{"wall", func(r Result) (float64, bool) { return r.WallSeconds, r.WallSeconds > 0 }, seconds}
	CPU  = Metric{"CPU", func(r Result) (float64, bool) { return r.CPUSeconds, r.Peer != Floor }, seconds}
	RSS  = Metric{"peak RSS", func(r Result) (float64, bool) {
		return float64(r.PeakRSSBytes), r.PeakRSSBytes > 0
	}, mebibytes}
	P95 = Metric{"p95", func(r Result) (float64, bool) { return r.Latency.P95, r.Latency.P95 > 0 }, seconds}
	// Status is the number of status writes per install; Other is the number of all other requests.
	Status = Metric{"status writes per install", statusWritesPerInstall, count}
	Other  = Metric{"other requests", func(r Result) (float64, bool) {
		return float64(r.Total() - r.StatusWrites), true
	}, count}
	Requests = Metric{"requests", func(r Result) (float64, bool) { return float64(r.Total()), true }, count}
	// OutOfOrder is 1 if a removal did not respect the order of dependencies, else 0.
	OutOfOrder = Metric{"out of order", outOfOrder, count}
)

func statusWritesPerInstall(r Result) (float64, bool) {
	return Ratio(float64(r.StatusWrites), float64(r.Installs))
}

func outOfOrder(r Result) (float64, bool) {
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

// Target is an upper limit for a metric of our controller in a scenario.
type Target struct {
	Scenario string
	Metric   Metric
	// Limit is the factor of the value of the peer Against, or the limit itself if Against is
	// empty.
	Limit   float64
	Against string
	// OrFloor is an alternative limit, as a factor of the floor's value. If set, the larger of the
	// two limits applies.
	OrFloor float64
	// BaseScenario is the scenario of our controller to compare with, instead of a peer.
	BaseScenario string
	// Of is the peer whose value is limited; our controller if it is empty.
	Of string
	// MinInstalls is the minimum number of installs for which the target applies.
	MinInstalls int
}

// Targets are the performance targets of the project.
var Targets = []Target{
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
	{Scenario: "f", Metric: Wall, Limit: 1.1, BaseScenario: "f0"},
	{Scenario: "g1", Metric: Wall, Limit: 0.5, Against: Flux},
	{Scenario: "g1", Metric: Wall, Limit: 1.3, Against: Floor},
	{Scenario: "g1", Metric: RSS, Limit: 0.5, Against: Flux},
	{Scenario: "g2", Metric: Requests, Limit: 2},
	{Scenario: "i", Metric: OutOfOrder, Limit: 0},
	{Scenario: "i", Metric: Wall, Limit: 1, Against: Flux},
	{Scenario: "k", Metric: Wall, Limit: 0.05, Against: Flux},
	{Scenario: "k", Metric: RSS, Limit: 0.05, Against: Flux},
	{Scenario: "l1", Metric: Wall, Of: Kind, Limit: 1.2, Against: Ours},
	{Scenario: "l1", Metric: RSS, Of: Kind, Limit: 1.2, Against: Ours},
	{Scenario: "l2", Metric: Wall, Of: Kind, Limit: 1.2, Against: Ours},
}

// Evaluation is the result of checking a target.
type Evaluation struct {
	Target Target
	// Value is our controller's value, and Limit the limit in the same unit.
	Value, Limit float64
	Installs     int
	Met          bool
}

// Evaluate checks each target for which the medians have the values. It uses the largest number of
// installs that our controller ran with.
func Evaluate(medians []Result, targets []Target) []Evaluation {
	var out []Evaluation
	for _, m := range targets {
		if v, ok := evaluate(medians, m); ok {
			out = append(out, v)
		}
	}
	return out
}

func evaluate(medians []Result, m Target) (Evaluation, bool) {
	ours, ok := findLargest(medians, m.Scenario, cmp.Or(m.Of, Ours))
	if !ok || ours.Installs < m.MinInstalls {
		return Evaluation{}, false
	}
	value, ok := m.Metric.Value(ours)
	if !ok {
		return Evaluation{}, false
	}
	limit, ok := m.limit(medians, ours)
	return Evaluation{Target: m, Value: value, Limit: limit, Installs: ours.Installs, Met: value <= limit}, ok
}

// limit returns the maximum for our controller's value, and false if the medians lack a value for
// it.
func (m Target) limit(medians []Result, ours Result) (float64, bool) {
	if m.BaseScenario != "" {
		base, ok := findLargest(medians, m.BaseScenario, Ours)
		if !ok {
			return 0, false
		}
		value, ok := m.Metric.Value(base)
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

// times returns a multiple of the value of a peer with the same number of installs, and false if
// there is none.
func (m Target) times(medians []Result, ours Result, peer string, factor float64) (float64, bool) {
	for _, r := range medians {
		if r.Scenario == ours.Scenario && r.Peer == peer && r.Installs == ours.Installs {
			value, ok := m.Metric.Value(r)
			return factor * value, ok
		}
	}
	return 0, false
}

// String returns the limit in words.
func (m Target) String() string {
	switch {
	case m.BaseScenario != "":
		return fmt.Sprintf("%s ≤ %g× of %s", m.Metric.Name, m.Limit, m.BaseScenario)
	case m.Against == "":
		return fmt.Sprintf("%s ≤ %s", m.Metric.Name, m.Metric.Format(m.Limit))
	case m.OrFloor != 0:
		return fmt.Sprintf("%s ≤ the larger of %g× %s and %g× %s", m.Metric.Name, m.Limit, m.Against, m.OrFloor, Floor)
	}
	return fmt.Sprintf("%s ≤ %g× %s", m.Metric.Name, m.Limit, m.Against)
}
