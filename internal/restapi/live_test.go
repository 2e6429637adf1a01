package restapi

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestObjectIsCreatedReadChangedAndDeleted(t *testing.T) {
	e := newEndpoint(t, nil, realClock)
	e.expect(http.StatusNotFound, "fromAPIServer", "GET", shops, "")
	created := e.expect(http.StatusCreated, `"greeting":"hi"`, "PUT", shops, shopJSON("hi"))
	read := e.expect(http.StatusOK, `"greeting":"hi"`, "GET", shops, "")
	if tag := created.header.Get("ETag"); tag == "" || tag != read.header.Get("ETag") {
		t.Errorf("ETag %s of the created object, %s when it is read", tag, read.header.Get("ETag"))
	}
	if created.header.Get("Warning") == "" {
		t.Error("the warning of the API server is missing")
	}
	e.expect(http.StatusOK, `"greeting":"hello"`, "PATCH", shops, `{"spec": {"greeting": "hello"}}`)
	e.expect(http.StatusOK, `"greeting":"bye"`, "PUT", shops, shopJSON("bye"))
	e.expect(http.StatusOK, "Success", "DELETE", shops, "")
	e.expect(http.StatusNotFound, "fromAPIServer", "DELETE", shops, "")
	requests := e.api.recorded()
	for _, want := range []string{"POST /apis/example.com/v1/namespaces/team/shops?fieldValidation=Strict",
		"PATCH " + livePath + "?fieldValidation=Strict", "PUT " + livePath + "?fieldValidation=Strict",
		"DELETE " + livePath} {
		if !strings.Contains(requests, want) {
			t.Errorf("no request %s in\n%s", want, requests)
		}
	}
}

// A PUT replaces labels and annotations, and keeps what others set in the metadata.
func TestPutReplacesContentOnly(t *testing.T) {
	e := newEndpoint(t, nil, realClock)
	e.expect(http.StatusCreated, "", "PUT", shops, shopJSON("hi"))
	e.api.set(func(u *unstructured.Unstructured) {
		u.SetFinalizers([]string{"example.com/keep"})
		u.SetLabels(map[string]string{"a": "b"})
	})
	r := e.expect(http.StatusOK, "example.com/keep", "PUT", shops, shopJSON("hello"))
	if strings.Contains(r.body, `"labels"`) {
		t.Errorf("the label stays: %s", r.body)
	}
}

func TestAnswerOfAPIServerIsPassedOn(t *testing.T) {
	e := newEndpoint(t, nil, realClock)
	for _, method := range []string{"GET", "PUT", "PATCH", "DELETE"} {
		e.expect(http.StatusForbidden, `"fromAPIServer":true`, method, shops, shopJSON("hi"), "Authorization",
			"Bearer "+strangersToken)
		r := e.expect(http.StatusUnauthorized, `"fromAPIServer":true`, method, shops, shopJSON("hi"), "Authorization",
			"Bearer unknown")
		if r.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%s: no WWW-Authenticate", method)
		}
	}
	e.expect(http.StatusUnprocessableEntity, "spec.greeting: Required value", "PUT", shops, shopJSON(""))
}

func TestIfMatch(t *testing.T) {
	e := newEndpoint(t, nil, realClock)
	e.expect(http.StatusPreconditionFailed, "does not exist", "PUT", shops, shopJSON("hi"), "If-Match", "*")
	first := e.expect(http.StatusCreated, "", "PUT", shops, shopJSON("hi"), "If-None-Match", "*").header.Get("ETag")
	e.expect(http.StatusPreconditionFailed, "exists already", "PUT", shops, shopJSON("hi"), "If-None-Match", "*")
	e.api.setReady("True", "a status changes nothing")
	second := e.expect(http.StatusOK, "", "PATCH", shops, `{"spec": {"greeting": "hello"}}`, "If-Match",
		first).header.Get("ETag")
	for _, method := range []string{"PUT", "PATCH", "DELETE"} {
		e.expect(http.StatusPreconditionFailed, "the object has changed", method, shops, shopJSON("lost"), "If-Match",
			first)
	}
	e.expect(http.StatusOK, "Success", "DELETE", shops, "", "If-Match", second)
}

// A reader of one version and a writer of another one have the same ETag.
func TestETagIsThatOfEachVersion(t *testing.T) {
	version := func(apiVersion, field string, edit func(*unstructured.Unstructured)) string {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": "Shop",
			"spec": map[string]any{field: "hi"}}}
		u.SetUID("1")
		u.SetGeneration(3)
		u.SetLabels(map[string]string{"a": "b"})
		edit(u)
		return liveETag(u)
	}
	same := func(*unstructured.Unstructured) {}
	tag := version("example.com/v1", "greeting", same)
	if got := version("example.com/v1beta1", "message", same); got != tag {
		t.Errorf("%s and %s", tag, got)
	}
	for name, edit := range map[string]func(*unstructured.Unstructured){
		"uid":         func(u *unstructured.Unstructured) { u.SetUID("2") },
		"generation":  func(u *unstructured.Unstructured) { u.SetGeneration(4) },
		"labels":      func(u *unstructured.Unstructured) { u.SetLabels(nil) },
		"annotations": func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"a": "b"}) },
	} {
		if version("example.com/v1", "greeting", edit) == tag {
			t.Errorf("another %s has the same ETag", name)
		}
	}
}

// Another client changes the object between the read and the write.
func TestLostRaceIsRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		change func(u *unstructured.Unstructured)
		code   int
	}{
		"the status": {func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, "x", "status", "phase")
		}, http.StatusOK},
		"the finalizers": {func(u *unstructured.Unstructured) { u.SetFinalizers([]string{"example.com/x"}) },
			http.StatusOK},
		"a label": {func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"a": "b"}) },
			http.StatusPreconditionFailed},
	} {
		for _, method := range []string{"PUT", "PATCH", "DELETE"} {
			e := newEndpoint(t, nil, realClock)
			tag := e.expect(http.StatusCreated, "", "PUT", shops, shopJSON("hi")).header.Get("ETag")
			changed := false
			e.api.before = func(r *http.Request) {
				if r.Method == method && !changed {
					changed = true
					e.api.set(c.change)
				}
			}
			if r := e.send(method, shops, shopJSON("hello"), "If-Match", tag); r.code != c.code {
				t.Errorf("%s changes %s: %d %s", method, name, r.code, r.body)
			}
			if method != "PUT" {
				continue
			}
			changed = false
			e.expect(http.StatusOK, "", "PUT", shops, shopJSON("without a condition"))
		}
	}
}

// The resourceVersion in a body is the caller's condition.
func TestResourceVersionOfBody(t *testing.T) {
	e := newEndpoint(t, nil, realClock)
	e.expect(http.StatusCreated, "", "PUT", shops, shopJSON("hi"))
	body := strings.Replace(shopJSON("hello"), `"spec"`, `"metadata": {"resourceVersion": "999"}, "spec"`, 1)
	e.expect(http.StatusConflict, "has been modified", "PUT", shops, body)
}
