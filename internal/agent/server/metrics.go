package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// Metrics of an agent.
type Metrics struct {
	operations *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	running    *prometheus.GaugeVec
	evictions  *prometheus.CounterVec
	calls      *prometheus.CounterVec
}

// NewMetrics returns metrics that count from zero.
func NewMetrics() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &Metrics{
		operations: counter("ksctl_agent_operations_total", "Operations that ended, by their direction (up or down) and how: SUCCEEDED, or the failure.", "cluster", "direction", "result"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "ksctl_agent_operation_duration_seconds",
			Help: "How long operations took from when they were begun.", Buckets: []float64{1, 5, 15, 30, 60, 120, 300, 600, 1200, 2400}}, []string{"cluster", "direction"}),
		running:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "ksctl_agent_operation_running", Help: "1 while an operation is at work."}, []string{"cluster"}),
		evictions: counter("ksctl_agent_evictions_refused_total", "Evictions that were refused, mostly by a disruption budget, and tried again.", "cluster"),
		calls:     counter("ksctl_agent_calls_total", "Calls that were answered, by their method and gRPC code.", "method", "code"),
	}
}

// Collectors are what a registry is given.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.operations, m.seconds, m.running, m.evictions, m.calls}
}

func (m *Metrics) begun(cluster string) { m.running.WithLabelValues(cluster).Set(1) }
func (m *Metrics) rests(cluster string) { m.running.WithLabelValues(cluster).Set(0) }
func (m *Metrics) held(cluster string)  { m.evictions.WithLabelValues(cluster).Inc() }

func (m *Metrics) ended(cluster string, r record) {
	result := r.State
	if r.Failure != "" {
		result = r.Failure
	}
	m.operations.WithLabelValues(cluster, r.direction(), result).Inc()
	m.seconds.WithLabelValues(cluster, r.direction()).Observe(r.Ended.Sub(r.Started).Round(time.Millisecond).Seconds())
}

func (m *Metrics) called(method string, code codes.Code) {
	m.calls.WithLabelValues(method, code.String()).Inc()
}
