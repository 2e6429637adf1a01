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
	// answerWithin is how long a server may take for one statement.
	answerWithin = 15 * time.Second
	// answerBytes of an answer are read, and answerText characters of it repeated.
	answerBytes = 16 << 10
	answerText  = 200
	// longestWait is the longest that a server may have us wait.
	longestWait  = 24 * time.Hour
	maxRedirects = 3
)

// Result is what became of a statement.
type Result string

// Results.
const (
	// Written: the commit says it.
	Written Result = "written"
	// Refused: the server does not let us, until a person changes something.
	Refused Result = "refused"
	// Invalid: the server will never take this one statement; others it may.
	Invalid Result = "invalid"
	// Limited: the server wants to be left alone for a while.
	Limited Result = "limited"
	// Failed: the server can't be reached, or has trouble of its own.
	Failed Result = "failed"
)

// Error says why a statement was not written. Its text holds no token.
type Error struct {
	Result Result
	// Message says what was found, and what to do.
	Message string
	// After is how long the server wants to be left alone; 0: it does not say.
	After time.Duration
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Access is what opens the API of a server.
type Access struct {
	// HTTP is the client to talk with. It has to guard against addresses that others chose.
	HTTP  *http.Client
	Token string
	// Secrets beside the token that no error may hold.
	Secrets []string
	// In is where the token comes from, for people.
	In string
}

// Post writes a statement: one request, and more only where the same server sends us
// to another path. The error is an *Error.
func (t Target) Post(ctx context.Context, a Access, s Statement, now time.Time) error {
	address, body, err := t.request(s)
	if err != nil {
		return &Error{Result: Invalid, Message: err.Error()}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerWithin, fmt.Errorf("no answer within %s", answerWithin))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return &Error{Result: Refused, Message: t.String() + " is not a URL to ask: correct spec.commitStatus.address"}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "ksctl-gitops")
	t.authorize(req.Header, a.Token)
	client := *a.HTTP
	client.CheckRedirect = stay
	resp, err := client.Do(req)
	if err != nil {
		return t.unreachable(ctx, err, a)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, answerBytes)) // what did not come is not told
	return t.judge(resp, said(answer, a), s, a, now)
}

// stay follows a server to another path of its own, with the same request. The token
// goes nowhere else.
func stay(r *http.Request, via []*http.Request) error {
	first := via[0]
	if r.Method != first.Method || r.URL.Scheme != first.URL.Scheme || r.URL.Host != first.URL.Host || len(via) > maxRedirects {
		return http.ErrUseLastResponse
	}
	return nil
}

// judge says what an answer means; nil: it is written.
func (t Target) judge(resp *http.Response, answer string, s Statement, a Access, now time.Time) error {
	code := resp.StatusCode
	told := fmt.Sprintf("%s answers %d %s%s", t, code, http.StatusText(code), answer)
	fail := func(r Result, do string) error {
		return &Error{Result: r, Message: told + ": " + do}
	}
	after := waits(resp.Header, now)
	switch {
	case code == http.StatusCreated:
		return nil
	case code == http.StatusBadRequest && s.State == Pending && t.kind == appsv1.GitLabStatus:
		return nil // GitLab refuses to make pending what is: https://gitlab.com/gitlab-org/gitlab-foss/-/issues/25807
	case code == http.StatusTooManyRequests, after > 0 && code == http.StatusForbidden:
		return &Error{Result: Limited, Message: told, After: after}
	case code == http.StatusUnauthorized:
		return fail(Refused, "put a token that is valid into "+a.In+"; it needs "+t.Rights())
	case code == http.StatusForbidden:
		return fail(Refused, "the token in "+a.In+" needs "+t.Rights())
	case code == http.StatusNotFound:
		return fail(Refused, "it has no such repository or commit, or does not show it to the token: correct spec.commitStatus.address, or give the token in "+a.In+" "+t.Rights())
	case code == http.StatusBadRequest, code == http.StatusUnprocessableEntity:
		return fail(Invalid, "it is left at that; if the commit is not in that repository, correct spec.commitStatus.address")
	case code/100 == 3:
		return fail(Refused, "the token is not shown to where it leads: set spec.commitStatus.address to where the repository is")
	case code/100 == 5, code == http.StatusConflict, code == http.StatusRequestTimeout:
		return &Error{Result: Failed, Message: told, After: after}
	}
	return fail(Refused, "that is not the API of "+string(t.kind)+": correct spec.commitStatus")
}

// unreachable judges an error of the HTTP client.
func (t Target) unreachable(ctx context.Context, err error, a Access) error {
	if ctx.Err() != nil {
		return &Error{Result: Failed, Message: t.String() + ": " + context.Cause(ctx).Error()}
	}
	if refused, ok := artifact.Refused(err); ok {
		return &Error{Result: Refused, Message: t.String() + " is not talked to: " + refused.Error()}
	}
	if bad, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return &Error{Result: Refused, Message: fmt.Sprintf("nobody who is trusted vouches for the certificate of %s: if its authority is your own, put it into ca.crt of %s: %v", t, a.In, bad.Err)}
	}
	return &Error{Result: Failed, Message: t.String() + " can't be reached: " + a.mask(fmt.Sprintf("%.300s", a.mask(artifact.WithoutURL(err).Error())))}
}

// waits is how long a server wants to be left alone: Retry-After, or what is left of
// the hour of a rate limit that is used up. 0: it does not say.
// https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api#exceeding-the-rate-limit,
// https://docs.gitlab.com/administration/settings/user_and_ip_rate_limits/#response-headers
func waits(h http.Header, now time.Time) time.Duration {
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
	return min(d, longestWait)
}

// said is what a server gives for a reason, in brackets; empty if it gives none.
// GitHub and Gitea say message, as GitLab does, which also has objects there, and error.
func said(answer []byte, a Access) string {
	var body struct {
		Message     any    `json:"message"`
		Error       any    `json:"error"`
		Description string `json:"error_description"`
	}
	if json.Unmarshal(answer, &body) != nil {
		return ""
	}
	for _, v := range []any{body.Message, body.Description, body.Error} {
		text, ok := v.(string)
		if !ok && v != nil {
			b, _ := json.Marshal(v) //nolint:errchkjson // what was JSON
			text = string(b)
		}
		if text != "" {
			return fmt.Sprintf(" (%q)", oneLine(a.mask(text), answerText))
		}
	}
	return ""
}

// mask takes what is secret out of a text.
func (a Access) mask(text string) string {
	for _, secret := range append([]string{a.Token}, a.Secrets...) {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return text
}
