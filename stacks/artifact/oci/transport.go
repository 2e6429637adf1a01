package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/ksctl/gitops/stacks/artifact"
)

const (
	// metadataBytes bounds one response that is not a blob: a manifest, a page of tags or
	// a token.
	metadataBytes = 4 << 20
	// sessionBytes bounds the sum of those responses in one session.
	sessionBytes = 32 << 20
	// sessionRequests bounds the requests of one session: each page of tags is a request.
	sessionRequests = 1000
	maxRedirects    = 5
)

// errPlainHTTP is the error of a request that would be sent unencrypted.
var errPlainHTTP = errors.New("plain http is not allowed")

// limitedTransport bounds the requests and received bytes of one session with a registry,
// and enforces https. Every request passes through it, including those for redirects and
// tokens.
type limitedTransport struct {
	next           http.RoundTripper
	allowPlainHTTP bool // plain http is allowed
	bytesLeft      atomic.Int64
	requests       atomic.Int64
}

func newLimitedTransport(next http.RoundTripper, allowPlainHTTP bool) *limitedTransport {
	b := &limitedTransport{next: next, allowPlainHTTP: allowPlainHTTP}
	b.bytesLeft.Store(sessionBytes)
	return b
}

// RoundTrip implements http.RoundTripper.
func (b *limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := b.check(r); err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	resp, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body := &limitedBody{ReadCloser: resp.Body}
	if limit, ok := r.Context().Value(blobLimitKey{}).(int64); ok {
		body.bytesLeft = limit
	} else {
		body.bytesLeft, body.sessionBytesLeft = metadataBytes, &b.bytesLeft
	}
	resp.Body = body
	return resp, nil
}

// check refuses requests that a registry must not cause.
func (b *limitedTransport) check(r *http.Request) error {
	if r.URL.Scheme != "https" && !b.allowPlainHTTP {
		return errPlainHTTP
	}
	if b.requests.Add(1) > sessionRequests {
		return &artifact.Error{Reason: artifact.TooLarge,
			Message: fmt.Sprintf("the session needs more than %d requests to the registry", sessionRequests)}
	}
	hops := 0
	for resp := r.Response; resp != nil && resp.Request != nil; resp = resp.Request.Response {
		if hops++; hops > maxRedirects {
			return &artifact.Error{Reason: artifact.RefusedAddress,
				Message: fmt.Sprintf("more than %d redirects", maxRedirects)}
		}
		if resp.Request.URL.Scheme == "https" && r.URL.Scheme != "https" {
			return &artifact.Error{Reason: artifact.RefusedAddress, Message: "refusing a redirect from https to http"}
		}
	}
	return nil
}

type blobLimitKey struct{}

// withBlobLimit sets the size limit of responses to requests with this context. It replaces
// the limit for metadata.
func withBlobLimit(ctx context.Context, limit int64) context.Context {
	return context.WithValue(ctx, blobLimitKey{}, limit)
}

type limitedBody struct {
	io.ReadCloser
	bytesLeft        int64
	sessionBytesLeft *atomic.Int64
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	// One more byte shows whether the response is longer than allowed or exactly as long.
	if int64(len(p)) > b.bytesLeft+1 {
		p = p[:b.bytesLeft+1]
	}
	n, err := b.ReadCloser.Read(p)
	b.bytesLeft -= int64(n)
	if b.bytesLeft < 0 || (b.sessionBytesLeft != nil && b.sessionBytesLeft.Add(-int64(n)) < 0) {
		return 0, &artifact.Error{Reason: artifact.TooLarge,
			Message: "the response of the registry is larger than allowed"}
	}
	return n, err
}
