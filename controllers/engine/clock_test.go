package engine

import (
	"errors"
	"testing"
	"time"
)

// A clock that is set forth lets go what is waited out; one that is set back
// keeps nothing waiting until it is where it was.
func TestClockJumps(t *testing.T) {
	for name, jump := range map[string]time.Duration{"a year forth": 365 * 24 * time.Hour, "a year back": -365 * 24 * time.Hour, "an hour back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			h, now := newHolds(), noon
			h.put("me", "a", hold{since: now, until: now.Add(time.Hour), err: errors.New("no")})
			for range maxCorrections {
				h.corrected("me", "b", now)
			}
			if h.why("me", "a", "", now) == "" || !h.tooMany("me", "b", now) {
				t.Fatal("both are held before the clock jumps")
			}
			now = now.Add(jump)
			if at, errs := h.standing("me", now); !at.IsZero() || errs != nil {
				t.Errorf("waits until %s for %v", at, errs)
			}
			if got := h.why("me", "a", "", now); got != "" {
				t.Errorf("is left alone: %s", got)
			}
			if h.tooMany("me", "b", now) {
				t.Error("corrections of another time count")
			}
			for range maxCorrections {
				h.corrected("me", "b", now)
			}
			if !h.tooMany("me", "b", now) {
				t.Error("corrections of this time do not count")
			}
		})
	}
}

// A pass that began before an object was held must respect that.
func TestAHoldCountsForThePassThatMadeIt(t *testing.T) {
	h := newHolds()
	h.put("me", "a", hold{since: noon, until: noon.Add(time.Hour), err: errors.New("no")})
	if h.why("me", "a", "", noon.Add(-time.Second)) == "" {
		t.Error("it is let go by the look at the clock that came before it")
	}
}
