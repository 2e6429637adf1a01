package commitstatus

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks/artifact"
)

const (
	// requestTimeout bounds the request for one status.
	requestTimeout = 15 * time.Second
	// maxResponseBytes of a response are read, and maxQuotedLength characters of it are quoted.
	maxResponseBytes = 16 << 10
	maxQuotedLength  = 200
	// maxRetryAfter bounds the delay that a server can request.
	maxRetryAfter = 24 * time.Hour
	maxRedirects  = 3
)

// Result is the result of posting a status.
type Result string

// Results.
const (
	// Written: the server accepted the status.
	Written Result = "written"
	// Refused: the server rejects requests until a user fixes the configuration or the token.
	Refused Result = "refused"
	// Invalid: the server will never accept this status, but it may accept others.
	Invalid Result = "invalid"
	// Limited: the server's rate limit is exceeded.
	Limited Result = "limited"
	// Failed: the server can't be reached, or has an internal error.
	Failed Result = "failed"
)

// Error means that a status was not posted. Its text never contains the token.
type Error struct {
	Result Result
	// Message describes the problem and the remedy.
	Message string
	// RetryAfter is the delay that the server requests; 0 if it requests none.
	RetryAfter time.Duration
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Access is the client and the credentials for the API of a server.
type Access struct {
	// HTTP is the client. It must reject dangerous addresses, because users choose the address.
	HTTP  *http.Client
	Token string
	// Secrets are further secrets that errors must not contain.
	Secrets []string
	// TokenSource is where the token comes from, in messages to users.
	TokenSource string
}

// Post posts a status. It sends one request, and follows redirects only to other paths of the same
// server. The error is an *Error.
func (t Target) Post(ctx context.Context, a Access, s Status, now time.Time) error {
	address, body, err := t.buildRequest(s)
	if err != nil {
		return &Error{Result: Invalid, Message: err.Error()}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, fmt.Errorf("no response within %s", requestTimeout))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return &Error{Result: Refused, Message: t.String() + " is not a valid URL: correct spec.commitStatus.address"}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "ksctl-gitops")
	t.setHeaders(req.Header, a.Token)
	client := *a.HTTP
	client.CheckRedirect = sameServerOnly
	resp, err := client.Do(req)
	if err != nil {
		return t.requestError(ctx, err, a)
	}
	defer func() { _ = resp.Body.Close() }()
	// a read error only shortens the quoted message
	response, _ := io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes))
	return t.checkResponse(resp, serverMessage(response, a), s, a, now)
}

// sameServerOnly follows a redirect only to the same server with the same method, so that the token
// is never sent elsewhere.
func sameServerOnly(r *http.Request, via []*http.Request) error {
	first := via[0]
	if r.Method != first.Method || r.URL.Scheme != first.URL.Scheme || r.URL.Host != first.URL.Host ||
		len(via) > maxRedirects {
		return http.ErrUseLastResponse
	}
	return nil
}

// checkResponse maps a response to an error; nil means that the status was accepted.
func (t Target) checkResponse(resp *http.Response, quoted string, s Status, a Access, now time.Time) error {
	code := resp.StatusCode
	prefix := fmt.Sprintf("%s responded with %d %s%s", t, code, http.StatusText(code), quoted)
	fail := func(r Result, do string) error {
		return &Error{Result: r, Message: prefix + ": " + do}
	}
	delay := retryAfter(resp.Header, now)
	switch {
	case code == http.StatusCreated:
		return nil
	case code == http.StatusBadRequest && s.State == Pending && t.kind == appsv1.GitLabStatus:
		// GitLab rejects a transition from pending to pending:
		// https://gitlab.com/gitlab-org/gitlab-foss/-/issues/25807
		return nil
	case code == http.StatusTooManyRequests, delay > 0 && code == http.StatusForbidden:
		return &Error{Result: Limited, Message: prefix, RetryAfter: delay}
	case code == http.StatusUnauthorized:
		return fail(Refused, "put a valid token into "+a.TokenSource+"; it needs "+t.RequiredPermissions())
	case code == http.StatusForbidden:
		return fail(Refused, "the token in "+a.TokenSource+" needs "+t.RequiredPermissions())
	case code == http.StatusNotFound:
		return fail(Refused, "the repository or commit does not exist, or the token has no access to it: correct "+
			"spec.commitStatus.address, or give the token in "+a.TokenSource+" "+t.RequiredPermissions())
	case code == http.StatusBadRequest, code == http.StatusUnprocessableEntity:
		return fail(Invalid,
			"this status is not retried; if the commit is not in this repository, correct spec.commitStatus.address")
	case code/100 == 3:
		return fail(Refused,
			"the token is not sent to the target of the redirect: set spec.commitStatus.address to the URL of the "+
				"repository")
	case code/100 == 5, code == http.StatusConflict, code == http.StatusRequestTimeout:
		return &Error{Result: Failed, Message: prefix, RetryAfter: delay}
	}
	return fail(Refused, "this is not the API of "+string(t.kind)+": correct spec.commitStatus")
}

// requestError maps an error of the HTTP client to an *Error.
func (t Target) requestError(ctx context.Context, err error, a Access) error {
	if ctx.Err() != nil {
		return &Error{Result: Failed, Message: t.String() + ": " + context.Cause(ctx).Error()}
	}
	if refused, ok := artifact.AsRefusedAddress(err); ok {
		return &Error{Result: Refused, Message: t.String() + ": connection not allowed: " + refused.Error()}
	}
	if bad, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return &Error{Result: Refused,
			Message: fmt.Sprintf("the certificate of %s is not trusted: if its authority is private, put the "+
				"authority into ca.crt of %s: %v", t, a.TokenSource, bad.Err)}
	}
	return &Error{Result: Failed, Message: t.String() + ": request failed: " +
		a.redact(fmt.Sprintf("%.300s", a.redact(artifact.WithoutURL(err).Error())))}
}

// retryAfter returns the delay that a server requests: Retry-After, or the time until an exceeded
// rate limit is reset. 0 means that it requests none.
// https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api#exceeding-the-rate-limit,
// https://docs.gitlab.com/administration/settings/user_and_ip_rate_limits/#response-headers
func retryAfter(h http.Header, now time.Time) time.Duration {
	var d time.Duration
	if value := h.Get("Retry-After"); value != "" {
		if s, err := strconv.ParseUint(value, 10, 32); err == nil {
			d = time.Duration(s) * time.Second
		} else if at, err := http.ParseTime(value); err == nil {
			d = at.Sub(now)
		}
		d = max(d, time.Second)
	} else if h.Get("X-RateLimit-Remaining") == "0" {
		if at, err := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64); err == nil {
			d = max(time.Unix(at, 0).Sub(now), time.Second)
		}
	}
	return min(d, maxRetryAfter)
}

// serverMessage returns the error message in a response, in brackets; empty if there is none.
// GitHub and Gitea send message. GitLab sends message, which may be an object, or error.
func serverMessage(response []byte, a Access) string {
	var body struct {
		Message     any    `json:"message"`
		Error       any    `json:"error"`
		Description string `json:"error_description"`
	}
	if json.Unmarshal(response, &body) != nil {
		return ""
	}
	for _, v := range []any{body.Message, body.Description, body.Error} {
		text, ok := v.(string)
		if !ok && v != nil {
			b, _ := json.Marshal(v) //nolint:errchkjson // v was decoded from JSON
			text = string(b)
		}
		if text != "" {
			return fmt.Sprintf(" (%q)", oneLine(a.redact(text), maxQuotedLength))
		}
	}
	return ""
}

// redact replaces secrets in a text.
func (a Access) redact(text string) string {
	for _, secret := range append([]string{a.Token}, a.Secrets...) {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return text
}
