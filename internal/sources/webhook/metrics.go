package webhook

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// result is what became of a request.
type result string

const (
	// accepted: the source is being looked at.
	accepted result = "accepted"
	// gathered: it will be, together with what else comes until then.
	gathered result = "gathered"
	// seen: the same request came a moment ago.
	seen result = "seen"
	// ignored: nothing that the source takes was pushed.
	ignored result = "ignored"
	// refused: there is no source at the path, or the sender does not know its token.
	refused result = "refused"
	// invalid: the sender knows the token, and the body can't be read.
	invalid result = "invalid"
	// tooLarge, unread and busy: it was not looked into; failed: the API server does
	// not answer, or does not take it.
	tooLarge result = "too_large"
	unread   result = "unread"
	busy     result = "busy"
	failed   result = "failed"
)

var requests = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "ksctl_webhook_requests_total",
	Help: "Requests that told of a push, by what became of them. Without a type: those of nobody who is known.",
}, []string{"type", "result"})

func init() { metrics.Registry.MustRegister(requests) }

func count(kind appsv1.WebhookType, r result) {
	requests.WithLabelValues(string(kind), string(r)).Inc()
}
