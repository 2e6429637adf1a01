package restapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// The interval at which a waiting request reads the object grows from minPoll to maxPoll.
const (
	minPoll = 250 * time.Millisecond
	maxPoll = 2 * time.Second
)

// await waits until the change has reached the cluster and the object is Ready, or until it is gone
// after a DELETE. It returns the answer of the change; with the code 202 if that did not happen in
// time.
func (h *handler) await(ctx context.Context, c *call, done *outcome) *answer {
	ctx, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	var ready string
	for poll := minPoll; ; poll = min(poll*3/2, maxPoll) {
		live, _, err := c.get(ctx, c.target.path(done.version))
		var finished bool
		switch {
		case err == nil:
			finished, ready = done.reached(live)
		case isRefused(err):
			return done.answered(http.StatusAccepted, err.Error())
		case !isContextError(err): // the last known state is more useful than the end of the wait
			ready = err.Error()
		}
		if finished {
			return done.answered(done.answer.code, ready)
		}
		select {
		case <-ctx.Done():
			return done.answered(http.StatusAccepted, ready)
		case <-h.stopping.Done():
			return done.answered(http.StatusAccepted, cmp.Or(ready, "the endpoint is stopping"))
		case <-h.clock.After(poll):
		}
	}
}

// isRefused reports whether the caller may not read the object, for example because the token has
// expired.
func isRefused(err error) bool {
	e, ok := errors.AsType[*answerError](err)
	return ok && (e.code == http.StatusUnauthorized || e.code == http.StatusForbidden)
}

// answered returns the answer with another code, and the state of the object.
func (o *outcome) answered(code int, ready string) *answer {
	out := &answer{code: code, header: maps.Clone(o.answer.header), body: o.answer.body}
	if ready != "" {
		out.header.Set(readyHeader, headerValue(ready))
	}
	return out
}

// headerValue returns a text as the value of a header.
func headerValue(text string) string {
	const maxBytes = 1024
	text = strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	return text[:min(len(text), maxBytes)]
}

// reached reports whether the object in the cluster has the outcome, and its state. live is nil if
// there is no object.
func (o *outcome) reached(live *unstructured.Unstructured) (finished bool, ready string) {
	switch {
	case live == nil && o.deleted:
		return true, ""
	case live == nil:
		return false, "the object is not in the cluster yet"
	case o.deleted:
		return false, "the object is still in the cluster"
	case !hasFields(contentOf(live.Object), o.expected):
		return false, "the object in the cluster does not have the change yet"
	}
	condition := readyCondition(live)
	if condition == nil {
		return false, "the object has no condition Ready of its generation yet"
	}
	return condition.Status == metav1.ConditionTrue,
		fmt.Sprintf("%s %s: %s", condition.Status, condition.Reason, condition.Message)
}

// readyCondition returns the condition Ready of the current generation; nil if there is none.
func readyCondition(live *unstructured.Unstructured) *metav1.Condition {
	var o struct {
		Status struct {
			ObservedGeneration int64              `json:"observedGeneration"`
			Conditions         []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	content := map[string]any{"status": live.Object["status"]}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(content, &o) != nil {
		return nil
	}
	c := apimeta.FindStatusCondition(o.Status.Conditions, appsv1.ReadyCondition)
	if c == nil || cmp.Or(c.ObservedGeneration, o.Status.ObservedGeneration) != live.GetGeneration() {
		return nil
	}
	return c
}

// contentOf returns the fields of an object that callers change: the spec, labels and annotations.
func contentOf(object map[string]any) map[string]any {
	out := map[string]any{}
	if spec, ok := object["spec"]; ok {
		out["spec"] = spec
	}
	metadata, _ := object["metadata"].(map[string]any)
	for _, field := range []string{"labels", "annotations"} {
		if v, ok := metadata[field]; ok {
			out[field] = v
		}
	}
	return out
}

// expectedFields returns the fields of a value that were written, with what they are in the result.
// Others may change the other fields, as an autoscaler does. Fields are nil if the result does not
// have them; also those that were written formerly. A list is one value.
func expectedFields(written, former, result any) any {
	w, isMap := written.(map[string]any)
	r, ok := result.(map[string]any)
	if !isMap || !ok && result != nil {
		return result
	}
	f, _ := former.(map[string]any)
	out := map[string]any{}
	for k, v := range w {
		out[k] = expectedFields(v, f[k], r[k])
	}
	for k, v := range f {
		_, stays := w[k]
		_, isMap := v.(map[string]any)
		switch {
		case stays:
		case isMap:
			out[k] = expectedFields(map[string]any{}, v, r[k])
		case r[k] == nil:
			out[k] = nil
		}
	}
	return out
}

// hasFields reports whether a value has the fields of expectedFields.
func hasFields(live, expected any) bool {
	fields, ok := expected.(map[string]any)
	if !ok {
		return equality.Semantic.DeepEqual(live, expected)
	}
	values, ok := live.(map[string]any)
	if !ok && live != nil {
		return false
	}
	for k, v := range fields {
		if !hasFields(values[k], v) {
			return false
		}
	}
	return true
}
