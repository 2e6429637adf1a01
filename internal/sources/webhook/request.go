package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// responses are the HTTP responses by result. Senders show them in their delivery logs.
var responses = map[result]struct {
	code int
	text string
}{
	accepted: {http.StatusAccepted, "the source is being reconciled"},
	coalesced: {http.StatusAccepted,
		"the source will be reconciled in a moment: its pushes exceed the rate limit, " +
			"or the API server does not respond"},
	duplicate: {http.StatusOK, "duplicate of a request that was received less than a minute ago"},
	ignored:   {http.StatusOK, "nothing to do: not a push, or a push that does not affect the source"},
	// The same response for both cases, so that an unauthenticated sender learns nothing.
	rejected: {http.StatusNotFound,
		"no source receives pushes at this path, or the secret of the sender is not its token"},
	invalid:    {http.StatusBadRequest, "the request is not a valid push"},
	tooLarge:   {http.StatusRequestEntityTooLarge, "the body exceeds --webhook-max-bytes"},
	incomplete: {http.StatusBadRequest, "the body is incomplete"},
	busy:       {http.StatusServiceUnavailable, "too many concurrent requests: send the request again"},
	failed: {http.StatusServiceUnavailable,
		"a request to the API server failed: send the request again, and see the log of the controller"},
}

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/" && (req.Method == http.MethodGet || req.Method == http.MethodHead) {
		_, _ = fmt.Fprintln(w, "webhook receiver") // for health checks of load balancers
		return
	}
	if req.Method != http.MethodPost {
		w.Header().Set("Connection", "close")
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "only POST", http.StatusMethodNotAllowed)
		return
	}
	kind, outcome, err := r.receive(w, req)
	r.Count(string(kind), string(outcome))
	response := responses[outcome]
	if response.code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	if response.code >= http.StatusBadRequest {
		w.Header().Set("Connection", "close") // otherwise the server first reads the rest of the body
	}
	text := response.text
	if err != nil {
		text += ": " + err.Error() // only set for authenticated senders
	}
	http.Error(w, text, response.code)
}

// receive processes a request. The type is the webhook type of the source; it is empty until the
// sender is authenticated. The error is sent to the sender.
func (r *Receiver) receive(w http.ResponseWriter, req *http.Request) (appsv1.WebhookType, result, error) {
	path := req.URL.Path
	ctx, cancel := context.WithTimeout(req.Context(), apiTimeout)
	candidates, err := r.sourcesAt(ctx, path)
	cancel()
	switch {
	case err != nil:
		r.logRateLimited(err, "failed to list the sources of a webhook path")
		return "", failed, nil
	case len(candidates) == 0: // requests at unknown paths cost no more than this
		return "", rejected, nil
	case !r.slots.acquire(path):
		return "", busy, nil
	}
	defer r.slots.release(path)
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, r.MaxBytes))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return "", tooLarge, nil
	}
	if err != nil {
		return "", incomplete, nil
	}
	source, token, err := r.matchSource(req.Context(), candidates, path)
	if err != nil {
		r.logRateLimited(err, "failed to read the token of a webhook")
		return "", failed, nil
	}
	hook := appsv1.SourceWebhook{}
	if source != nil {
		hook = *source.Spec.Webhook
	}
	// This check also runs without a source, so that it takes the same time.
	if !isAuthentic(hook.Type, token, req.Header, body) {
		if source != nil && r.logLimiter.AllowN(r.Clock.Now(), 1) {
			r.Log.Info("rejected a request: its signature or token does not match the token of the source", "source",
				client.ObjectKeyFromObject(source), "type", hook.Type)
		}
		return "", rejected, nil
	}
	outcome, err := r.handlePush(source, req.Header, body)
	return hook.Type, outcome, err
}

// logRateLimited logs an error that unauthenticated senders can cause.
func (r *Receiver) logRateLimited(err error, message string) {
	if r.logLimiter.AllowN(r.Clock.Now(), 1) {
		r.Log.Error(err, message)
	}
}

// handlePush processes an authenticated request.
func (r *Receiver) handlePush(source *appsv1.KsctlSource, header http.Header, body []byte) (result, error) {
	key, kind := client.ObjectKeyFromObject(source), source.Spec.Webhook.Type
	p, err := parse(kind, header, body)
	log := r.Log.WithValues("source", key, "type", kind)
	switch {
	case errors.Is(err, errNoPush):
		log.Info("ignored a request: it is not a push")
		return ignored, nil
	case err != nil:
		log.Info("received an invalid push", "reason", fmt.Sprintf("%.200q", err.Error()))
		return invalid, err
	case source.Spec.Suspend:
		log.Info("ignored a push: the source is suspended")
		return ignored, nil
	case !affects(source, p):
		log.Info("ignored a push: the source uses another repository, branch or tag", "push", describePush(p),
			"expected", describeSource(source))
		return ignored, nil
	}
	outcome := r.throttle.admit(source.UID, deliveryID(kind, header, body), func(ctx context.Context) error {
		return r.requestReconcile(ctx, key)
	})
	if outcome == duplicate {
		return outcome, nil
	}
	log.Info("received a push", "ref", fmt.Sprintf("%.100q", p.ref), "result", outcome)
	return outcome, nil
}

// requestReconcile requests a reconcile of a source by its annotation, as users do.
func (r *Receiver) requestReconcile(ctx context.Context, key types.NamespacedName) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{
		appsv1.RequestedAtAnnotation: r.Clock.Now().UTC().Format(time.RFC3339Nano)}}})
	if err != nil {
		return err
	}
	o := &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	err = r.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(r.FieldOwner))
	if err = client.IgnoreNotFound(err); err != nil {
		r.Log.Error(err, "failed to request a reconcile for a push", "source", key)
	}
	return err
}
