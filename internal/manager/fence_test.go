package manager

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestWritesFailAfterLeaseExpires(t *testing.T) {
	const leases = "/apis/coordination.k8s.io/v1/namespaces/system/leases"
	now, status := time.Now(), http.StatusOK
	sent := roundTripperFunc(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(""))}, nil
	})
	f := &fence{leasesPath: leases, leaseDuration: 10 * time.Second, now: func() time.Time { return now }}
	rt := &fencedTransport{fence: f, next: sent, leaseName: "lease"}
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
		{name: "create before the lease is acquired", method: "POST", path: object},
		{name: "acquire the lease", method: "PUT", path: leases + "/lease"},
		{name: "patch while the lease is valid", before: func() {
			now = now.Add(9 * time.Second)
		}, method: "PATCH", path: object},
		{name: "patch after the lease expired", before: func() {
			now = now.Add(time.Second)
		}, method: "PATCH", path: object, lost: true},
		{name: "create after the lease expired", method: "POST", path: object, lost: true},
		{name: "delete after the lease expired", method: "DELETE", path: object, lost: true},
		{name: "update another lease after the lease expired", method: "PUT", path: leases + "/other", lost: true},
		{name: "read after the lease expired", method: "GET", path: object},
		{name: "renew the lease with a conflict", before: func() {
			status = http.StatusConflict
		}, method: "PUT", path: leases + "/lease"},
		{name: "patch after the failed renewal", method: "PATCH", path: object, lost: true},
		{name: "renew the lease", before: func() { status = http.StatusOK }, method: "PUT", path: leases + "/lease"},
		{name: "patch after the renewal", method: "PATCH", path: object},
		{name: "patch after the machine was suspended", before: func() {
			now = now.Round(0).Add(time.Hour)
		}, method: "PATCH", path: object, lost: true},
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
