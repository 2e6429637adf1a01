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

// answers are what the sender's log of deliveries shows.
var answers = map[result]struct {
	code int
	text string
}{
	accepted: {http.StatusAccepted, "the source is being looked at"},
	gathered: {http.StatusAccepted, "the source will be looked at in a moment, for it was looked at often just now"},
	seen:     {http.StatusOK, "this request came a moment ago"},
	ignored:  {http.StatusOK, "nothing to do: no push, or none that the source takes"},
	// One answer for both: a stranger learns nothing.
	refused:  {http.StatusNotFound, "no source receives pushes here, or the secret is another one than its token"},
	invalid:  {http.StatusBadRequest, "this can't be read as a push"},
	tooLarge: {http.StatusRequestEntityTooLarge, "the body is larger than --webhook-max-bytes"},
	unread:   {http.StatusBadRequest, "the body did not come whole"},
	busy:     {http.StatusServiceUnavailable, "too many requests at a time: send it again"},
	failed:   {http.StatusServiceUnavailable, "the API server does not answer, or does not take it: send it again, and see the log of the controller"},
}

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/" && (req.Method == http.MethodGet || req.Method == http.MethodHead) {
		_, _ = fmt.Fprintln(w, "pushes are received here") // what a load balancer asks for
		return
	}
	if req.Method != http.MethodPost {
		w.Header().Set("Connection", "close")
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "only POST", http.StatusMethodNotAllowed)
		return
	}
	kind, became, err := r.receive(w, req)
	r.Count(string(kind), string(became))
	answer := answers[became]
	if answer.code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	if answer.code >= http.StatusBadRequest {
		w.Header().Set("Connection", "close") // or what is left of the body is waited for first
	}
	text := answer.text
	if err != nil {
		text += ": " + err.Error() // only to who knows the token
	}
	http.Error(w, text, answer.code)
}

// receive says what became of a request. The type is that of the source, once the
// sender is known; an error is for the sender's eyes.
func (r *Receiver) receive(w http.ResponseWriter, req *http.Request) (appsv1.WebhookType, result, error) {
	path := req.URL.Path
	ctx, cancel := context.WithTimeout(req.Context(), askWithin)
	candidates, err := r.at(ctx, path)
	cancel()
	switch {
	case err != nil:
		r.complain(err, "the sources of webhooks can't be read")
		return "", failed, nil
	case len(candidates) == 0: // strangers cost no more than this
		return "", refused, nil
	case !r.slots.take(path):
		return "", busy, nil
	}
	defer r.slots.give(path)
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, r.MaxBytes))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return "", tooLarge, nil
	}
	if err != nil {
		return "", unread, nil
	}
	source, token, err := r.find(req.Context(), candidates, path)
	if err != nil {
		r.complain(err, "the token of a webhook can't be read")
		return "", failed, nil
	}
	hook := appsv1.SourceWebhook{}
	if source != nil {
		hook = *source.Spec.Webhook
	}
	// Also where the path is another token's, and takes as long then.
	if !authentic(hook.Type, token, req.Header, body) {
		if source != nil && r.refusals.AllowN(r.Clock.Now(), 1) {
			r.Log.Info("a request was refused: it is not vouched for by the token of the source", "source", client.ObjectKeyFromObject(source), "type", hook.Type)
		}
		return "", refused, nil
	}
	became, err := r.handle(source, req.Header, body)
	return hook.Type, became, err
}

// complain logs what strangers can cause, and not too often.
func (r *Receiver) complain(err error, what string) {
	if r.refusals.AllowN(r.Clock.Now(), 1) {
		r.Log.Error(err, what)
	}
}

// handle does what an authentic request asks for.
func (r *Receiver) handle(source *appsv1.KsctlSource, header http.Header, body []byte) (result, error) {
	key, kind := client.ObjectKeyFromObject(source), source.Spec.Webhook.Type
	p, err := parse(kind, header, body)
	log := r.Log.WithValues("source", key, "type", kind)
	switch {
	case errors.Is(err, errNoPush):
		log.Info("a request was ignored: it tells of no push")
		return ignored, nil
	case err != nil:
		log.Info("a request can't be read as a push", "reason", fmt.Sprintf("%.200q", err.Error()))
		return invalid, err
	case source.Spec.Suspend:
		log.Info("a push was ignored: the source is suspended")
		return ignored, nil
	case !wants(source, p):
		log.Info("a push was ignored: the source takes another repository, branch or tag", "told", tells(p), "takes", takes(source))
		return ignored, nil
	}
	became := r.gate.pass(source.UID, identity(kind, header, body), func(ctx context.Context) error { return r.request(ctx, key) })
	if became == seen {
		return became, nil
	}
	r.Log.Info("a push was received", "source", key, "type", kind, "ref", fmt.Sprintf("%.100q", p.ref), "result", became)
	return became, nil
}

// request has a source looked at, as a person does.
func (r *Receiver) request(ctx context.Context, key types.NamespacedName) error {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{
		appsv1.RequestedAtAnnotation: r.Clock.Now().UTC().Format(time.RFC3339Nano)}}})
	if err != nil {
		return err
	}
	o := &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	err = r.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(r.FieldOwner))
	if err = client.IgnoreNotFound(err); err != nil {
		r.Log.Error(err, "a push is not handed on yet", "source", key)
	}
	return err
}
