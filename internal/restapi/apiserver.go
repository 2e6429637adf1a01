package restapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

// maxResponseBytes limits a response of the API server. Only OpenAPI documents are that large.
const maxResponseBytes = 64 << 20

// jsonType and mergePatchType are media types.
const (
	jsonType       = "application/json"
	mergePatchType = "application/merge-patch+json"
)

// apiServer sends requests of callers to the API server.
type apiServer struct {
	base      *url.URL
	client    *http.Client
	userAgent string
}

// newAPIServer returns an apiServer. It uses the address and the certificate authority of cfg, and
// none of its credentials and transport wrappers.
func newAPIServer(cfg *rest.Config) (*apiServer, error) {
	anonymous := rest.AnonymousClientConfig(cfg)
	anonymous.Timeout = 0 // each request has a deadline
	base, _, err := rest.DefaultServerUrlFor(anonymous)
	if err != nil {
		return nil, fmt.Errorf("address of the API server: %w", err)
	}
	client, err := rest.HTTPClientFor(anonymous)
	if err != nil {
		return nil, fmt.Errorf("client for the API server: %w", err)
	}
	// The token is sent to the API server only.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &apiServer{base: base, client: client, userAgent: "ksctl-gitops-rest"}, nil
}

// caller sends requests with the token of a caller.
type caller struct {
	server *apiServer
	token  string
	// user is the name of the user of the token.
	user string
}

// apiRequest is a request to the API server.
type apiRequest struct {
	method, path string
	query        url.Values
	// contentType is that of body; empty for JSON. body is nil, []byte, or a value to encode.
	contentType string
	body        any
}

// do sends a request and returns the answer, whatever its code.
func (c *caller) do(ctx context.Context, r apiRequest) (*answer, error) {
	var content []byte
	switch body := r.body.(type) {
	case nil:
	case []byte:
		content = body
	default:
		var err error
		if content, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("encoding a request to the API server: %w", err)
		}
	}
	target := c.server.base.JoinPath(r.path)
	target.RawQuery = r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, target.String(), bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("request to the API server: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Accept", jsonType)
	req.Header.Set("User-Agent", c.server.userAgent)
	if r.body != nil {
		req.Header.Set("Content-Type", jsonType)
		if r.contentType != "" {
			req.Header.Set("Content-Type", r.contentType)
		}
	}
	resp, err := c.server.client.Do(req)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() { _ = resp.Body.Close() }()
	out := &answer{code: resp.StatusCode, header: http.Header{}}
	// The other headers are about the connection or the API server.
	for _, name := range []string{"Content-Type", "Warning", "Retry-After", "Audit-Id"} {
		if values := resp.Header.Values(name); len(values) > 0 {
			out.header[name] = values
		}
	}
	if out.body, err = io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes)); err != nil {
		return nil, unavailable(err)
	}
	return out, nil
}

// unavailable returns the error for a request without a response.
func unavailable(err error) error {
	if isContextError(err) {
		return err
	}
	return newError(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
		"the API server does not respond: repeat the request later: %s", err)
}

// create sends an object without a name, such as a review, and decodes the response into it.
func (c *caller) create(ctx context.Context, path string, object any) error {
	a, err := c.do(ctx, apiRequest{method: http.MethodPost, path: path, body: object})
	if err != nil {
		return err
	}
	if !a.succeeded() {
		return &answerError{a}
	}
	if err := json.Unmarshal(a.body, object); err != nil {
		return fmt.Errorf("decoding the response of the API server: %w", err)
	}
	return nil
}

// get returns an object; nil if it does not exist. Codes other than 200 and 404 are an
// *answerError.
func (c *caller) get(ctx context.Context, path string) (*unstructured.Unstructured, *answer, error) {
	a, err := c.do(ctx, apiRequest{method: http.MethodGet, path: path})
	switch {
	case err != nil:
		return nil, nil, err
	case a.code == http.StatusNotFound:
		return nil, a, nil
	case !a.succeeded():
		return nil, nil, &answerError{a}
	}
	object, err := a.object()
	return object, a, err
}

// object decodes the body.
func (a *answer) object() (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(a.body); err != nil {
		return nil, fmt.Errorf("decoding the response of the API server: %w", err)
	}
	return u, nil
}
