package manager

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestALeaderWithoutItsLeaseWritesNothing(t *testing.T) {
	const leases = "/apis/coordination.k8s.io/v1/namespaces/system/leases"
	now, status := time.Now(), http.StatusOK
	sent := tripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(""))}, nil
	})
	f := &fence{lease: leases, valid: 10 * time.Second, now: func() time.Time { return now }}
	rt := &fencedTripper{fence: f, next: sent, name: "lease"}
	do := func(method, path string) error {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://server"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := rt.RoundTrip(req)
		if err == nil {
			_ = res.Body.Close()
		}
		return err
	}
	const object = "/api/v1/namespaces/a/configmaps/b"
	steps := []struct {
		name   string
		before func()
		method string
		path   string
		lost   bool
	}{
		{name: "before there is a lease", method: "POST", path: object},
		{name: "the lease is taken", method: "PUT", path: leases + "/lease"},
		{name: "while it lasts", before: func() { now = now.Add(9 * time.Second) }, method: "PATCH", path: object},
		{name: "when it ran out", before: func() { now = now.Add(time.Second) }, method: "PATCH", path: object, lost: true},
		{name: "a create when it ran out", method: "POST", path: object, lost: true},
		{name: "a delete when it ran out", method: "DELETE", path: object, lost: true},
		{name: "another lease when it ran out", method: "PUT", path: leases + "/other", lost: true},
		{name: "a read when it ran out", method: "GET", path: object},
		{name: "the lease is refused", before: func() { status = http.StatusConflict }, method: "PUT", path: leases + "/lease"},
		{name: "after that", method: "PATCH", path: object, lost: true},
		{name: "the lease is renewed", before: func() { status = http.StatusOK }, method: "PUT", path: leases + "/lease"},
		{name: "after that", method: "PATCH", path: object},
		{name: "the machine slept", before: func() { now = now.Round(0).Add(time.Hour) }, method: "PATCH", path: object, lost: true},
	}
	for _, s := range steps {
		if s.before != nil {
			s.before()
		}
		var lost *LeaseLostError
		if err := do(s.method, s.path); errors.As(err, &lost) != s.lost {
			t.Errorf("%s: %v", s.name, err)
		}
	}
}
