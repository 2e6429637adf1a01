package webhook

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
)

// testThrottle is a throttle that counts the calls of start.
type testThrottle struct {
	*throttle
	clock  *clocktesting.FakeClock
	starts chan struct{}
	fail   chan error // errors of the next calls of start
	n      byte
}

func newTestThrottle(t *testing.T) *testThrottle {
	ctx, cancel := context.WithCancel(t.Context())
	c := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
	g := &testThrottle{throttle: newThrottle(ctx, c), clock: c, starts: make(chan struct{}, 1000),
		fail: make(chan error, 10)}
	t.Cleanup(func() {
		cancel()
		g.waiting.Wait()
	})
	return g
}

func (g *testThrottle) start(context.Context) error {
	g.starts <- struct{}{}
	select {
	case err := <-g.fail:
		return err
	default:
		return nil
	}
}

// push admits a request with a new ID.
func (g *testThrottle) push(source string) result {
	g.n++
	return g.admitID(source, g.n)
}

func (g *testThrottle) admitID(source string, n byte) result {
	return g.admit(uid(source), &[32]byte{n}, g.start)
}

// step waits until a timer of the clock is set, then advances the clock.
func (g *testThrottle) step(t *testing.T, d time.Duration) {
	t.Helper()
	deadline := time.After(time.Minute)
	for !g.clock.HasWaiters() {
		select {
		case <-deadline:
			t.Fatal("no timer is set")
		case <-time.After(time.Millisecond):
		}
	}
	g.clock.Step(d)
}

func (g *testThrottle) expectStart(t *testing.T) {
	t.Helper()
	select {
	case <-g.starts:
	case <-time.After(time.Minute):
		t.Fatal("start was not called")
	}
}

func TestAdmitDropsDuplicates(t *testing.T) {
	g := newTestThrottle(t)
	if r := g.admitID("a", 1); r != accepted {
		t.Errorf("first: %s", r)
	}
	if r := g.admitID("a", 1); r != duplicate {
		t.Errorf("again: %s", r)
	}
	if r := g.admitID("b", 1); r != accepted {
		t.Errorf("another source: %s", r)
	}
	if len(g.starts) != 2 {
		t.Errorf("%d calls of start, want 2", len(g.starts))
	}
}

// For example, a branch is pushed back to an earlier commit.
func TestDuplicateCountsAgainAfterTheWindow(t *testing.T) {
	g := newTestThrottle(t)
	for i, c := range []struct {
		after time.Duration
		n     byte
		want  result
	}{
		// a duplicate does not extend the window
		{0, 'A', accepted}, {dedupWindow / 2, 'B', accepted}, {dedupWindow/2 - 1, 'A', duplicate},
		{1, 'A', accepted}, {0, 'A', duplicate}, {0, 'B', duplicate}, {dedupWindow / 2, 'B', accepted},
		{0, 'A', duplicate},
	} {
		g.clock.Step(c.after)
		if r := g.admitID("a", c.n); r != c.want {
			t.Errorf("request %d, %c: %s, want %s", i, c.n, r, c.want)
		}
	}
}

func TestAdmitRemembersTheLastRequests(t *testing.T) {
	g := newTestThrottle(t)
	for n := range byte(maxRemembered - 1) {
		g.admitID("a", n)
	}
	if r := g.admitID("a", 0); r != duplicate {
		t.Errorf("after %d others: %s", maxRemembered-2, r)
	}
}

var terminalErrors = map[string]error{
	"forbidden": apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("no rights")),
	"invalid":   apierrors.NewInvalid(schema.GroupKind{}, "a", nil),
}

// A terminal error is not retried, and the request counts when it is sent again.
func TestTerminalErrorLetsTheSenderRetry(t *testing.T) {
	for name, err := range terminalErrors {
		g := newTestThrottle(t)
		g.fail <- err
		if r := g.admitID("a", 1); r != failed {
			t.Errorf("%s: %s", name, r)
		}
		if r := g.admitID("a", 1); r != accepted {
			t.Errorf("%s, second request: %s", name, r)
		}
		if r := g.admitID("a", 1); r != duplicate {
			t.Errorf("%s, third request: %s", name, r)
		}
	}
}

func TestDelayedStartEndsOnTerminalError(t *testing.T) {
	for name, err := range terminalErrors {
		g := newTestThrottle(t)
		g.fail <- errors.New("no API server")
		g.fail <- err
		if r := g.admitID("a", 1); r != coalesced {
			t.Errorf("%s: %s", name, r)
		}
		g.step(t, minInterval)
		g.waiting.Wait()
		if r := g.admitID("a", 1); r != accepted || len(g.starts) != 3 {
			t.Errorf("%s, second request: %s, %d calls of start", name, r, len(g.starts))
		}
	}
}

func TestAdmitWithoutIDIsNeverADuplicate(t *testing.T) {
	g := newTestThrottle(t)
	for range 2 {
		if r := g.admit(uid("a"), nil, g.start); r != accepted {
			t.Error(r)
		}
	}
}

// Beyond the rate no push is lost, and one call of start covers all of them.
func TestPushesBeyondTheRateAreCoalesced(t *testing.T) {
	g := newTestThrottle(t)
	for i := range burst {
		if r := g.push("a"); r != accepted {
			t.Fatalf("push %d: %s", i, r)
		}
	}
	for range 100 {
		if r := g.push("a"); r != coalesced {
			t.Fatalf("push beyond the rate: %s", r)
		}
	}
	if len(g.starts) != burst {
		t.Errorf("%d calls of start, want %d", len(g.starts), burst)
	}
	if r := g.push("b"); r != accepted {
		t.Errorf("another source: %s", r)
	}
	g.expectStart(t)
	for range burst {
		g.expectStart(t)
	}
	g.step(t, minInterval)
	g.expectStart(t)
	if len(g.starts) != 0 {
		t.Errorf("%d more calls of start", len(g.starts))
	}
	g.waiting.Wait()
	if r := g.push("a"); r != coalesced {
		t.Errorf("immediately afterwards: %s", r)
	}
	g.step(t, minInterval)
	g.expectStart(t)
}

func TestFailedStartIsRetried(t *testing.T) {
	g := newTestThrottle(t)
	g.fail <- errors.New("no API server")
	g.fail <- errors.New("still none")
	if r := g.push("a"); r != coalesced {
		t.Errorf("got %s", r)
	}
	g.expectStart(t)
	if r := g.push("a"); r != coalesced {
		t.Errorf("meanwhile: %s", r)
	}
	for range 2 {
		g.step(t, minInterval)
		g.expectStart(t)
	}
	g.waiting.Wait()
	if r := g.push("a"); r != accepted {
		t.Errorf("afterwards: %s", r)
	}
}

func TestDelayedStartEndsWithTheProcess(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := newThrottle(ctx, clocktesting.NewFakeClock(time.Unix(0, 0)))
	starts := 0
	r := g.admit(uid("a"), nil, func(context.Context) error { starts++; return errors.New("no API server") })
	cancel()
	g.waiting.Wait()
	if r != coalesced || starts != 1 {
		t.Errorf("result %s after %d starts, want one, and no retry", r, starts)
	}
}
