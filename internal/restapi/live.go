package restapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// maxAttempts is how often a change is tried while others change the object.
const maxAttempts = 20

// strict makes the API server refuse unknown fields.
var strict = url.Values{"fieldValidation": {"Strict"}}

// strictDryRun also makes it change nothing.
var strictDryRun = url.Values{"fieldValidation": {"Strict"}, "dryRun": {"All"}}

// liveBackend passes requests on to the API server.
type liveBackend struct{}

// read implements backend.
func (liveBackend) read(ctx context.Context, c *call) (*answer, error) {
	live, a, err := c.get(ctx, c.target.path(c.versions[0]))
	if err != nil {
		return nil, err
	}
	if live == nil {
		return nil, &answerError{a}
	}
	return withLiveETag(a, live), nil
}

// change implements backend. It tries again while others change the object, unless that breaks a
// condition of the caller.
func (b liveBackend) change(ctx context.Context, c *call) (*outcome, error) {
	for attempt := 1; ; attempt++ {
		a, retry, err := b.attempt(ctx, c)
		switch {
		case err != nil:
			return nil, err
		case retry && attempt < maxAttempts:
		case !a.succeeded():
			return nil, &answerError{a}
		default:
			return liveOutcome(c, a)
		}
	}
}

// liveOutcome returns the outcome of a request that the API server has accepted.
func liveOutcome(c *call, a *answer) (*outcome, error) {
	out := &outcome{answer: a, version: c.requestVersion(), deleted: c.method == http.MethodDelete}
	if out.deleted {
		return out, nil
	}
	object, err := a.object()
	if err != nil {
		return nil, err
	}
	out.answer = withLiveETag(a, object)
	out.expected = expectedFields(contentOf(c.body), nil, contentOf(object.Object))
	return out, nil
}

// attempt sends the request once. retry is true if another client has changed the object since it
// was read.
func (b liveBackend) attempt(ctx context.Context, c *call) (_ *answer, retry bool, err error) {
	if c.ifMatch == "" && c.method != http.MethodPut {
		a, err := c.send(ctx, nil)
		return a, false, err
	}
	live, _, err := c.get(ctx, c.target.path(c.requestVersion()))
	if err != nil {
		return nil, false, err
	}
	if err := c.checkConditions(live != nil, liveETag(live)); err != nil {
		return nil, false, err
	}
	a, err := c.send(ctx, live)
	if err != nil {
		return nil, false, err
	}
	// With a resourceVersion in the body, a conflict is the caller's.
	own := c.method == http.MethodPut && (&unstructured.Unstructured{Object: c.body}).GetResourceVersion() != ""
	return a, a.code == http.StatusConflict && !own, nil
}

// requestVersion returns the API version of the body, or the stored version.
func (c *call) requestVersion() string {
	if version, err := c.version(stringOf(c.body["apiVersion"])); err == nil {
		return version
	}
	return c.versions[0]
}

// checkConditions checks If-Match and If-None-Match. etag is that of the object, if it exists.
func (c *call) checkConditions(exists bool, etag string) error {
	switch {
	case c.createOnly && exists:
		return c.preconditionFailed("the object exists already, and the request has If-None-Match: *")
	case c.ifMatch != "" && !exists:
		return c.preconditionFailed("the object does not exist, and the request has If-Match")
	case c.ifMatch != "" && c.ifMatch != anyETag && c.ifMatch != etag:
		return c.preconditionFailed("the object has changed: its ETag is %q, and the request has If-Match %q: read it "+
			"again", etag, c.ifMatch)
	}
	return nil
}

// send sends the change to the API server. If live is not nil, the API server refuses the change
// unless the object is still that one.
func (c *call) send(ctx context.Context, live *unstructured.Unstructured) (*answer, error) {
	r := apiRequest{method: c.method, path: c.target.path(c.requestVersion()), query: strict}
	switch c.method {
	case http.MethodDelete:
		r.query = nil
		if live != nil {
			r.body = map[string]any{"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": map[string]any{
				"uid": live.GetUID(), "resourceVersion": live.GetResourceVersion()}}
		}
	case http.MethodPatch:
		r.contentType, r.body = mergePatchType, c.body
		if live != nil {
			r.body = withResourceVersion(c.body, live.GetResourceVersion())
		}
	case http.MethodPut:
		if live == nil {
			r.method, r.path = http.MethodPost, c.collection(c.requestVersion(), c.namespace)
			r.body = withoutServerFields(c.body)
		} else {
			r.body = replaced(live, c.body)
		}
	}
	return c.do(ctx, r)
}

// withResourceVersion returns a patch that applies to one version of an object.
func withResourceVersion(patch map[string]any, version string) map[string]any {
	out := maps.Clone(patch)
	metadata, _ := patch["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["resourceVersion"] = version
	out["metadata"] = metadata
	return out
}

// replaced returns the object with the content, the labels and the annotations of a body, and the
// other metadata of the object. A resourceVersion in the body stays.
func replaced(live *unstructured.Unstructured, body map[string]any) *unstructured.Unstructured {
	desired, out := &unstructured.Unstructured{Object: body}, withoutServerFields(body)
	out.SetAPIVersion(live.GetAPIVersion())
	out.SetUID(live.GetUID())
	out.SetResourceVersion(live.GetResourceVersion())
	if version := desired.GetResourceVersion(); version != "" {
		out.SetResourceVersion(version)
	}
	out.SetFinalizers(live.GetFinalizers())
	out.SetOwnerReferences(live.GetOwnerReferences())
	return out
}

// liveETag returns the ETag of an object at the API server, which is the same for each API version.
// Each change of the spec increases the generation. The status, finalizers and owners change with
// the work of controllers. It is empty for nil.
func liveETag(live *unstructured.Unstructured) string {
	if live == nil {
		return ""
	}
	hashed := map[string]any{"uid": live.GetUID(), "generation": live.GetGeneration(), "labels": live.GetLabels(),
		"annotations": live.GetAnnotations()}
	content, err := json.Marshal(hashed)
	if err != nil { // it was decoded from JSON
		return ""
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:16])
}

// withLiveETag adds the ETag of an object.
func withLiveETag(a *answer, object *unstructured.Unstructured) *answer {
	a.header.Set("ETag", `"`+liveETag(object)+`"`)
	return a
}
