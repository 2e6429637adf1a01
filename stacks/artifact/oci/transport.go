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
	// metadataBytes is the largest answer that is no blob: a manifest, a page of
	// tags, a token.
	metadataBytes = 4 << 20
	// sessionBytes is what all of them together may have in one session.
	sessionBytes = 32 << 20
	// sessionRequests is how often a session may ask: each page of tags is a request.
	sessionRequests = 1000
	maxRedirects    = 5
)

// errPlainHTTP is a request that would go in the clear.
var errPlainHTTP = errors.New("plain http is not allowed")

// bounded bounds what one session with a registry receives, and keeps it
// encrypted. It sees every request: the ones of redirects and of tokens, too.
type bounded struct {
	next  http.RoundTripper
	plain bool // plain http is allowed
	left  atomic.Int64
	asked atomic.Int64
}

func newBounded(next http.RoundTripper, plain bool) *bounded {
	b := &bounded{next: next, plain: plain}
	b.left.Store(sessionBytes)
	return b
}

// RoundTrip implements http.RoundTripper.
func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
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
	body := &boundedBody{ReadCloser: resp.Body}
	if limit, ok := r.Context().Value(blobKey{}).(int64); ok {
		body.left = limit
	} else {
		body.left, body.session = metadataBytes, &b.left
	}
	resp.Body = body
	return resp, nil
}

// check refuses what a registry must not lead to.
func (b *bounded) check(r *http.Request) error {
	if r.URL.Scheme != "https" && !b.plain {
		return errPlainHTTP
	}
	if b.asked.Add(1) > sessionRequests {
		return &artifact.Error{Reason: artifact.TooLarge, Message: fmt.Sprintf("the registry needs more than %d requests", sessionRequests)}
	}
	hops := 0
	for resp := r.Response; resp != nil && resp.Request != nil; resp = resp.Request.Response {
		if hops++; hops > maxRedirects {
			return &artifact.Error{Reason: artifact.RefusedAddress, Message: fmt.Sprintf("more than %d redirects", maxRedirects)}
		}
		if resp.Request.URL.Scheme == "https" && r.URL.Scheme != "https" {
			return &artifact.Error{Reason: artifact.RefusedAddress, Message: "a redirect from https to http"}
		}
	}
	return nil
}

type blobKey struct{}

// forBlob lets the answers to requests with this context have more bytes than
// metadata.
func forBlob(ctx context.Context, limit int64) context.Context {
	return context.WithValue(ctx, blobKey{}, limit)
}

type boundedBody struct {
	io.ReadCloser
	left    int64
	session *atomic.Int64
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	// One byte more tells "exactly as long as allowed" from "longer".
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if b.left < 0 || (b.session != nil && b.session.Add(-int64(n)) < 0) {
		return 0, &artifact.Error{Reason: artifact.TooLarge, Message: "the registry's answer is larger than allowed"}
	}
	return n, err
}
