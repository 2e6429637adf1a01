package target

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ksctl/gitops/internal/clusters/probe"
)

// testBreaker is a circuit breaker in front of a server that can be made to fail.
type testBreaker struct {
	*circuitBreaker
	clock         *clocktesting.FakeClock
	notifications chan bool
	url           string

	mu sync.Mutex
	// down is the error of all requests and probes, revoked that of probes only.
	down, revoked error
	probes        int
}

func newTestBreaker(t *testing.T, handler http.HandlerFunc) *testBreaker {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	g := &testBreaker{clock: clocktesting.NewFakeClock(time.Unix(0, 0)), notifications: make(chan bool, 10),
		url: server.URL}
	g.circuitBreaker = &circuitBreaker{id: "team.prod", cfg: &rest.Config{Host: server.URL}, clock: g.clock,
		pendingProbes: make(chan struct{}, 1), immediateProbes: make(chan struct{}, 1),
		availabilityChanged: func(open bool) { g.notifications <- open }, connect: g.connectFailing,
		probeCluster: func(context.Context, *rest.Config) (probe.Result, error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.probes++
			return probe.Result{}, cmp.Or(g.down, g.revoked)
		}}
	return g
}

// connectFailing returns connections that fail while the server is down.
func (g *testBreaker) connectFailing(cfg *rest.Config) (*connections, error) {
	c, err := newConnections(cfg)
	if err != nil {
		return nil, err
	}
	inner := c.RoundTripper
	c.RoundTripper = roundTrip(func(r *http.Request) (*http.Response, error) {
		g.mu.Lock()
		down := g.down
		g.mu.Unlock()
		if down != nil {
			return nil, down
		}
		return inner.RoundTrip(r)
	})
	return c, nil
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (g *testBreaker) setDown(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.down = err
}

func (g *testBreaker) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// get sends a request and returns the status code.
func (g *testBreaker) get(t *testing.T, path string) (int, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url+path, nil)
	if err != nil {
		return 0, err
	}
	res, err := g.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}

func (g *testBreaker) awaitAvailable(t *testing.T, available bool) {
	t.Helper()
	select {
	case got := <-g.notifications:
		if got != available {
			t.Fatalf("notified available=%t, want %t", got, available)
		}
	case <-time.After(time.Minute):
		t.Fatalf("no notification of available=%t", available)
	}
}

func TestCircuitBreaker(t *testing.T) {
	g := newTestBreaker(t, func(http.ResponseWriter, *http.Request) {})
	var unreachable *UnreachableError
	if _, err := g.get(t, "/"); !errors.As(err, &unreachable) || unreachable.Err != nil {
		t.Errorf("before the first probe: %v", err)
	}
	g.start(t)
	g.awaitAvailable(t, true)
	if _, err := g.get(t, "/"); err != nil {
		t.Errorf("available: %v", err)
	}

	g.setDown(errors.New("the line is dead"))
	if _, err := g.get(t, "/"); !errors.As(err, &unreachable) || unreachable.Err == nil {
		t.Errorf("the first failing request: %v", err)
	}
	if _, err := g.get(t, "/"); !errors.As(err, &unreachable) {
		t.Errorf("later requests must fail without being sent: %v", err)
	}
	// The cluster was available a moment ago: it is not probed in a busy loop.
	for deadline := time.Now().Add(time.Minute); !g.clock.HasWaiters(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the circuit breaker does not wait for the clock")
		}
	}
	g.awaitNotification(t)
	g.awaitAvailable(t, false)
	if err := g.unavailable(); err == nil ||
		!strings.Contains(err.Error(),
			"KsctlCluster team/prod does not answer: the line is dead; nothing is changed there") {
		t.Errorf("unavailable: %v", err)
	}

	g.setDown(nil)
	signal(g.immediateProbes)
	g.awaitAvailable(t, true)
	if _, err := g.get(t, "/"); err != nil {
		t.Errorf("available again: %v", err)
	}
	select {
	case <-g.notifications:
		t.Error("notified twice")
	default:
	}
}

func TestCanceledRequestDoesNotTrip(t *testing.T) {
	entered := make(chan struct{})
	g := newTestBreaker(t, func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	})
	g.start(t)
	g.awaitAvailable(t, true)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-entered
		cancel()
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	// nolint:bodyclose // a failed request has no body
	if _, err := g.RoundTrip(req); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := g.unavailable(); err != nil {
		t.Errorf("the cluster is unavailable: %v", err)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	g := newTestBreaker(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://elsewhere.example.com/", http.StatusTemporaryRedirect)
	})
	g.start(t)
	g.awaitAvailable(t, true)
	if _, err := g.get(t, "/api"); err == nil || !strings.Contains(err.Error(), "redirects /api (307)") {
		t.Errorf("got %v", err)
	}
	if err := g.unavailable(); err != nil {
		t.Errorf("the cluster is unavailable: %v", err)
	}
}

func TestCredentialsAreMaskedInErrors(t *testing.T) {
	g := newTestBreaker(t, func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "you said "+r.Header.Get("Authorization"), http.StatusForbidden)
	})
	g.cfg.BearerToken = "s3cr3t"
	g.start(t)
	g.awaitAvailable(t, true)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := g.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if body, err := io.ReadAll(res.Body); err != nil || string(body) != "you said Bearer …\n" {
		t.Errorf("got %s, %v", body, err)
	}
}

func TestUnauthorizedResponseTriggersProbe(t *testing.T) {
	g := newTestBreaker(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	g.start(t)
	g.awaitAvailable(t, true)
	// One API rejects the credentials, but the probe succeeds: the cluster stays available.
	if status, err := g.get(t, "/"); err != nil || status != http.StatusUnauthorized {
		t.Errorf("got %v, %v", status, err)
	}
	g.awaitProbes(t, 2)
	if err := g.unavailable(); err != nil {
		t.Errorf("the cluster is unavailable: %v", err)
	}
	// The probe fails, too: the credentials are revoked.
	g.mu.Lock()
	g.revoked = errors.New("it does not know the user")
	g.mu.Unlock()
	if _, err := g.get(t, "/"); err != nil {
		t.Error(err)
	}
	g.awaitNotification(t)
	g.awaitAvailable(t, false)
	if err := g.unavailable(); err == nil || !strings.Contains(err.Error(), "does not know the user") {
		t.Errorf("the cluster is available: %v", err)
	}
}

// A cluster that stops answering does not block requests for long.
func TestFailedProbeAbortsPendingRequests(t *testing.T) {
	release := make(chan struct{})
	g := newTestBreaker(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	g.start(t)
	g.awaitAvailable(t, true)
	g.mu.Lock()
	g.revoked = errors.New("it does not answer in time")
	g.mu.Unlock()
	got := make(chan error, 1)
	go func() {
		_, err := g.get(t, "/")
		got <- err
	}()
	g.awaitProbes(t, 2)
	var unreachable *UnreachableError
	// A request that was not aborted would end at its own timeout, with an Err.
	if err := <-got; !errors.As(err, &unreachable) || unreachable.Err != nil {
		t.Errorf("got %v", err)
	}
	g.awaitAvailable(t, false)
}

// awaitProbes steps the clock until the cluster was probed n times.
func (g *testBreaker) awaitProbes(t *testing.T, n int) {
	t.Helper()
	g.stepUntil(t, fmt.Sprintf("probed %d times", n), func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.probes >= n
	})
}

// awaitNotification steps the clock until there is a notification.
func (g *testBreaker) awaitNotification(t *testing.T) {
	t.Helper()
	g.stepUntil(t, "notified", func() bool { return len(g.notifications) > 0 })
}

// stepUntil steps the clock whenever something waits for it, until done returns true. One step is
// not enough: on a busy machine a request may exceed slowRequest by itself, and the probe that it
// triggers waits for the clock, too.
func (g *testBreaker) stepUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("the circuit breaker has not %s within a minute", what)
		}
		if g.clock.HasWaiters() {
			g.clock.Step(minRecheckInterval)
		}
	}
}
