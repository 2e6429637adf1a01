package metrics

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ksctl/gitops/stacks"
)

// addRequestMetrics sets the metrics of what the controller receives, renders and sends.
func (r *Recorder) addRequestMetrics() {
	r.commitStatuses = newCounters("ksctl_commit_statuses_total",
		"Commit statuses to write, by type of the Git server and result.", "type", "result")
	r.webhooks = newCounters("ksctl_webhook_requests_total",
		"Webhook requests, by type of the source's webhook and result. The type is empty for unauthenticated requests.",
		"type", "result")
	r.nodeGroups = newCounters("ksctl_nodegroup_requests_total",
		"Requests of Cluster Autoscalers, by method and gRPC status code.", "method", "code")
	r.nodeGroupDurations = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "ksctl_nodegroup_request_duration_seconds",
		Help:    "Duration of requests of Cluster Autoscalers, by method.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .05, .1, .5, 1, 5, 10},
	}, []string{"method"})
	r.restRequests = newCounters("ksctl_rest_requests_total",
		"Requests to the REST endpoint, by method and HTTP status code. Methods that it does not support are other.",
		"method", "code")
	r.restDurations = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "ksctl_rest_request_duration_seconds",
		Help: "Duration of requests to the REST endpoint, by method, without the time that they wait for an object " +
			"to be Ready.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120},
	}, []string{"method"})
	r.handshakes = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "ksctl_nodegroup_failed_handshakes_total",
		Help: "Connections that failed the TLS handshake, such as those without a valid client certificate.",
	})
	r.renders = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "ksctl_render_duration_seconds",
		Help:    "Duration of stack renders. Stacks that did not change are not rendered.",
		Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
	}, []string{"result"})
	r.droppedEvents = newCounters("ksctl_events_dropped_total",
		"Events dropped in favor of newer ones because the API server (kubernetes) or the receiver at --events-addr "+
			"(receiver) accepted them too slowly.", "sink")
	r.waitingEvents = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ksctl_events_queue_length",
		Help: "Events queued for the API server (kubernetes) or for the receiver at --events-addr (receiver).",
	}, []string{"sink"})
}

// CommitStatus counts a commit status, by the type of the Git server and the result.
func (r *Recorder) CommitStatus(server, result string) {
	r.commitStatuses.WithLabelValues(server, result).Inc()
}

// WebhookRequest counts a request, by the type of the webhook, empty if unknown, and the result.
func (r *Recorder) WebhookRequest(webhook, result string) {
	r.webhooks.WithLabelValues(webhook, result).Inc()
}

// NodeGroupRequest records a request of a Cluster Autoscaler, by method and gRPC code.
func (r *Recorder) NodeGroupRequest(method, code string, took time.Duration) {
	r.nodeGroups.WithLabelValues(method, code).Inc()
	r.nodeGroupDurations.WithLabelValues(method).Observe(took.Seconds())
}

// RESTRequest records a request to the REST endpoint, by method and HTTP code.
func (r *Recorder) RESTRequest(method string, code int, took time.Duration) {
	r.restRequests.WithLabelValues(method, strconv.Itoa(code)).Inc()
	r.restDurations.WithLabelValues(method).Observe(took.Seconds())
}

// FailedHandshake counts a TLS handshake of a Cluster Autoscaler that failed.
func (r *Recorder) FailedHandshake() { r.handshakes.Inc() }

// Rendered records a render, as stacks.RendererOptions.OnRender does.
func (r *Recorder) Rendered(_ stacks.Request, took time.Duration, err error) {
	result := "success"
	if _, stopped := errors.AsType[*stacks.StoppedError](err); stopped {
		result = "stopped"
	} else if err != nil {
		result = "failure"
	}
	r.renders.WithLabelValues(result).Observe(took.Seconds())
}

// EventDropped counts an event that was dropped from the queue of a sink.
func (r *Recorder) EventDropped(sink string) { r.droppedEvents.WithLabelValues(sink).Inc() }

// EventsWaiting sets the length of the queue of a sink.
func (r *Recorder) EventsWaiting(sink string, n int) {
	r.waitingEvents.WithLabelValues(sink).Set(float64(n))
}
