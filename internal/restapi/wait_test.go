package restapi

import (
	"context"
	"net/http"
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
	r := e.expect(http.StatusAccepted, "hello", "PUT", shops+"?wait=100ms", shopJSON("hello"))
	if ready := r.header.Get(readyHeader); ready != "the object has no condition Ready of its generation yet" {
		t.Errorf("%s: %s", readyHeader, ready)
	}
	e.api.setReady("False", "no\nspace")
	r = e.expect(http.StatusAccepted, "hello", "PATCH", shops+"?wait=100ms", `{"metadata": {"labels": {"a": "b"}}}`)
	if ready := r.header.Get(readyHeader); ready == "" {
		t.Errorf("%s is missing", readyHeader)
	}
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

func TestWaitEndsAtShutdown(t *testing.T) {
	e := newEndpoint(t, nil, realClock)
	ctx, cancel := context.WithCancel(t.Context())
	e.handler.stopping = ctx
	e.afterReads(2, cancel)
	e.expect(http.StatusAccepted, "", "PUT", shops+"?wait="+patience.String(), shopJSON("hi"))
}
