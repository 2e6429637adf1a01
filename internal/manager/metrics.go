package manager

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/ksctl/gitops/stacks"
)

var renders = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name:    "ksctl_render_duration_seconds",
	Help:    "How long stacks took to render. Unchanged ones are not rendered.",
	Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
}, []string{"result"})

var droppedEvents = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "ksctl_events_dropped_total",
	Help: "Events that gave way to newer ones, because the API server (kubernetes) or the one of --events-addr (receiver) took them too slowly.",
}, []string{"to"})

var waitingEvents = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "ksctl_events_waiting",
	Help: "Events that wait to be taken by the API server (kubernetes) or the one of --events-addr (receiver).",
}, []string{"to"})

func init() { metrics.Registry.MustRegister(renders, droppedEvents, waitingEvents) }

func observeRender(_ stacks.Request, took time.Duration, err error) {
	result := "success"
	if _, stopped := errors.AsType[*stacks.StoppedError](err); stopped {
		result = "stopped"
	} else if err != nil {
		result = "failure"
	}
	renders.WithLabelValues(result).Observe(took.Seconds())
}
