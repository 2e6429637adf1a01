package check

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// step is the evaluation interval of the rules and the scrape interval of the targets.
const step = time.Minute

// began is the time of the first sample.
var began = time.Unix(1700000000, 0)

// series is a time series with samples that are one step apart.
type series struct {
	labels  labels.Labels
	samples []chunks.Sample
}

// parseSeries parses series in Prometheus' notation for tests.
func load(t *testing.T, lines []string) []series {
	t.Helper()
	var out []series
	for _, line := range lines {
		ls, values, err := language.ParseSeriesDesc(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		s := series{labels: ls}
		for i, v := range values {
			if !v.Omitted {
				s.samples = append(s.samples, sample{began.Add(time.Duration(i) * step).UnixMilli(), v.Value})
			}
		}
		out = append(out, s)
	}
	return out
}

type sample struct {
	t int64
	v float64
}

func (s sample) T() int64                    { return s.t }
func (s sample) ST() int64                   { return 0 }
func (s sample) F() float64                  { return s.v }
func (sample) H() *histogram.Histogram       { return nil }
func (sample) FH() *histogram.FloatHistogram { return nil }
func (sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample         { return s }

// database returns a queryable with the given series.
func database(all []series) storage.Queryable {
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{SelectMockFunction: func(_ bool,
		_ *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
		var found []storage.Series
		for _, s := range all {
			if !slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return !m.Matches(s.labels.Get(m.Name)) }) {
				found = append(found, storage.NewListSeries(s.labels, s.samples))
			}
		}
		return &set{SeriesSet: storage.EmptySeriesSet(), series: found, at: -1}
	}}}
}

type set struct {
	storage.SeriesSet
	series []storage.Series
	at     int
}

func (s *set) Next() bool         { s.at++; return s.at < len(s.series) }
func (s *set) At() storage.Series { return s.series[s.at] }
func (*set) Err() error           { return nil }

// firing returns the labels of the alerts of a rule that fire at a time after the first
// sample: those that expr has returned at each step for forDuration.
func firing(t *testing.T, expr string, hold time.Duration, all []series, after time.Duration) []string {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, Parser: language})
	defer engine.Close()
	counts := map[string]int{}
	steps := 0
	for at := max(after-hold, 0); at <= after; at += step {
		steps++
		q, err := engine.NewInstantQuery(context.Background(), database(all), nil, expr, began.Add(at))
		if err != nil {
			t.Fatal(err)
		}
		res, err := q.Exec(context.Background()).Vector()
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		for _, s := range res {
			counts[s.Metric.String()]++
		}
		q.Close()
	}
	if after < hold {
		return nil
	}
	maps.DeleteFunc(counts, func(_ string, n int) bool { return n < steps })
	return slices.Sorted(maps.Keys(counts))
}

const install = `ksctl_resource_info{job="j", pod="p", kind="KsctlInstall", exported_namespace="shop", name="web", `

// retried returns the samples of the number of failures of an object that always fails: it is
// retried after 5 ms, and then after twice the delay each time, up to 1000 s.
func retried(within time.Duration) string {
	var out []string
	failed, next, wait := 0, step/2, 5*time.Millisecond
	for at := time.Duration(0); at <= within; at += step {
		for ; next <= at; next, wait = next+wait, min(2*wait, 1000*time.Second) {
			failed++
		}
		out = append(out, strconv.Itoa(failed))
	}
	return strings.Join(out, " ")
}

// scenarios has, for each alert, series for which it fires, and series for which it never fires.
var scenarios = map[string]struct {
	series   []string
	from     time.Duration // the step at which the alert first fires
	labels   string
	nothings []string
}{
	"KsctlNotReady": {
		// A changed reason does not reset the alert.
		[]string{install + `ready="False", reason="Timeout", suspended="false"} 1x10 _x20`,
			install + `ready="False", reason="HealthCheckFailed", suspended="false"} _x10 1x20`},
		15 * time.Minute, `{exported_namespace="shop", kind="KsctlInstall", name="web"}`,
		[]string{install + `ready="True", reason="ReconciliationSucceeded", suspended="false"} 1x30`,
			install + `ready="False", reason="DeletionsHeld", suspended="false"} 1x30`,
			`ksctl_resource_info{job="j", pod="p", kind="KsctlAutoScaler", exported_namespace="shop", name="web", ready="False", reason="Backoff", suspended="false"} 1x30`,
			install + `ready="False", reason="Timeout", suspended="true"} 1x30`,
			install + `ready="False", reason="Timeout", suspended="false"} 1x6 _x30`},
	},
	"KsctlUnderWayForLong": {
		[]string{install + `ready="Unknown", reason="Progressing", suspended="false"} 1x90`},
		time.Hour, `{exported_namespace="shop", kind="KsctlInstall", name="web"}`,
		[]string{install + `ready="True", reason="ReconciliationSucceeded", suspended="false"} 1x90`,
			install + `ready="Unknown", reason="Progressing", suspended="false"} 1x50 _x40`},
	},
	"KsctlDeletionHeld": {
		[]string{`ksctl_resource_deletion_timestamp_seconds{job="j", pod="p", kind="KsctlInstall", exported_namespace="shop", name="web"} 1700000000x60`},
		36 * time.Minute, `{exported_namespace="shop", kind="KsctlInstall", name="web"}`,
		[]string{`ksctl_resource_deletion_timestamp_seconds{job="j", pod="p", kind="KsctlInstall", exported_namespace="shop", name="web"} 1700000000x20`},
	},
	"KsctlApprovalAwaited": {
		[]string{install + `ready="False", reason="DeletionsHeld", suspended="false"} 1x90`},
		time.Hour, `{exported_namespace="shop", kind="KsctlInstall", name="web"}`,
		[]string{install + `ready="False", reason="Timeout", suspended="false"} 1x90`},
	},
	"KsctlSuspendedForLong": {
		[]string{install + `ready="True", reason="ReconciliationSucceeded", suspended="true"} 1x1500`},
		24 * time.Hour, `{exported_namespace="shop", kind="KsctlInstall", name="web"}`,
		[]string{install + `ready="True", reason="ReconciliationSucceeded", suspended="false"} 1x1500`},
	},
	"KsctlDriftGoesOn": {
		// Another writer changes one object repeatedly: three corrections, then a pause for an
		// interval.
		[]string{`ksctl_drift_corrected_total{job="j", pod="p", exported_namespace="shop", name="web"} 0x9 3x9 6x9 9x9 12x9 15x9 18x9`},
		50 * time.Minute, `{exported_namespace="shop", name="web"}`,
		[]string{`ksctl_drift_corrected_total{job="j", pod="p", exported_namespace="shop", name="web"} 0x4 3x100`,
			`ksctl_drift_corrected_total{job="j", pod="p", exported_namespace="shop", name="all-at-once"} 0x4 100x100`},
	},
	"KsctlAutoScalerDegraded": {
		// then another replica is the leader
		[]string{`ksctl_autoscaler_degraded{job="j", pod="p", exported_namespace="shop", name="web"} 1x10 _x10`,
			`ksctl_autoscaler_degraded{job="j", pod="q", exported_namespace="shop", name="web"} _x10 1x20`},
		15 * time.Minute, `{exported_namespace="shop", name="web"}`,
		[]string{`ksctl_autoscaler_degraded{job="j", pod="p", exported_namespace="shop", name="web"} 0x4 1x8 0x20`},
	},
	"KsctlPoolBacksOff": {
		// Each attempt fails after two minutes, with back-offs of 1, 2, 4 and 8 minutes.
		[]string{`ksctl_autoscaler_pool_failures{job="j", pod="p", exported_namespace="shop", name="web", pool="small"} 0x1 1x2 2x3 3x5 4x9 5x17`},
		15 * time.Minute, `{exported_namespace="shop", name="web", pool="small"}`,
		[]string{`ksctl_autoscaler_pool_failures{job="j", pod="p", exported_namespace="shop", name="web", pool="small"} 0x1 1x2 2x3 3x5 0x100`,
			`ksctl_autoscaler_pool_failures{job="j", pod="p", exported_namespace="shop", name="web", pool="large"} 1x100`},
	},
	"KsctlGitOpsAbsent": {
		[]string{`controller_runtime_max_concurrent_reconciles{controller="another"} 1x30`},
		10 * time.Minute, `{controller="ksctlinstall"}`,
		[]string{`controller_runtime_max_concurrent_reconciles{job="j", controller="ksctlinstall"} 10x30`},
	},
	"KsctlReconcileErrors": {
		[]string{`controller_runtime_reconcile_errors_total{job="j", controller="ksctlinstall"} ` +
			retried(2*time.Hour)},
		46 * time.Minute, `{controller="ksctlinstall"}`,
		[]string{`controller_runtime_reconcile_errors_total{job="j", controller="ksctlinstall"} 0x4 60x100`,
			`controller_runtime_reconcile_errors_total{job="j", controller="another"} 0+60x60`},
	},
	"KsctlBehind": {
		[]string{`workqueue_depth{job="j", name="ksctlinstall", controller="ksctlinstall", priority="0"} 60x30`,
			`workqueue_depth{job="j", name="ksctlinstall", controller="ksctlinstall", priority="-100"} 60x30`},
		15 * time.Minute, `{name="ksctlinstall"}`,
		[]string{`workqueue_depth{job="j", name="ksctlinstall", controller="ksctlinstall", priority="0"} 60x30`,
			`workqueue_depth{job="j", name="ksctlremove", controller="ksctlremove", priority="0"} 60x30`},
	},
	"KsctlEventsDropped": {
		[]string{`ksctl_events_dropped_total{job="j", sink="receiver"} 0x5 3x30`},
		6 * time.Minute, `{sink="receiver"}`,
		[]string{`ksctl_events_dropped_total{job="j", sink="receiver"} 3x30`},
	},
	"KsctlWebhookFails": {
		[]string{`ksctl_webhook_requests_total{job="j", type="github", result="failed"} 0+1x60`},
		21 * time.Minute, `{result="failed"}`,
		[]string{`ksctl_webhook_requests_total{job="j", type="github", result="accepted"} 0+60x60`,
			`ksctl_webhook_requests_total{job="j", type="", result="rejected"} 0+60x60`},
	},
}

func TestAlerts(t *testing.T) {
	all := rules(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			rule, c := all[name], scenarios[name]
			if len(c.series) == 0 {
				t.Fatal("no scenario")
			}
			hold := time.Duration(rule.For)
			db := load(t, c.series)
			if got := firing(t, rule.Expr, hold, db, c.from-step); len(got) > 0 {
				t.Errorf("fires one minute early: %s", strings.Join(got, " "))
			}
			if got := firing(t, rule.Expr, hold, db, c.from); !slices.Equal(got, []string{c.labels}) {
				t.Errorf("after %s: %q, want %s", c.from, got, c.labels)
			}
			quiet := load(t, c.nothings)
			for at := hold; at <= hold+10*time.Minute; at += 5 * step {
				if got := firing(t, rule.Expr, hold, quiet, at); len(got) > 0 {
					t.Errorf("fires for series without a problem after %s: %s", at, strings.Join(got, " "))
				}
			}
		})
	}
	for name := range scenarios {
		if _, ok := all[name]; !ok {
			t.Errorf("there is a scenario for %s, but no rule", name)
		}
	}
}
