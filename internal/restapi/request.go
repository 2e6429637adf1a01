package restapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Limits of a request.
const (
	// maxBodyBytes limits the body. It is less than the limit of the API server, which adds
	// metadata.
	maxBodyBytes = 1 << 20
	// maxMessageBytes limits the commit message.
	maxMessageBytes = 4 << 10
	// maxWait limits the parameter wait.
	maxWait = 5 * time.Minute
)

// anyETag is the value of If-Match and If-None-Match that matches each existing object.
const anyETag = "*"

// call is a parsed request of a caller.
type call struct {
	*caller
	*target
	method string
	// body is the object of a PUT, or the merge patch of a PATCH.
	body map[string]any
	// ifMatch is the ETag that the object must have, without quotes; anyETag for any, "" for no
	// condition. createOnly means that the object must not exist.
	ifMatch    string
	createOnly bool
	// wait is how long to wait until the object is Ready; 0 means not at all.
	wait time.Duration
	// message is the commit message; "" for the default.
	message string
}

// bearerToken returns the token of a request.
func bearerToken(header http.Header) (string, error) {
	values := header.Values("Authorization")
	if len(values) == 1 {
		scheme, token, _ := strings.Cut(values[0], " ")
		token = strings.TrimSpace(token)
		if strings.EqualFold(scheme, "Bearer") && tokenPattern.MatchString(token) {
			return token, nil
		}
	}
	return "", newError(http.StatusUnauthorized, metav1.StatusReasonUnauthorized,
		"the request has no bearer token: send a token of the cluster as \"Authorization: Bearer <token>\"")
}

// tokenPattern is that of RFC 6750.
var tokenPattern = regexp.MustCompile(`^[-A-Za-z0-9._~+/]+=*$`)

// checkImpersonation refuses what would be ignored otherwise: the request would have other
// permissions than its sender expects.
func checkImpersonation(header http.Header) error {
	for name := range header {
		if strings.HasPrefix(name, "Impersonate-") {
			return badRequest("the header %s is not supported: use a token of the user", name)
		}
	}
	return nil
}

func badRequest(format string, args ...any) error {
	return newError(http.StatusBadRequest, metav1.StatusReasonBadRequest, format, args...)
}

// parse returns the call that a request for an object makes. It reads the body.
func (h *handler) parse(ctx context.Context, w http.ResponseWriter, r *http.Request) (*call, error) {
	own, err := h.authenticate(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := checkImpersonation(r.Header); err != nil {
		return nil, err
	}
	c := &call{caller: own, method: r.Method,
		target: &target{namespace: r.PathValue("namespace"), name: r.PathValue("name")}}
	if e := validation.IsDNS1123Label(c.namespace); len(e) > 0 {
		return nil, badRequest("namespace %q in the path: %s", c.namespace, e[0])
	}
	if e := validation.IsDNS1123Subdomain(c.name); len(e) > 0 {
		return nil, badRequest("name %q in the path: %s", c.name, e[0])
	}
	if c.resource, err = h.resources.find(ctx, r.PathValue("resource")); err != nil {
		return nil, err
	}
	if err := c.parseParameters(r.URL.RawQuery); err != nil {
		return nil, err
	}
	if err := c.parseConditions(r.Header); err != nil {
		return nil, err
	}
	return c, h.parseBody(ctx, c, w, r)
}

// parseParameters parses the query.
func (c *call) parseParameters(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return badRequest("the query can't be parsed: %s", err)
	}
	for name, v := range values {
		switch {
		case len(v) != 1:
			return badRequest("parameter %s: set it once", name)
		case c.method == http.MethodGet || name != "wait" && name != "message":
			return badRequest("unknown parameter %q: PUT, PATCH and DELETE have wait and message", name)
		}
	}
	if text := values.Get("wait"); text != "" {
		if c.wait, err = time.ParseDuration(text); err != nil || c.wait < 0 || c.wait > maxWait {
			return badRequest("parameter wait %q: expected a duration from 0s to %s, such as 60s", text, maxWait)
		}
	}
	c.message = strings.TrimSpace(values.Get("message"))
	if len(c.message) > maxMessageBytes || !utf8.ValidString(c.message) || strings.ContainsFunc(c.message,
		func(r rune) bool { return r != '\n' && unicode.IsControl(r) }) {
		return badRequest("parameter message: expected at most %d bytes of text without control characters",
			maxMessageBytes)
	}
	return nil
}

// parseConditions parses If-Match and If-None-Match.
func (c *call) parseConditions(header http.Header) error {
	if v := header.Get("If-None-Match"); v != "" && c.method != http.MethodGet {
		if v != anyETag || c.method != http.MethodPut {
			return badRequest("If-None-Match: only PUT has it, with the value *, to create an object")
		}
		c.createOnly = true
	}
	v := strings.TrimSpace(header.Get("If-Match"))
	if v == "" || v == anyETag {
		c.ifMatch = v
		return nil
	}
	tag, opened := strings.CutPrefix(v, `"`)
	tag, closed := strings.CutSuffix(tag, `"`)
	if !opened || !closed || tag == "" || strings.Contains(tag, `"`) {
		return badRequest("If-Match %s: expected one ETag in quotes, as the endpoint returns it", v)
	}
	c.ifMatch = tag
	return nil
}

// bodyTypes are the media types of bodies.
var bodyTypes = map[string]string{http.MethodPut: jsonType, http.MethodPatch: mergePatchType}

// parseBody reads the body of a PUT or PATCH. It has to be of the object in the path.
func (h *handler) parseBody(ctx context.Context, c *call, w http.ResponseWriter, r *http.Request) error {
	expected, has := bodyTypes[c.method]
	if !has {
		return nil
	}
	if got, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || got != expected {
		return newError(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"Content-Type %q: %s needs %s", r.Header.Get("Content-Type"), c.method, expected)
	}
	content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return newError(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
			"the body is larger than %d bytes", maxBodyBytes)
	}
	if err != nil {
		return badRequest("the body is incomplete: send it again")
	}
	if err := h.decode(ctx, content, &c.body); err != nil {
		return err
	}
	if c.body == nil {
		return badRequest("the body is not a JSON object")
	}
	return c.checkBody()
}

// decode decodes a body. The values of a body of 1 MiB may need 20 times its memory while it is
// decoded.
func (h *handler) decode(ctx context.Context, content []byte, into *map[string]any) error {
	select {
	case h.decoding <- struct{}{}:
		defer func() { <-h.decoding }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := utiljson.Unmarshal(content, into); err != nil {
		return badRequest("the body is not a JSON object: %s", err)
	}
	return nil
}

// checkBody checks that the body is of the object in the path. The fields that say so are set in a
// PUT.
func (c *call) checkBody() error {
	metadata, isMap := c.body["metadata"].(map[string]any)
	if value, has := c.body["metadata"]; has && !isMap && value != nil {
		return badRequest("metadata in the body: expected an object")
	}
	for _, field := range []struct {
		in          map[string]any
		name, value string
	}{{c.body, "kind", c.kind}, {metadata, "namespace", c.namespace}, {metadata, "name", c.name}} {
		if value, has := field.in[field.name]; has && value != field.value {
			return badRequest("%s %q in the body: the path has %s", field.name, fmt.Sprint(value), c.target)
		}
	}
	apiVersion, has := c.body["apiVersion"]
	if !has && c.method == http.MethodPatch {
		return nil
	}
	if _, err := c.version(stringOf(apiVersion)); err != nil {
		return err
	}
	if c.method == http.MethodPut {
		u := unstructured.Unstructured{Object: c.body}
		u.SetKind(c.kind)
		u.SetNamespace(c.namespace)
		u.SetName(c.name)
	}
	return nil
}

// stringOf returns a value that is a string; "" for others.
func stringOf(value any) string {
	s, _ := value.(string)
	return s
}

// serverFields are the fields of metadata that the API server sets.
var serverFields = []string{"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
	"deletionGracePeriodSeconds", "managedFields", "selfLink"}

// withoutServerFields returns a copy of an object without the fields that the API server and
// controllers set.
func withoutServerFields(object map[string]any) *unstructured.Unstructured {
	out := (&unstructured.Unstructured{Object: object}).DeepCopy()
	delete(out.Object, "status")
	if metadata, ok := out.Object["metadata"].(map[string]any); ok {
		for field := range metadata {
			if slices.Contains(serverFields, field) {
				delete(metadata, field)
			}
		}
	}
	return out
}

// isContextError reports whether a request ended because of its context.
func isContextError(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
