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

// responseHeaderTimeout is how long the API server may take to send response headers. The server's
// own request timeout is as long, and it sends the headers of a watch at once.
const responseHeaderTimeout = time.Minute

// ResponseTimeoutError is returned for a request whose response headers did not arrive in time. The
// API server may still have executed the request.
type ResponseTimeoutError struct{ After time.Duration }

func (e *ResponseTimeoutError) Error() string {
	return fmt.Sprintf("the API server sent no response within %s; the request may have been executed", e.After)
}

// addResponseTimeout cancels requests that receive no response in time. A load balancer may accept
// a request and keep the connection alive forever, and each such request would block a worker.
func addResponseTimeout(cfg *rest.Config, timeout time.Duration) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &timeoutTransport{next: next, timeout: timeout} })
}

// timeoutTransport cancels requests whose response headers do not arrive within timeout. It does
// not bound the body, so watches can stay open.
type timeoutTransport struct {
	next    http.RoundTripper
	timeout time.Duration
}

// WrappedRoundTripper implements the interface by which client-go unwraps transports.
func (b *timeoutTransport) WrappedRoundTripper() http.RoundTripper { return b.next }

func (b *timeoutTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(b.timeout, func() { cancel(&ResponseTimeoutError{After: b.timeout}) })
	res, err := b.next.RoundTrip(r.WithContext(ctx))
	timer.Stop()
	if err != nil {
		if timeoutErr, ok := errors.AsType[*ResponseTimeoutError](context.Cause(ctx)); ok {
			err = timeoutErr
		}
		cancel(nil)
		return nil, err
	}
	res.Body = &cancelingBody{ReadCloser: res.Body, cancel: cancel}
	return res, nil
}

// cancelingBody cancels the context of a request when the response body is closed.
type cancelingBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (c *cancelingBody) Close() error {
	defer c.cancel(nil)
	return c.ReadCloser.Close()
}
