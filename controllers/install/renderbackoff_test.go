package install

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/content"
	"github.com/ksctl/gitops/stacks"
)

func TestAStoppedRenderIsTriedLaterAndLater(t *testing.T) {
	stop := &stacks.StoppedError{Stack: "app", Bound: stacks.TimeBound, Message: "the render took longer than 1m0s, which --render-timeout allows, and was stopped"}
	now := time.Unix(1000, 0)
	var s setback
	for i, minutes := range []int{1, 2, 4, 8, 16, 32, 60, 60, 60} {
		want := time.Duration(minutes) * time.Minute
		err := s.after(stop, "d", time.Minute, now)
		out, ok := renderOutcome(err, "main@sha1:1", now).(reconcile.Retry)
		if !ok || out.Reason != content.RenderStoppedReason || out.After != want || out.Revision != "main@sha1:1" {
			t.Fatalf("try %d: %+v, want %s", i+1, out, want)
		}
		if !strings.Contains(out.Err.Error(), "--render-timeout") {
			t.Errorf("try %d does not name the flag: %v", i+1, out.Err)
		}
		now = s.until
	}
	if got := s.until.Add(-time.Second); s.holds("d", got) == nil || s.holds("d", s.until) != nil {
		t.Error("it is held until the time has come, and not longer")
	}
	if s.holds("other", s.until.Add(-time.Second)) != nil {
		t.Error("another render is held")
	}
}

func TestASetbackEndsWithTheNextOutcome(t *testing.T) {
	stop, now := &stacks.StoppedError{}, time.Unix(1000, 0)
	for name, c := range map[string]struct {
		err    error
		digest string
	}{
		"success":          {nil, "d"},
		"an error":         {errors.New("no"), "d"},
		"another revision": {stop, "e"},
	} {
		var s setback
		for range 5 {
			_ = s.after(stop, "d", time.Minute, now)
		}
		if err := s.after(c.err, c.digest, time.Minute, now); c.digest == "d" && !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
		if s.times > 1 || s.until.After(now.Add(time.Minute)) {
			t.Errorf("%s: still held back: %+v", name, s)
		}
	}
}

func TestALongRetryIntervalIsKept(t *testing.T) {
	var s setback
	now := time.Unix(1000, 0)
	_ = s.after(&stacks.StoppedError{}, "d", 3*time.Hour, now)
	if got := s.until.Sub(now); got != 3*time.Hour {
		t.Errorf("tried again after %s", got)
	}
}
