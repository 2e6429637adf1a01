package metrics

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ksctl/gitops/stacks"
)

// requests count what the controller receives, renders and sends, beside reconciles.
type requests struct {
	commitStatuses     *prometheus.CounterVec
	webhooks           *prometheus.CounterVec
	nodeGroups         *prometheus.CounterVec
	nodeGroupDurations *prometheus.HistogramVec
	handshakes         prometheus.Counter
	renders            *prometheus.HistogramVec
	droppedEvents      *prometheus.CounterVec
	waitingEvents      *prometheus.GaugeVec
}

func newRequests() requests {
	return requests{
		commitStatuses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ksctl_commit_statuses_total",
			Help: "Commit statuses to write, by type of the Git server and result.",
		}, []string{"type", "result"}),
		webhooks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ksctl_webhook_requests_total",
			Help: "Webhook requests, by type of the source's webhook and result. The type is empty for unauthenticated requests.",
		}, []string{"type", "result"}),
		nodeGroups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ksctl_nodegroup_requests_total",
			Help: "Requests of Cluster Autoscalers, by method and gRPC status code.",
		}, []string{"method", "code"}),
		nodeGroupDurations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "ksctl_nodegroup_request_duration_seconds",
			Help:    "Duration of requests of Cluster Autoscalers, by method.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .05, .1, .5, 1, 5, 10},
		}, []string{"method"}),
		handshakes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ksctl_nodegroup_failed_handshakes_total",
			Help: "Connections that failed the TLS handshake, such as those without a valid client certificate.",
		}),
		renders: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "ksctl_render_duration_seconds",
			Help:    "Duration of stack renders. Stacks that did not change are not rendered.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}, []string{"result"}),
		droppedEvents: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ksctl_events_dropped_total",
			Help: "Events dropped in favor of newer ones because the API server (kubernetes) or the receiver at --events-addr (receiver) accepted them too slowly.",
		}, []string{"sink"}),
		waitingEvents: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ksctl_events_queue_length",
			Help: "Events queued for the API server (kubernetes) or for the receiver at --events-addr (receiver).",
		}, []string{"sink"}),
	}
}

func (r *requests) collectors() []prometheus.Collector {
	return []prometheus.Collector{r.commitStatuses, r.webhooks, r.nodeGroups, r.nodeGroupDurations, r.handshakes, r.renders, r.droppedEvents, r.waitingEvents}
}

// CommitStatus counts a commit status, by the type of the Git server and the result.
func (r *Recorder) CommitStatus(server, result string) {
	r.requests.commitStatuses.WithLabelValues(server, result).Inc()
}

// WebhookRequest counts a request, by the type of the webhook, empty if unknown, and the result.
func (r *Recorder) WebhookRequest(webhook, result string) {
	r.requests.webhooks.WithLabelValues(webhook, result).Inc()
}

// NodeGroupRequest records a request of a Cluster Autoscaler, by method and gRPC code.
func (r *Recorder) NodeGroupRequest(method, code string, took time.Duration) {
	r.requests.nodeGroups.WithLabelValues(method, code).Inc()
	r.requests.nodeGroupDurations.WithLabelValues(method).Observe(took.Seconds())
}

// FailedHandshake counts a TLS handshake of a Cluster Autoscaler that failed.
func (r *Recorder) FailedHandshake() { r.requests.handshakes.Inc() }

// Rendered records a render, as stacks.RendererOptions.OnRender does.
func (r *Recorder) Rendered(_ stacks.Request, took time.Duration, err error) {
	result := "success"
	if _, stopped := errors.AsType[*stacks.StoppedError](err); stopped {
		result = "stopped"
	} else if err != nil {
		result = "failure"
	}
	r.requests.renders.WithLabelValues(result).Observe(took.Seconds())
}

// EventDropped counts an event that was dropped from the queue of a sink.
func (r *Recorder) EventDropped(sink string) { r.requests.droppedEvents.WithLabelValues(sink).Inc() }

// EventsWaiting sets the length of the queue of a sink.
func (r *Recorder) EventsWaiting(sink string, n int) {
	r.requests.waitingEvents.WithLabelValues(sink).Set(float64(n))
}
