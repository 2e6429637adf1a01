package webhook

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// slowSenders sends requests whose bodies do not end until the test ends them.
type slowSenders struct {
	*receiverTest
	server *httptest.Server
}

func newSlowSenders(t *testing.T, r *receiverTest) *slowSenders {
	h := &slowSenders{receiverTest: r, server: httptest.NewServer(r)}
	t.Cleanup(h.server.Close)
	return h
}

// post sends a request and returns the status code. The response may arrive before the body ends.
func (h *slowSenders) post(t *testing.T, path string, header http.Header, body io.Reader) int {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.server.URL+path, body)
	if err != nil {
		t.Error(err)
		return 0
	}
	req.Header = header
	res, err := h.server.Client().Do(req)
	if err != nil {
		t.Error(err)
		return 0
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// hold starts n requests at a path. end ends their bodies; codes receives their status codes.
func (h *slowSenders) hold(t *testing.T, path string, n int) (end func(), codes chan int) {
	codes = make(chan int, n)
	var ends []*io.PipeWriter
	for range n {
		body, end := io.Pipe()
		ends = append(ends, end)
		go func() { codes <- h.post(t, path, http.Header{}, body) }()
	}
	return func() {
		for _, end := range ends {
			_ = end.Close()
		}
	}, codes
}

func (h *slowSenders) expectSlots(t *testing.T, want int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		h.slots.mu.Lock()
		have := h.slots.taken
		h.slots.mu.Unlock()
		if have == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d slots are taken, want %d", have, want)
		}
	}
}

func expectCodes(t *testing.T, codes chan int, n, want int) {
	t.Helper()
	for range n {
		select {
		case code := <-codes:
			if code != want {
				t.Errorf("slow request: %d, want %d", code, want)
			}
		case <-time.After(time.Minute): // the test server has no read timeout
			t.Fatal("a slow request has no response")
		}
	}
}

// A request at an unknown path is rejected before its body is read.
func TestRequestsAtUnknownPathsUseNoSlots(t *testing.T) {
	a, secret := source("a", appsv1.GenericHMACWebhook)
	h := newSlowSenders(t, newReceiverTest(t, a, secret))
	end, codes := h.hold(t, Prefix+strings.Repeat("0", 64), maxConcurrent)
	defer end()
	body := pushTo("a", "refs/heads/main")
	if code := h.post(t, a.Status.WebhookPath, hmacOf(body), strings.NewReader(body)); code != http.StatusAccepted {
		t.Errorf("a push: %d", code)
	}
	expectCodes(t, codes, maxConcurrent, http.StatusNotFound)
	h.expectSlots(t, 0)
}

// Slow requests occupy only the slots of their path.
func TestConcurrentRequestsAreBounded(t *testing.T) {
	var sources []*appsv1.KsctlSource
	r := newReceiverTest(t)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		s, secret := source(name, appsv1.GenericHMACWebhook)
		sources = append(sources, s)
		if err := r.api.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if err := r.api.Create(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	h := newSlowSenders(t, r)
	push := func(i int) int {
		body := pushTo(sources[i].Name, "refs/heads/main")
		return h.post(t, sources[i].Status.WebhookPath, hmacOf(body), strings.NewReader(body))
	}
	var ends []func()
	var running []chan int
	hold := func(i int) {
		end, codes := h.hold(t, sources[i].Status.WebhookPath, maxConcurrentPerPath)
		ends, running = append(ends, end), append(running, codes)
		h.expectSlots(t, (i+1)*maxConcurrentPerPath)
	}
	hold(0)
	if code := push(0); code != http.StatusServiceUnavailable {
		t.Errorf("another request at the same path: %d", code)
	}
	if code := push(1); code != http.StatusAccepted {
		t.Errorf("a request at another path: %d", code)
	}
	for i := 1; i < maxConcurrent/maxConcurrentPerPath; i++ {
		hold(i)
	}
	if code := push(4); code != http.StatusServiceUnavailable {
		t.Errorf("another request beyond the total limit: %d", code)
	}
	for i, end := range ends {
		end()
		expectCodes(t, running[i], maxConcurrentPerPath, http.StatusNotFound)
	}
	h.expectSlots(t, 0)
	if code := push(4); code != http.StatusAccepted {
		t.Errorf("after the slow requests ended: %d", code)
	}
}
