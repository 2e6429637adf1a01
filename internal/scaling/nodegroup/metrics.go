package nodegroup

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ksctl_nodegroup_requests_total",
		Help: "Requests of Cluster Autoscalers, by method and by the gRPC code that they were answered with.",
	}, []string{"method", "code"})
	took = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "ksctl_nodegroup_request_duration_seconds",
		Help:    "How long requests of Cluster Autoscalers took, by method.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .05, .1, .5, 1, 5, 10},
	}, []string{"method"})
	handshakes = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "ksctl_nodegroup_failed_handshakes_total",
		Help: "Connections that were refused, as without a certificate that is valid.",
	})
)

func init() { metrics.Registry.MustRegister(requests, took, handshakes) }
