package source

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var statuses = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "ksctl_commit_statuses_total",
	Help: "Commit statuses that were to be written, by what became of them.",
}, []string{"type", "result"})

func init() { metrics.Registry.MustRegister(statuses) }
