package install

import (
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
)

func TestRenderBackoffDoublesUpToMaximum(t *testing.T) {
	stop := &stacks.StoppedError{Stack: "app", Bound: stacks.TimeBound,
		Message: "the render was stopped because it took longer than 1m0s; " +
			"simplify the stack or increase --render-timeout"}
	now := time.Unix(1000, 0)
	var s renderBackoff
	for i, minutes := range []int{1, 2, 4, 8, 16, 32, 60, 60, 60} {
		want := time.Duration(minutes) * time.Minute
		err := s.record(stop, "d", time.Minute, now)
		out, ok := renderOutcome(err, "main@sha1:1", now).(reconcile.Retry)
		if !ok || out.Reason != appsv1.RenderStoppedReason || out.RequeueAfter != want ||
			out.Revision != "main@sha1:1" {
			t.Fatalf("attempt %d: %+v, want %s", i+1, out, want)
		}
		if !strings.Contains(out.Err.Error(), "--render-timeout") {
			t.Errorf("attempt %d: the error does not name the flag: %v", i+1, out.Err)
		}
		now = s.last.retryAt
	}
	if got := s.last.retryAt.Add(-time.Second); s.check("d", got) == nil || s.check("d", s.last.retryAt) != nil {
		t.Error("the render is delayed until the time of the next attempt, and not longer")
	}
	if s.check("other", s.last.retryAt.Add(-time.Second)) != nil {
		t.Error("another render is delayed")
	}
}

func TestRenderBackoffEndsWithAnotherResult(t *testing.T) {
	stop, now := &stacks.StoppedError{}, time.Unix(1000, 0)
	for name, c := range map[string]struct {
		err    error
		digest string
	}{
		"success":          {nil, "d"},
		"an error":         {errors.New("no"), "d"},
		"another revision": {stop, "e"},
	} {
		var s renderBackoff
		for range 5 {
			_ = s.record(stop, "d", time.Minute, now)
		}
		if err := s.record(c.err, c.digest, time.Minute, now); c.digest == "d" && !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
		if s.last.attempts > 1 || s.last.retryAt.After(now.Add(time.Minute)) {
			t.Errorf("%s: still backing off: %+v", name, s)
		}
	}
}

func TestRenderBackoffKeepsLongRetryInterval(t *testing.T) {
	var s renderBackoff
	now := time.Unix(1000, 0)
	_ = s.record(&stacks.StoppedError{}, "d", 3*time.Hour, now)
	if got := s.last.retryAt.Sub(now); got != 3*time.Hour {
		t.Errorf("retried after %s", got)
	}
}
