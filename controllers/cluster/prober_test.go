package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ksctl/gitops/internal/clusters/probe"
)

// asked is a prober whose clusters answer as a function says.
type asked struct {
	*Prober
	t     *testing.T
	clock *clocktesting.FakePassiveClock
	woken chan types.NamespacedName

	mu    sync.Mutex
	count map[string]int
}

func newAsked(t *testing.T, answer func(ctx context.Context, host string) (probe.Answer, error)) *asked {
	a := &asked{t: t, clock: clocktesting.NewFakePassiveClock(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)), woken: make(chan types.NamespacedName, 1000), count: map[string]int{}}
	a.Prober = &Prober{Clock: a.clock, Wake: func(key types.NamespacedName) { a.woken <- key }, ask: func(ctx context.Context, cfg *rest.Config) (probe.Answer, error) {
		a.mu.Lock()
		a.count[cfg.Host]++
		a.mu.Unlock()
		return answer(ctx, cfg.Host)
	}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return a
}

func (a *asked) times(host string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count[host]
}

func named(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "x", Name: fmt.Sprint("c", i)}
}

func at(host string) question {
	q := question{config: &rest.Config{Host: host}, within: time.Minute, interval: time.Hour}
	copy(q.id[:], host)
	return q
}

// await waits until a cluster has answered.
func (a *asked) await(key types.NamespacedName) {
	a.t.Helper()
	for {
		select {
		case got := <-a.woken:
			if got == key {
				return
			}
		case <-time.After(time.Minute):
			a.t.Fatalf("%s is not woken", key)
		}
	}
}

func TestAnOpinionIsAskedForOnce(t *testing.T) {
	a := newAsked(t, func(context.Context, string) (probe.Answer, error) { return probe.Answer{Version: "v1"}, nil })
	if _, ok := a.opinion(named(0), at("a")); ok {
		t.Fatal("it is known before it was asked for")
	}
	a.await(named(0))
	for range 3 {
		said, ok := a.opinion(named(0), at("a"))
		if !ok || said.Version != "v1" || said.err != nil || !said.next.Equal(a.clock.Now().Add(time.Hour)) {
			t.Fatalf("got %+v, %v", said, ok)
		}
	}
	if n := a.times("a"); n != 1 {
		t.Errorf("asked %d times", n)
	}
	a.clock.SetTime(a.clock.Now().Add(time.Hour))
	if said, ok := a.opinion(named(0), at("a")); !ok || said.Version != "v1" || said.next.Before(a.clock.Now().Add(time.Hour)) {
		t.Errorf("what it said last does not hold while it is asked again: %+v, %v", said, ok)
	}
	a.await(named(0))
	if n := a.times("a"); n != 2 {
		t.Errorf("asked %d times", n)
	}
}

func TestAnotherAccessAndATokenAskAnew(t *testing.T) {
	a := newAsked(t, func(_ context.Context, host string) (probe.Answer, error) { return probe.Answer{Version: host}, nil })
	a.opinion(named(0), at("a"))
	a.await(named(0))
	if _, ok := a.opinion(named(0), at("b")); ok {
		t.Error("what the one said is taken for what the other says")
	}
	a.await(named(0))
	if said, ok := a.opinion(named(0), at("b")); !ok || said.Version != "b" {
		t.Errorf("got %+v, %v", said, ok)
	}
	now := at("b")
	now.token = "now"
	if _, ok := a.opinion(named(0), now); ok {
		t.Error("what it said before is the answer to a wish to ask it now")
	}
	a.await(named(0))
	if _, ok := a.opinion(named(0), now); !ok {
		t.Error("the answer is not one to the wish")
	}
	if n := a.times("b"); n != 2 {
		t.Errorf("asked %d times", n)
	}
}

func TestBackoff(t *testing.T) {
	down := errors.New("down")
	a := newAsked(t, func(context.Context, string) (probe.Answer, error) { return probe.Answer{}, down })
	q := at("a")
	q.interval = 100 * time.Second
	for _, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 100 * time.Second, 100 * time.Second} {
		a.opinion(named(0), q)
		a.await(named(0))
		said, ok := a.opinion(named(0), q)
		if !ok || !errors.Is(said.err, down) || said.next.Sub(a.clock.Now()) != want {
			t.Fatalf("got %+v, %v; want it asked again in %s, not in %s", said, ok, want, said.next.Sub(a.clock.Now()))
		}
		a.clock.SetTime(said.next)
	}
}

// More of them than are asked at a time hang, and one that answers waits for none.
func TestNobodyWaitsForThoseThatHang(t *testing.T) {
	hang := make(chan struct{})
	var mu sync.Mutex
	failedOnce := map[string]bool{}
	a := newAsked(t, func(ctx context.Context, host string) (probe.Answer, error) {
		if host == "well" {
			return probe.Answer{Version: "v1"}, nil
		}
		mu.Lock()
		again := failedOnce[host]
		failedOnce[host] = true
		mu.Unlock()
		if again {
			select {
			case <-hang:
			case <-ctx.Done():
			}
		}
		return probe.Answer{}, errors.New("down")
	})
	const many = 2 * (probers + failing)
	for i := range many {
		a.opinion(named(i), at(fmt.Sprint("hangs", i)))
	}
	for range many {
		<-a.woken
	}
	a.clock.SetTime(a.clock.Now().Add(time.Hour))
	for i := range many { // now they hang
		a.opinion(named(i), at(fmt.Sprint("hangs", i)))
	}
	a.opinion(named(many), at("well"))
	a.await(named(many))
	close(hang)
}

func TestForget(t *testing.T) {
	a := newAsked(t, func(context.Context, string) (probe.Answer, error) { return probe.Answer{Version: "v1"}, nil })
	a.opinion(named(0), at("a"))
	a.await(named(0))
	a.Forget(named(0))
	if _, ok := a.opinion(named(0), at("a")); ok {
		t.Error("it is known still")
	}
}
