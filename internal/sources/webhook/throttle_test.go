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

// gated is a gate whose looks are counted.
type gated struct {
	*gate
	clock *clocktesting.FakeClock
	looks chan struct{}
	fail  chan error // what the next look ends with
	n     byte
}

func newGated(t *testing.T) *gated {
	ctx, cancel := context.WithCancel(t.Context())
	c := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
	g := &gated{gate: newGate(ctx, c), clock: c, looks: make(chan struct{}, 1000), fail: make(chan error, 10)}
	t.Cleanup(func() {
		cancel()
		g.waiting.Wait()
	})
	return g
}

func (g *gated) start(context.Context) error {
	g.looks <- struct{}{}
	select {
	case err := <-g.fail:
		return err
	default:
		return nil
	}
}

// push is a request that never came before.
func (g *gated) push(source string) result {
	g.n++
	return g.again(source, g.n)
}

func (g *gated) again(source string, n byte) result {
	return g.pass(uid(source), &[32]byte{n}, g.start)
}

// waits until somebody waits for the clock, then lets time pass.
func (g *gated) step(t *testing.T, d time.Duration) {
	t.Helper()
	deadline := time.After(time.Minute)
	for !g.clock.HasWaiters() {
		select {
		case <-deadline:
			t.Fatal("nothing is to come")
		case <-time.After(time.Millisecond):
		}
	}
	g.clock.Step(d)
}

func (g *gated) look(t *testing.T) {
	t.Helper()
	select {
	case <-g.looks:
	case <-time.After(time.Minute):
		t.Fatal("no look")
	}
}

func TestARequestCountsOnce(t *testing.T) {
	g := newGated(t)
	if r := g.again("a", 1); r != accepted {
		t.Errorf("first: %s", r)
	}
	if r := g.again("a", 1); r != seen {
		t.Errorf("again: %s", r)
	}
	if r := g.again("b", 1); r != accepted {
		t.Errorf("of another source: %s", r)
	}
	if len(g.looks) != 2 {
		t.Errorf("%d looks, want 2", len(g.looks))
	}
}

// As when a branch is pushed back to where it was.
func TestARequestCountsAgainAfterAMinute(t *testing.T) {
	g := newGated(t)
	for i, c := range []struct {
		after time.Duration
		n     byte
		want  result
	}{
		{0, 'A', accepted}, {rememberFor / 2, 'B', accepted}, {rememberFor/2 - 1, 'A', seen}, // which does not prolong it
		{1, 'A', accepted}, {0, 'A', seen}, {0, 'B', seen}, {rememberFor / 2, 'B', accepted}, {0, 'A', seen},
	} {
		g.clock.Step(c.after)
		if r := g.again("a", c.n); r != c.want {
			t.Errorf("request %d, %c: %s, want %s", i, c.n, r, c.want)
		}
	}
}

func TestTheLastRequestsAreRemembered(t *testing.T) {
	g := newGated(t)
	for n := range byte(remembered - 1) {
		g.again("a", n)
	}
	if r := g.again("a", 0); r != seen {
		t.Errorf("after %d others: %s", remembered-2, r)
	}
}

var refusals = map[string]error{
	"forbidden": apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("no rights")),
	"invalid":   apierrors.NewInvalid(schema.GroupKind{}, "a", nil),
}

// What the API server refuses is not tried for ever, and counts when it is sent again.
func TestALookThatIsRefusedIsForTheSenderToTryAgain(t *testing.T) {
	for name, err := range refusals {
		g := newGated(t)
		g.fail <- err
		if r := g.again("a", 1); r != failed {
			t.Errorf("%s: %s", name, r)
		}
		if r := g.again("a", 1); r != accepted {
			t.Errorf("%s, again: %s", name, r)
		}
		if r := g.again("a", 1); r != seen {
			t.Errorf("%s, once more: %s", name, r)
		}
	}
}

func TestALookToComeThatIsRefusedIsNotTriedForEver(t *testing.T) {
	for name, err := range refusals {
		g := newGated(t)
		g.fail <- errors.New("no API server")
		g.fail <- err
		if r := g.again("a", 1); r != gathered {
			t.Errorf("%s: %s", name, r)
		}
		g.step(t, every)
		g.waiting.Wait()
		if r := g.again("a", 1); r != accepted || len(g.looks) != 3 {
			t.Errorf("%s, again: %s, %d looks", name, r, len(g.looks))
		}
	}
}

func TestWithoutANameItMayComeAgain(t *testing.T) {
	g := newGated(t)
	for range 2 {
		if r := g.pass(uid("a"), nil, g.start); r != accepted {
			t.Error(r)
		}
	}
}

// Beyond the rate nothing is lost, and one look does for all.
func TestPushesBeyondTheRateAreGathered(t *testing.T) {
	g := newGated(t)
	for i := range burst {
		if r := g.push("a"); r != accepted {
			t.Fatalf("push %d: %s", i, r)
		}
	}
	for range 100 {
		if r := g.push("a"); r != gathered {
			t.Fatalf("a push too many: %s", r)
		}
	}
	if len(g.looks) != burst {
		t.Errorf("%d looks, want %d", len(g.looks), burst)
	}
	if r := g.push("b"); r != accepted {
		t.Errorf("another source: %s", r)
	}
	g.look(t)
	for range burst {
		g.look(t)
	}
	g.step(t, every)
	g.look(t)
	if len(g.looks) != 0 {
		t.Errorf("%d looks more", len(g.looks))
	}
	g.waiting.Wait()
	if r := g.push("a"); r != gathered {
		t.Errorf("at once after it: %s", r)
	}
	g.step(t, every)
	g.look(t)
}

func TestALookThatFailsIsTriedAgain(t *testing.T) {
	g := newGated(t)
	g.fail <- errors.New("no API server")
	g.fail <- errors.New("still none")
	if r := g.push("a"); r != gathered {
		t.Errorf("got %s", r)
	}
	g.look(t)
	if r := g.push("a"); r != gathered {
		t.Errorf("meanwhile: %s", r)
	}
	for range 2 {
		g.step(t, every)
		g.look(t)
	}
	g.waiting.Wait()
	if r := g.push("a"); r != accepted {
		t.Errorf("afterwards: %s", r)
	}
}

func TestNothingWaitsWhenTheProcessEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := newGate(ctx, clocktesting.NewFakeClock(time.Unix(0, 0)))
	g.pass(uid("a"), nil, func(context.Context) error { return errors.New("no API server") })
	cancel()
	g.waiting.Wait()
}
