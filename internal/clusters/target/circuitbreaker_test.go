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

// guarded is a gate before a server, which can be told not to answer.
type guarded struct {
	*gate
	clock *clocktesting.FakeClock
	told  chan bool
	url   string

	mu sync.Mutex
	// down fails everything, revoked what asks how it is.
	down, revoked error
	asks          int
}

func newGuarded(t *testing.T, handler http.HandlerFunc) *guarded {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	g := &guarded{clock: clocktesting.NewFakeClock(time.Unix(0, 0)), told: make(chan bool, 10), url: server.URL}
	g.gate = &gate{id: "team.prod", cfg: &rest.Config{Host: server.URL}, clock: g.clock, doubts: make(chan struct{}, 1), wishes: make(chan struct{}, 1),
		changed: func(open bool) { g.told <- open }, connect: g.connecting,
		ask: func(context.Context, *rest.Config) (probe.Answer, error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.asks++
			return probe.Answer{}, cmp.Or(g.down, g.revoked)
		}}
	return g
}

// connecting has connections that fail while the server is down.
func (g *guarded) connecting(cfg *rest.Config) (*connections, error) {
	c, err := connect(cfg)
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

func (g *guarded) goDown(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.down = err
}

func (g *guarded) start(t *testing.T) {
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

// get returns the status of an answer.
func (g *guarded) get(t *testing.T, path string) (int, error) {
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

func (g *guarded) await(t *testing.T, open bool) {
	t.Helper()
	select {
	case got := <-g.told:
		if got != open {
			t.Fatalf("told %t, want %t", got, open)
		}
	case <-time.After(time.Minute):
		t.Fatalf("nobody was told that it is open: %t", open)
	}
}

func TestGate(t *testing.T) {
	g := newGuarded(t, func(http.ResponseWriter, *http.Request) {})
	var unreachable *UnreachableError
	if _, err := g.get(t, "/"); !errors.As(err, &unreachable) || unreachable.Err != nil {
		t.Errorf("before it was asked: %v", err)
	}
	g.start(t)
	g.await(t, true)
	if _, err := g.get(t, "/"); err != nil {
		t.Errorf("open: %v", err)
	}

	g.goDown(errors.New("the line is dead"))
	if _, err := g.get(t, "/"); !errors.As(err, &unreachable) || unreachable.Err == nil {
		t.Errorf("the first one that fails: %v", err)
	}
	if _, err := g.get(t, "/"); !errors.As(err, &unreachable) {
		t.Errorf("those after it fail without being sent: %v", err)
	}
	// It was open a moment ago: it is not asked in a circle.
	for deadline := time.Now().Add(time.Minute); !g.clock.HasWaiters(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("it waits for nothing")
		}
	}
	g.untilTold(t)
	g.await(t, false)
	if err := g.closed(); err == nil || !strings.Contains(err.Error(), "KsctlCluster team/prod does not answer: the line is dead; nothing is changed there") {
		t.Errorf("shut: %v", err)
	}

	g.goDown(nil)
	g.askNow()
	g.await(t, true)
	if _, err := g.get(t, "/"); err != nil {
		t.Errorf("open again: %v", err)
	}
	select {
	case <-g.told:
		t.Error("told twice")
	default:
	}
}

func TestGateStaysOpenForOneWhoGivesUp(t *testing.T) {
	entered := make(chan struct{})
	g := newGuarded(t, func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	})
	g.start(t)
	g.await(t, true)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-entered
		cancel()
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.RoundTrip(req); !errors.Is(err, context.Canceled) { //nolint:bodyclose // there is none
		t.Errorf("got %v", err)
	}
	if err := g.closed(); err != nil {
		t.Errorf("it is shut: %v", err)
	}
}

func TestGateFollowsNobody(t *testing.T) {
	g := newGuarded(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://elsewhere.example.com/", http.StatusTemporaryRedirect)
	})
	g.start(t)
	g.await(t, true)
	if _, err := g.get(t, "/api"); err == nil || !strings.Contains(err.Error(), "sends /api elsewhere (307)") {
		t.Errorf("got %v", err)
	}
	if err := g.closed(); err != nil {
		t.Errorf("it is shut: %v", err)
	}
}

func TestGateKeepsItsCredentials(t *testing.T) {
	g := newGuarded(t, func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "you said "+r.Header.Get("Authorization"), http.StatusForbidden)
	})
	g.cfg.BearerToken = "s3cr3t"
	g.start(t)
	g.await(t, true)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := g.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if said, err := io.ReadAll(res.Body); err != nil || string(said) != "you said Bearer …\n" {
		t.Errorf("got %s, %v", said, err)
	}
}

func TestGateAsksBesideOneThatIsRefused(t *testing.T) {
	g := newGuarded(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	g.start(t)
	g.await(t, true)
	// One API refuses, and the cluster is well: it stays open.
	if status, err := g.get(t, "/"); err != nil || status != http.StatusUnauthorized {
		t.Errorf("got %v, %v", status, err)
	}
	g.untilAsked(t, 2)
	if err := g.closed(); err != nil {
		t.Errorf("it is shut: %v", err)
	}
	// The credentials are no good any more.
	g.mu.Lock()
	g.revoked = errors.New("it does not know the user")
	g.mu.Unlock()
	if _, err := g.get(t, "/"); err != nil {
		t.Error(err)
	}
	g.untilTold(t)
	g.await(t, false)
	if err := g.closed(); err == nil || !strings.Contains(err.Error(), "does not know the user") {
		t.Errorf("it is open: %v", err)
	}
}

// A cluster that falls silent holds nobody for long.
func TestGateBreaksOffWhatHasNoAnswer(t *testing.T) {
	release := make(chan struct{})
	g := newGuarded(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	g.start(t)
	g.await(t, true)
	g.mu.Lock()
	g.revoked = errors.New("it does not answer in time")
	g.mu.Unlock()
	got := make(chan error, 1)
	go func() {
		_, err := g.get(t, "/")
		got <- err
	}()
	g.untilAsked(t, 2)
	var unreachable *UnreachableError
	// One that is not broken off ends at its own timeout, which would be told.
	if err := <-got; !errors.As(err, &unreachable) || unreachable.Err != nil {
		t.Errorf("got %v", err)
	}
	g.await(t, false)
}

// untilAsked lets time pass until the cluster was asked so often.
func (g *guarded) untilAsked(t *testing.T, n int) {
	t.Helper()
	g.until(t, fmt.Sprintf("asked %d times", n), func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.asks >= n
	})
}

// untilTold lets time pass until somebody was told.
func (g *guarded) untilTold(t *testing.T) {
	t.Helper()
	g.until(t, "told", func() bool { return len(g.told) > 0 })
}

// until lets time pass as often as somebody waits for it. Once is not enough: on a busy machine
// a request is late by itself, and what it has the gate doubt is waited for, too.
func (g *guarded) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("it was not %s within a minute", what)
		}
		if g.clock.HasWaiters() {
			g.clock.Step(doubtEvery)
		}
	}
}
