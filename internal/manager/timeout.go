package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// answerWithin is how long the API server may take to begin an answer. Its own
// bound is as long, and it begins to answer a watch at once.
const answerWithin = time.Minute

// NoAnswerError says that a request was given up. It may have been carried out.
type NoAnswerError struct{ Within time.Duration }

func (e *NoAnswerError) Error() string {
	return fmt.Sprintf("the API server gave no answer within %s", e.Within)
}

// bound has requests given up that get no answer: a load balancer may take them
// and keep the connection alive for ever, and each would hold a worker.
func bound(cfg *rest.Config, within time.Duration) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &bounded{next: next, within: within} })
}

type bounded struct {
	next   http.RoundTripper
	within time.Duration
}

// WrappedRoundTripper lets client-go find the transport.
func (b *bounded) WrappedRoundTripper() http.RoundTripper { return b.next }

func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(b.within, func() { cancel(&NoAnswerError{Within: b.within}) })
	res, err := b.next.RoundTrip(r.WithContext(ctx))
	timer.Stop()
	if err != nil {
		var late *NoAnswerError
		if errors.As(context.Cause(ctx), &late) {
			err = late
		}
		cancel(nil)
		return nil, err
	}
	res.Body = &cancelling{ReadCloser: res.Body, cancel: cancel}
	return res, nil
}

// cancelling ends a request's context with its answer.
type cancelling struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (c *cancelling) Close() error {
	defer c.cancel(nil)
	return c.ReadCloser.Close()
}
