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

// hung is requests whose bodies do not end before the test does.
type hung struct {
	*rig
	server *httptest.Server
}

func newHung(t *testing.T, r *rig) *hung {
	h := &hung{rig: r, server: httptest.NewServer(r)}
	t.Cleanup(h.server.Close)
	return h
}

// post is the answer to a request; of one that does not end, as it comes.
func (h *hung) post(t *testing.T, path string, header http.Header, body io.Reader) int {
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

// hold starts requests at a path, and returns what ends them and has their answers.
func (h *hung) hold(t *testing.T, path string, n int) (end func(), codes chan int) {
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

func (h *hung) taken(t *testing.T, want int) {
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

func answered(t *testing.T, codes chan int, n, want int) {
	t.Helper()
	for range n {
		select {
		case code := <-codes:
			if code != want {
				t.Errorf("one that hung: %d, want %d", code, want)
			}
		case <-time.After(time.Minute): // this server waits for a body for ever
			t.Fatal("one that hung has no answer")
		}
	}
}

// Whoever does not know a path is told so before their body is read.
func TestStrangersKeepNobodyOut(t *testing.T) {
	a, secret := source("a", appsv1.GenericHMACWebhook)
	h := newHung(t, newRig(t, a, secret))
	end, codes := h.hold(t, Prefix+strings.Repeat("0", 64), atATime)
	defer end()
	body := pushTo("a", "refs/heads/main")
	if code := h.post(t, a.Status.WebhookPath, hmacOf(body), strings.NewReader(body)); code != http.StatusAccepted {
		t.Errorf("a push: %d", code)
	}
	answered(t, codes, atATime, http.StatusNotFound)
	h.taken(t, 0)
}

// A sender that does not end its requests holds the slots of one path.
func TestRequestsAtATimeAreBounded(t *testing.T) {
	var sources []*appsv1.KsctlSource
	r := newRig(t)
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
	h := newHung(t, r)
	push := func(i int) int {
		body := pushTo(sources[i].Name, "refs/heads/main")
		return h.post(t, sources[i].Status.WebhookPath, hmacOf(body), strings.NewReader(body))
	}
	var ends []func()
	var held []chan int
	hold := func(i int) {
		end, codes := h.hold(t, sources[i].Status.WebhookPath, atATimeOfOne)
		ends, held = append(ends, end), append(held, codes)
		h.taken(t, (i+1)*atATimeOfOne)
	}
	hold(0)
	if code := push(0); code != http.StatusServiceUnavailable {
		t.Errorf("one more at the same path: %d", code)
	}
	if code := push(1); code != http.StatusAccepted {
		t.Errorf("one at another path: %d", code)
	}
	for i := 1; i < atATime/atATimeOfOne; i++ {
		hold(i)
	}
	if code := push(4); code != http.StatusServiceUnavailable {
		t.Errorf("one more of all: %d", code)
	}
	for i, end := range ends {
		end()
		answered(t, held[i], atATimeOfOne, http.StatusNotFound)
	}
	h.taken(t, 0)
	if code := push(4); code != http.StatusAccepted {
		t.Errorf("afterwards: %d", code)
	}
}
