package report

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[99-i] = float64(i + 1)
	}
	for _, c := range []struct {
		values []float64
		p      float64
		want   float64
	}{
		{nil, 50, 0},
		{[]float64{7}, 99, 7},
		{[]float64{7}, 0, 7},
		{[]float64{3, 1, 2}, 50, 2},
		{[]float64{4, 3, 2, 1}, 50, 2},
		{hundred, 50, 50},
		{hundred, 95, 95},
		{hundred, 99, 99},
		{hundred, 100, 100},
	} {
		if got := Percentile(c.values, c.p); got != c.want {
			t.Errorf("percentile %g of %d values: got %g, want %g", c.p, len(c.values), got, c.want)
		}
	}
	if got := NewLatency([]time.Duration{time.Second, 3 * time.Second}); got != (Latency{P50: 1, P95: 3, P99: 3}) {
		t.Errorf("latency %+v", got)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{5}, 5}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := Median(c.values); got != c.want {
			t.Errorf("median of %v: got %g, want %g", c.values, got, c.want)
		}
	}
}

func TestMediansGroupByScenarioPeerAndInstalls(t *testing.T) {
	no, yes := false, true
	got := Medians([]Result{
		{Scenario: "a", Peer: Ours, Installs: 10, Run: 1, WallSeconds: 3, StatusWrites: 20,
			Requests: map[string]int{"patch": 40, "get": 1}, Ordered: &yes},
		{Scenario: "a", Peer: Flux, Installs: 10, Run: 1, WallSeconds: 9},
		{Scenario: "a", Peer: Ours, Installs: 10, Run: 2, WallSeconds: 1, StatusWrites: 20,
			Requests: map[string]int{"patch": 40}, Ordered: &no},
		{Scenario: "a", Peer: Ours, Installs: 20, Run: 1, WallSeconds: 7},
		{Scenario: "a", Peer: Ours, Installs: 10, Run: 3, WallSeconds: 2, StatusWrites: 20,
			Requests: map[string]int{"patch": 44}, Ordered: &yes},
	})
	if len(got) != 3 {
		t.Fatalf("got %d medians: %+v", len(got), got)
	}
	ours := got[0]
	if ours.WallSeconds != 2 || ours.Run != 3 || ours.StatusWrites != 20 || ours.Requests["patch"] != 40 ||
		ours.Requests["get"] != 0 {
		t.Errorf("ours: %+v", ours)
	}
	if ours.Ordered == nil || *ours.Ordered {
		t.Error("one run was out of order, but the median is in order")
	}
	if got[1].Peer != Flux || got[2].Installs != 20 {
		t.Errorf("order: %+v", got)
	}
}

func TestEvaluate(t *testing.T) {
	no := false
	results := []Result{
		{Scenario: "a", Peer: Ours, Installs: 10, WallSeconds: 2, CPUSeconds: 1},
		{Scenario: "a", Peer: Flux, Installs: 10, WallSeconds: 5, CPUSeconds: 5},
		{Scenario: "a", Peer: Floor, Installs: 10, WallSeconds: 1.5},
		{Scenario: "c", Peer: Ours, Installs: 10, Latency: Latency{P95: 0.4}},
		{Scenario: "d2", Peer: Ours, Installs: 10, StatusWrites: 10, Requests: map[string]int{"patch": 11}},
		{Scenario: "f", Peer: Ours, Installs: 10, WallSeconds: 1.2},
		{Scenario: "f0", Peer: Ours, Installs: 9, WallSeconds: 1},
		{Scenario: "i", Peer: Ours, Installs: 10, Ordered: &no},
		{Scenario: "g1", Peer: Floor, Installs: 1, WallSeconds: 1},
		{Scenario: "d2", Peer: ArgoCD, Installs: 10, CPUSeconds: 2},
		{Scenario: "b", Peer: Ours, Installs: 20, CPUSeconds: 1},
		{Scenario: "b", Peer: ArgoCD, Installs: 10, CPUSeconds: 2},
	}
	for _, c := range []struct {
		name  string
		mark  Target
		limit float64
		met   bool
		none  bool
	}{
		{"against a peer", Target{Scenario: "a", Metric: CPU, Limit: 0.3, Against: Flux}, 1.5, true, false},
		{"the floor's limit is larger", Target{Scenario: "a", Metric: Wall, Limit: 0.2, Against: Flux, OrFloor: 1.5},
			2.25, true, false},
		{"the peer's limit is larger", Target{Scenario: "a", Metric: Wall, Limit: 0.6, Against: Flux, OrFloor: 1.5}, 3,
			true, false},
		{"missed", Target{Scenario: "a", Metric: Wall, Limit: 1, Against: Floor}, 1.5, false, false},
		{"too few installs", Target{Scenario: "a", Metric: Wall, Limit: 1, Against: Floor, MinInstalls: 11}, 0, false,
			true},
		{"absolute", Target{Scenario: "c", Metric: P95, Limit: 0.5}, 0.5, true, false},
		{"without the peer", Target{Scenario: "c", Metric: P95, Limit: 0.2, Against: Flux}, 0, false, true},
		{"writes per install", Target{Scenario: "d2", Metric: Status, Limit: 1}, 1, true, false},
		{"against Argo CD", Target{Scenario: "d2", Metric: CPU, Limit: 1, Against: ArgoCD}, 2, true, false},
		{"Argo CD with fewer installs", Target{Scenario: "b", Metric: CPU, Limit: 1, Against: ArgoCD}, 0, false, true},
		{"another request", Target{Scenario: "d2", Metric: Other, Limit: 0}, 0, false, false},
		{"another scenario", Target{Scenario: "f", Metric: Wall, Limit: 1.1, BaseScenario: "f0"}, 1.1, false, false},
		{"order", Target{Scenario: "i", Metric: OutOfOrder, Limit: 0}, 0, false, false},
		{"not run", Target{Scenario: "g1", Metric: Wall, Limit: 1, Against: Floor}, 0, false, true},
		{"no memory measured", Target{Scenario: "a", Metric: RSS, Limit: 1, Against: Flux}, 0, false, true},
	} {
		got := Evaluate(Medians(results), []Target{c.mark})
		if c.none {
			if len(got) != 0 {
				t.Errorf("%s: got the evaluation %+v, want none", c.name, got[0])
			}
			continue
		}
		if len(got) != 1 || got[0].Limit-c.limit > 1e-9 || c.limit-got[0].Limit > 1e-9 || got[0].Met != c.met {
			t.Errorf("%s: got %+v, want the limit %g and met %v", c.name, got, c.limit, c.met)
		}
	}
}

func TestTargetsAreComplete(t *testing.T) {
	for _, m := range Targets {
		if m.Metric.Value == nil || m.Metric.Format == nil || m.String() == "" {
			t.Errorf("a target of scenario %s is incomplete", m.Scenario)
		}
	}
}

func exampleReport() Report {
	return Report{Began: time.Unix(0, 0), Commit: "abc",
		Machine:  Machine{Processor: "Chip <1>", Processors: 2, MemoryMiB: 1024, System: "linux"},
		Versions: map[string]string{"Kubernetes": "v1", "Go": "go1"},
		Results: []Result{
			{Scenario: "b", Peer: Ours, Installs: 10, WallSeconds: 1, CPUSeconds: 0.5, WorkerCPUSeconds: 0.25,
				PeakRSSBytes: 50 << 20, StatusWrites: 10,
				Requests: map[string]int{"patch": 20, "get": 0}, Latency: Latency{P50: 0.1, P95: 0.2, P99: 0.3}},
			{Scenario: "b", Peer: Flux, Installs: 10, WallSeconds: 4, CPUSeconds: 5, PeakRSSBytes: 100 << 20},
			{Scenario: "b", Peer: Floor, Installs: 10, WallSeconds: 0.9},
		}}
}

func TestTable(t *testing.T) {
	page := exampleReport().Table(map[string]string{"b": "one change"})
	for _, want := range []string{
		"commit abc", "Chip <1>, 2 processors, 1024 MiB, linux", "- Go go1\n- Kubernetes v1\n",
		"## b: one change, 10 installs",
		"| ours | 1 | 1.0 s (0.25×) | 500 ms (0.1×) | 250 ms | 50 MiB " +
			"(0.5×) | 100 ms | 200 ms | 300 ms | 10 | 20: patch 20 | 0 |",
		"| floor | 1 | 900 ms (0.23×) | – | – | – |",
		"| b | 10 | wall ≤ the larger of 0.2× kustomize-controller and 1.5× floor | 1.4 s | 1.0 s | met |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

func TestTableWithArgoCD(t *testing.T) {
	r := exampleReport()
	r.Results = []Result{{Scenario: "d2", Peer: Ours, Installs: 10, WallSeconds: 1, CPUSeconds: 0.5},
		{Scenario: "d2", Peer: ArgoCD, Installs: 10, WallSeconds: 4, CPUSeconds: 2}}
	page := r.Table(nil)
	for _, want := range []string{
		"| ours | 1 | 1.0 s (0.25×) | 500 ms (0.25×) |", "| argo-cd | 1 | 4.0 s | 2.0 s |",
		"| d2 | 10 | CPU ≤ 1× argo-cd | 2.0 s | 500 ms | met |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	r.Results = append(r.Results, Result{Scenario: "d2", Peer: Flux, Installs: 10, WallSeconds: 8, CPUSeconds: 10})
	if page := r.Table(nil); !strings.Contains(page, "| argo-cd | 1 | 4.0 s (0.5×) | 2.0 s (0.2×) |") {
		t.Errorf("with Flux in the results, Argo CD is not compared with Flux:\n%s", page)
	}
	if chart := Chart("CPU", CPU, Medians(r.Results)); !strings.Contains(chart, colors[ArgoCD]) {
		t.Errorf("the chart has no bar for Argo CD:\n%s", chart)
	}
}

func TestChart(t *testing.T) {
	chart := Chart("Wall < time", Wall, Medians(exampleReport().Results))
	decoder := xml.NewDecoder(strings.NewReader(chart))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("not XML: %v\n%s", err, chart)
		}
	}
	for _, want := range []string{"Wall &lt; time", "b × 10", "kustomize-controller", "4.0 s", "900 ms",
		`width="500.0"`, `width="125.0"`} {
		if !strings.Contains(chart, want) {
			t.Errorf("the chart lacks %q:\n%s", want, chart)
		}
	}
	if none := Chart("RSS", RSS, []Result{{Scenario: "b", Peer: Floor}}); strings.Contains(none, "NaN") ||
		strings.Contains(none, "b ×") {
		t.Errorf("chart without values: %s", none)
	}
}

func TestJSON(t *testing.T) {
	data, err := exampleReport().JSON()
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(data, &back); err != nil || back.Results[0].Requests["patch"] != 20 ||
		back.Results[0].Latency.P95 != 0.2 {
		t.Errorf("%v: %s", err, data)
	}
}
