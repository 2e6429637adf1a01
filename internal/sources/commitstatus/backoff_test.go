package commitstatus

import (
	"errors"
	"testing"
	"time"
)

func TestWaitLimitsTheRate(t *testing.T) {
	g, now, sent := &Backoff{}, noon, 0
	for end := noon.Add(time.Minute); now.Before(end); {
		d := g.Wait(now)
		if d == 0 {
			sent++
			g.Record(nil, now)
			continue
		}
		now = now.Add(d)
	}
	if sent < burst+55 || sent > burst+61 {
		t.Errorf("sent %d in a minute", sent)
	}
}

func TestRecordReportsFailures(t *testing.T) {
	refused, failed, limited := &Error{Result: Refused}, &Error{Result: Failed},
		&Error{Result: Limited, RetryAfter: time.Hour}
	type try struct {
		at     time.Duration
		err    error
		report bool
		wait   time.Duration
	}
	for name, tries := range map[string][]try{
		"refused: reported at once, and again while it lasts": {
			{0, refused, true, minBackoff}, {time.Minute, refused, false, 2 * minBackoff},
			{29 * time.Minute, refused, false, 4 * minBackoff}, {30 * time.Minute, refused, true, 8 * minBackoff}},
		"failed: reported when it lasts": {
			{0, failed, false, minBackoff}, {time.Minute, failed, false, 2 * minBackoff},
			{2 * time.Minute, failed, true, 4 * minBackoff}, {3 * time.Minute, failed, false, 8 * minBackoff}},
		"another result": {{0, refused, true, minBackoff}, {time.Minute, failed, false, 2 * minBackoff},
			{2 * time.Minute, failed, true, 4 * minBackoff}},
		"after a success": {
			{0, refused, true, minBackoff}, {time.Minute, nil, false, 0}, {2 * time.Minute, refused, true, minBackoff}},
		"Retry-After of the server": {{0, limited, false, time.Hour}, {time.Hour, limited, false, time.Hour},
			{2 * time.Hour, limited, true, time.Hour}},
		"invalid status": {{0, &Error{Result: Invalid}, true, 0}},
		"other error":    {{0, errors.New("no Secret"), true, minBackoff}},
	} {
		t.Run(name, func(t *testing.T) {
			g := &Backoff{}
			for i, c := range tries {
				now := noon.Add(c.at)
				if _, report := g.Record(c.err, now); report != c.report {
					t.Errorf("try %d: reported %v", i, report)
				}
				if d := g.Wait(now); d != c.wait {
					t.Errorf("try %d: wait %s, want %s", i, d, c.wait)
				}
			}
			if g.Reset(); g.Wait(noon) != 0 {
				t.Error("still waiting after Reset")
			}
		})
	}
	g := &Backoff{}
	for range 100 {
		g.Record(refused, noon)
	}
	if d := g.Wait(noon); d != maxBackoff {
		t.Errorf("after 100 failures: wait %s", d)
	}
}
