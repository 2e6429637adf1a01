package restapi

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// afterReads calls f before the nth read of the object.
func (e *endpoint) afterReads(n int, f func()) {
	reads := 0
	e.api.before = func(r *http.Request) {
		if r.Method != http.MethodGet {
			return
		}
		if reads++; reads == n {
			f()
		}
	}
}

func TestWaitEndsWhenObjectIsReady(t *testing.T) {
	e := newEndpoint(t, nil, realClock)
	e.afterReads(3, func() { e.api.setReady("True", "done") }) // the first read is that of the PUT
	r := e.expect(http.StatusCreated, "", "PUT", shops+"?wait="+patience.String(), shopJSON("hi"))
	if ready := r.header.Get(readyHeader); ready != "True Reason: done" {
		t.Errorf("%s: %s", readyHeader, ready)
	}
}

func TestWaitEndsWithStateOfObject(t *testing.T) {
	e := newEndpoint(t, nil, realClock)
	e.expect(http.StatusCreated, "", "PUT", shops, shopJSON("hi"))
	e.api.setReady("False", "no\nspace")
	// The condition is that of the earlier generation, then of the current one.
	ctx, cancel := context.WithCancel(t.Context())
	e.handler.stopping = ctx
	e.afterReads(2, cancel) // the first read is that of the PUT
	r := e.expect(http.StatusAccepted, "hello", "PUT", shops+"?wait="+patience.String(), shopJSON("hello"))
	if ready := r.header.Get(readyHeader); ready != "the object has no condition Ready of its generation yet" {
		t.Errorf("%s: %s", readyHeader, ready)
	}
	e.afterReads(1, func() { e.api.setReady("False", "no\nspace") })
	r = e.expect(http.StatusAccepted, "hello", "PATCH", shops+"?wait="+patience.String(),
		`{"metadata": {"labels": {"a": "b"}}}`)
	if ready := r.header.Get(readyHeader); ready != "False Reason: no space" {
		t.Errorf("%s: %s", readyHeader, ready)
	}
}

func TestWaitIsLimited(t *testing.T) {
	e := newEndpoint(t, nil, realClock)
	e.expect(http.StatusAccepted, "hi", "PUT", shops+"?wait=1ms", shopJSON("hi"))
}

func TestWaitForCommit(t *testing.T) {
	e := newEndpoint(t, newRepository(), realClock)
	e.afterReads(3, func() { // the source controller applies the commit, and the object becomes Ready
		e.api.objects[livePath] = map[string]any{"apiVersion": "example.com/v1", "kind": "Shop",
			"spec": map[string]any{"greeting": "hi", "port": "default"}}
		e.api.set(func(u *unstructured.Unstructured) { u.SetGeneration(1) })
		e.api.setReady("True", "done")
	})
	e.expect(http.StatusCreated, "", "PUT", shops+"?wait="+patience.String(), shopJSON("hi"))
	e.afterReads(3, func() { delete(e.api.objects, livePath) })
	e.expect(http.StatusOK, "Success", "DELETE", shops+"?wait="+patience.String(), "")
	e.expectCommits(2)
}

// An autoscaler owns a field that is not committed.
func TestWaitExpectsCommittedFields(t *testing.T) {
	object := func(text string) map[string]any {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON([]byte(`{"apiVersion": "example.com/v1", "kind": "Shop", ` + text + `}`)); err != nil {
			t.Fatal(err)
		}
		return contentOf(u.Object)
	}
	expected := expectedFields(
		object(`"spec": {"host": "a", "ports": [1], "tls": {"on": true}}, "metadata": {"labels": {"a": "b"}}`),
		object(`"spec": {"host": "b", "replicas": 1, "gone": 1}, 
			"metadata": {"annotations": {"x": "y"}, "labels": {"c": "d"}}`),
		object(`"spec": {"host": "A", "ports": [1], "tls": {"on": true, "version": 3}, "replicas": 1},
			"metadata": {"annotations": {"by": "flux"}, "labels": {"a": "b", "by": "flux"}}`))
	reached := `"spec": {"host": "A", "ports": [1], "tls": {"on": true, "version": 4}, "replicas": 7},
		"metadata": {"annotations": {"by": "argo"}, "labels": {"a": "b"}}`
	if !hasFields(object(reached), expected) {
		t.Errorf("%v is not expected", reached)
	}
	for name, change := range map[string][2]string{"value": {`"A"`, `"b"`}, "list": {"[1]", "[1, 2]"},
		"nested field": {"true", "false"}, "removed field": {`"host"`, `"gone": 1, "host"`},
		"type":  {`{"on": true, "version": 4}`, "1"},
		"label": {`"a": "b"`, `"a": "x"`}, "removed label": {`"a": "b"`, `"a": "b", "c": "d"`},
		"removed annotation": {`"by"`, `"x": "y", "by"`}} {
		if text := strings.Replace(reached, change[0], change[1], 1); hasFields(object(text), expected) {
			t.Errorf("another %s: %s is expected", name, text)
		}
	}
}

// The object is Ready, but does not have the label yet.
func TestWaitForCommitOfLabel(t *testing.T) {
	e := newEndpoint(t, newRepository(shopDocument("hi")), realClock)
	e.api.objects[livePath] = map[string]any{"apiVersion": "example.com/v1", "kind": "Shop",
		"spec": map[string]any{"greeting": "hi", "port": "default"}}
	e.api.set(func(u *unstructured.Unstructured) { u.SetGeneration(1) })
	e.api.setReady("True", "done")
	applied := false
	e.afterReads(4, func() {
		applied = true
		e.api.set(func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"a": "b"}) })
	})
	e.expect(http.StatusOK, "", "PATCH", shops+"?wait="+patience.String(), `{"metadata": {"labels": {"a": "b"}}}`)
	if !applied {
		t.Error("the answer came before the label")
	}
}

func TestWaitEndsAtShutdown(t *testing.T) {
	e := newEndpoint(t, nil, realClock)
	ctx, cancel := context.WithCancel(t.Context())
	e.handler.stopping = ctx
	e.afterReads(2, cancel)
	e.expect(http.StatusAccepted, "", "PUT", shops+"?wait="+patience.String(), shopJSON("hi"))
}
