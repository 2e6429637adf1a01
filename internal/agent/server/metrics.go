package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the Prometheus metrics of an agent.
type Metrics struct {
	operations       *prometheus.CounterVec
	durations        *prometheus.HistogramVec
	running          *prometheus.GaugeVec
	refusedEvictions *prometheus.CounterVec
	calls            *prometheus.CounterVec
}

// NewMetrics returns metrics that count from zero.
func NewMetrics() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &Metrics{
		operations: counter("ksctl_agent_operations_total",
			"Operations that ended, by direction (up or down) and result: SUCCEEDED, or the failure.", "cluster",
			"direction", "result"),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "ksctl_agent_operation_duration_seconds",
			Help:    "Duration of operations from their start to their end.",
			Buckets: []float64{1, 5, 15, 30, 60, 120, 300, 600, 1200, 2400}}, []string{"cluster", "direction"}),
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "ksctl_agent_operation_running",
			Help: "1 while an operation is running."}, []string{"cluster"}),
		refusedEvictions: counter("ksctl_agent_evictions_refused_total",
			"Evictions that were refused, mostly by a PodDisruptionBudget, and retried.", "cluster"),
		calls: counter("ksctl_agent_calls_total", "gRPC calls that were handled, by method and code.",
			"method", "code"),
	}
}

// Collectors returns the metrics for registration.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.operations, m.durations, m.running, m.refusedEvictions, m.calls}
}

func (m *Metrics) operationEnded(cluster string, r record) {
	result := r.State
	if r.Failure != "" {
		result = r.Failure
	}
	m.operations.WithLabelValues(cluster, r.direction(), result).Inc()
	m.durations.WithLabelValues(cluster, r.direction()).
		Observe(r.Ended.Sub(r.Started).Round(time.Millisecond).Seconds())
}
