package commitstatus

import (
	"errors"
	"testing"
	"time"
)

func TestAServerIsNotPressed(t *testing.T) {
	g, now, sent := &Gate{}, noon, 0
	for end := noon.Add(time.Minute); now.Before(end); {
		d := g.Wait(now)
		if d == 0 {
			sent++
			g.Ended(nil, now)
			continue
		}
		now = now.Add(d)
	}
	if sent < burst+55 || sent > burst+61 {
		t.Errorf("sent %d in a minute", sent)
	}
}

func TestWhatPeopleAreTold(t *testing.T) {
	refused, failed, limited := &Error{Result: Refused}, &Error{Result: Failed}, &Error{Result: Limited, After: time.Hour}
	type try struct {
		at   time.Duration
		err  error
		tell bool
		wait time.Duration
	}
	for name, tries := range map[string][]try{
		"refused: at once, and again while it lasts": {
			{0, refused, true, first}, {time.Minute, refused, false, 2 * first}, {29 * time.Minute, refused, false, 4 * first}, {30 * time.Minute, refused, true, 8 * first}},
		"failed: when it lasts": {
			{0, failed, false, first}, {time.Minute, failed, false, 2 * first}, {2 * time.Minute, failed, true, 4 * first}, {3 * time.Minute, failed, false, 8 * first}},
		"another cause": {{0, refused, true, first}, {time.Minute, failed, false, 2 * first}, {2 * time.Minute, failed, true, 4 * first}},
		"after it worked": {
			{0, refused, true, first}, {time.Minute, nil, false, 0}, {2 * time.Minute, refused, true, first}},
		"as long as the server wants": {{0, limited, false, time.Hour}, {time.Hour, limited, false, time.Hour}, {2 * time.Hour, limited, true, time.Hour}},
		"one statement":               {{0, &Error{Result: Invalid}, true, 0}},
		"no answer at all":            {{0, errors.New("no Secret"), true, first}},
	} {
		t.Run(name, func(t *testing.T) {
			g := &Gate{}
			for i, c := range tries {
				now := noon.Add(c.at)
				if _, tell := g.Ended(c.err, now); tell != c.tell {
					t.Errorf("try %d: told %v", i, tell)
				}
				if d := g.Wait(now); d != c.wait {
					t.Errorf("try %d: wait %s, want %s", i, d, c.wait)
				}
			}
			if g.Open(); g.Wait(noon) != 0 {
				t.Error("not open")
			}
		})
	}
	g := &Gate{}
	for range 100 {
		g.Ended(refused, noon)
	}
	if d := g.Wait(noon); d != longest {
		t.Errorf("in the end: wait %s", d)
	}
}
