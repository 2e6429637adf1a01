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

// testProber is a running Prober with a fake clock and a fake probe function.
type testProber struct {
	*Prober
	t       *testing.T
	clock   *clocktesting.FakePassiveClock
	results chan types.NamespacedName

	mu    sync.Mutex
	count map[string]int
}

func newTestProber(t *testing.T, answer func(ctx context.Context, host string) (probe.Result, error)) *testProber {
	a := &testProber{t: t, clock: clocktesting.NewFakePassiveClock(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)),
		results: make(chan types.NamespacedName, 1000), count: map[string]int{}}
	a.Prober = NewProber(a.clock)
	a.OnResult = func(key types.NamespacedName) { a.results <- key }
	a.probeFunc = func(ctx context.Context, cfg *rest.Config) (probe.Result, error) {
		a.mu.Lock()
		a.count[cfg.Host]++
		a.mu.Unlock()
		return answer(ctx, cfg.Host)
	}
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

func (a *testProber) probes(host string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count[host]
}

func clusterKey(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "x", Name: fmt.Sprint("c", i)}
}

func requestFor(host string) probeRequest {
	q := probeRequest{config: &rest.Config{Host: host}, timeout: time.Minute, interval: time.Hour}
	copy(q.accessHash[:], host)
	return q
}

// await waits until the probe of a cluster has ended.
func (a *testProber) await(key types.NamespacedName) {
	a.t.Helper()
	for {
		select {
		case got := <-a.results:
			if got == key {
				return
			}
		case <-time.After(time.Minute):
			a.t.Fatalf("no result for %s within a minute", key)
		}
	}
}

func TestResultIsReusedUntilItExpires(t *testing.T) {
	a := newTestProber(t, func(context.Context, string) (probe.Result, error) {
		return probe.Result{Version: "v1"}, nil
	})
	if _, ok := a.result(clusterKey(0), requestFor("a")); ok {
		t.Fatal("there is a result before the first probe")
	}
	a.await(clusterKey(0))
	for range 3 {
		result, ok := a.result(clusterKey(0), requestFor("a"))
		if !ok || result.Version != "v1" || result.err != nil || !result.nextProbe.Equal(a.clock.Now().Add(time.Hour)) {
			t.Fatalf("got %+v, %v", result, ok)
		}
	}
	if n := a.probes("a"); n != 1 {
		t.Errorf("%d probes", n)
	}
	a.clock.SetTime(a.clock.Now().Add(time.Hour))
	if result, ok := a.result(clusterKey(0), requestFor("a")); !ok || result.Version != "v1" ||
		result.nextProbe.Before(a.clock.Now().Add(time.Hour)) {
		t.Errorf("the last result is not returned during the next probe: %+v, %v", result, ok)
	}
	a.await(clusterKey(0))
	if n := a.probes("a"); n != 2 {
		t.Errorf("%d probes", n)
	}
}

func TestNewAccessAndRequestTokenStartProbes(t *testing.T) {
	a := newTestProber(t, func(_ context.Context, host string) (probe.Result, error) {
		return probe.Result{Version: host}, nil
	})
	a.result(clusterKey(0), requestFor("a"))
	a.await(clusterKey(0))
	if _, ok := a.result(clusterKey(0), requestFor("b")); ok {
		t.Error("the result for one access is returned for another")
	}
	a.await(clusterKey(0))
	if result, ok := a.result(clusterKey(0), requestFor("b")); !ok || result.Version != "b" {
		t.Errorf("got %+v, %v", result, ok)
	}
	now := requestFor("b")
	now.requestToken = "now"
	if _, ok := a.result(clusterKey(0), now); ok {
		t.Error("a result from before the request is returned for it")
	}
	a.await(clusterKey(0))
	if _, ok := a.result(clusterKey(0), now); !ok {
		t.Error("no result after the requested probe")
	}
	if n := a.probes("b"); n != 2 {
		t.Errorf("%d probes", n)
	}
}

func TestFailedProbesBackOff(t *testing.T) {
	down := errors.New("down")
	a := newTestProber(t, func(context.Context, string) (probe.Result, error) { return probe.Result{}, down })
	q := requestFor("a")
	q.interval = 100 * time.Second
	for _, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second,
		100 * time.Second, 100 * time.Second} {
		a.result(clusterKey(0), q)
		a.await(clusterKey(0))
		result, ok := a.result(clusterKey(0), q)
		if !ok || !errors.Is(result.err, down) || result.nextProbe.Sub(a.clock.Now()) != want {
			t.Fatalf("got %+v, %v; want the next probe in %s, not in %s", result, ok, want,
				result.nextProbe.Sub(a.clock.Now()))
		}
		a.clock.SetTime(result.nextProbe)
	}
}

// More probes hang than there are workers, and the probe of a healthy cluster does not wait for
// them.
func TestHangingProbesDoNotDelayOthers(t *testing.T) {
	hang := make(chan struct{})
	var mu sync.Mutex
	failedOnce := map[string]bool{}
	a := newTestProber(t, func(ctx context.Context, host string) (probe.Result, error) {
		if host == "well" {
			return probe.Result{Version: "v1"}, nil
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
		return probe.Result{}, errors.New("down")
	})
	const many = 2 * (workers + retryWorkers)
	for i := range many {
		a.result(clusterKey(i), requestFor(fmt.Sprint("hangs", i)))
	}
	for range many {
		<-a.results
	}
	a.clock.SetTime(a.clock.Now().Add(time.Hour))
	for i := range many { // the second probes hang
		a.result(clusterKey(i), requestFor(fmt.Sprint("hangs", i)))
	}
	a.result(clusterKey(many), requestFor("well"))
	a.await(clusterKey(many))
	close(hang)
}

func TestForgetDropsResult(t *testing.T) {
	a := newTestProber(t, func(context.Context, string) (probe.Result, error) {
		return probe.Result{Version: "v1"}, nil
	})
	a.result(clusterKey(0), requestFor("a"))
	a.await(clusterKey(0))
	a.Forget(clusterKey(0))
	if _, ok := a.result(clusterKey(0), requestFor("a")); ok {
		t.Error("the result is kept after Forget")
	}
}
