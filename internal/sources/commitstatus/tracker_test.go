package commitstatus

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// desired returns the desired status of an install at the current commit of the source.
func desired(uid, commit string, state State, words ...string) Desired {
	s := Status{Commit: commit, Context: uid, State: state, Description: fmt.Sprint(words)}
	return Desired{Install: types.UID(uid), Status: &s, IsCurrent: true}
}

// postAll posts all statuses that are due, and returns them.
func postAll(l *Tracker, now time.Time, wanted ...Desired) (posted []string) {
	for range 100 {
		n, _, ok := l.Next(wanted, now)
		if !ok {
			return posted
		}
		posted = append(posted, fmt.Sprintf("%s %s %s", n.Context, n.Commit[:1], n.State))
		l.Posted(n, now)
	}
	return append(posted, "and so on")
}

func TestNextAndPosted(t *testing.T) {
	type step struct {
		wanted []Desired
		posted string
	}
	foreign := desired("a", two, Success)
	foreign.IsCurrent = false
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"from pending to success, once each", []step{
			{[]Desired{desired("a", one, Pending)}, "[a 1 pending]"},
			{[]Desired{desired("a", one, Pending)}, "[]"},
			{[]Desired{desired("a", one, Success)}, "[a 1 success]"},
			{[]Desired{desired("a", one, Success)}, "[]"},
		}},
		{"only the latest state", []step{{[]Desired{desired("a", one, Success)}, "[a 1 success]"}}},
		{"another message", []step{
			{[]Desired{desired("a", one, Failure, "x")}, "[a 1 failure]"},
			{[]Desired{desired("a", one, Failure, "y")}, "[a 1 failure]"},
		}},
		{"no pending after an outcome", []step{
			{[]Desired{desired("a", one, Success)}, "[a 1 success]"},
			{[]Desired{desired("a", one, Pending)}, "[]"},
			{[]Desired{desired("a", one, Success)}, "[]"},
			{[]Desired{desired("a", one, Failure)}, "[a 1 failure]"},
			{[]Desired{desired("a", one, Pending)}, "[]"},
			{[]Desired{desired("a", one, Success)}, "[a 1 success]"},
		}},
		{"another commit", []step{
			{[]Desired{desired("a", one, Success)}, "[a 1 success]"},
			{[]Desired{desired("a", two, Pending)}, "[a 2 pending]"},
		}},
		{"another commit before it was ready", []step{
			{[]Desired{desired("a", one, Pending)}, "[a 1 pending]"},
			{[]Desired{desired("a", two, Pending)}, "[a 1 canceled a 2 pending]"},
			{[]Desired{desired("a", one, Success)}, "[a 2 canceled a 1 success]"},
		}},
		{"deleted install", []step{
			{[]Desired{desired("a", one, Pending), desired("b", one, Success)}, "[a 1 pending b 1 success]"},
			{nil, "[a 1 canceled]"},
			{nil, "[]"},
		}},
		{"state unknown for a while", []step{
			{[]Desired{desired("a", one, Pending)}, "[a 1 pending]"},
			{[]Desired{{Install: "a"}}, "[]"},
			{[]Desired{desired("a", one, Success)}, "[a 1 success]"},
		}},
		{"a commit of another source", []step{{[]Desired{foreign}, "[]"}}},
		{"a previous commit of the source", []step{
			{[]Desired{desired("a", two, Pending)}, "[a 2 pending]"},
			{[]Desired{foreign}, "[a 2 success]"},
		}},
		{"known installs come before installs of an earlier process", []step{
			{[]Desired{desired("z", one, Success)}, "[z 1 success]"},
			{[]Desired{desired("a", one, Success), desired("z", two, Pending)}, "[z 2 pending a 1 success]"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &Tracker{}
			for i, s := range c.steps {
				if got := fmt.Sprint(postAll(l, noon, s.wanted...)); got != s.posted {
					t.Errorf("step %d: posted %s, want %s", i, got, s.posted)
				}
			}
		})
	}
}

func TestNextWaitsUntilNotBefore(t *testing.T) {
	for name, before := range map[string][]Desired{"after a posted success": {desired("a", one, Success)},
		"after a restart": nil} {
		l := &Tracker{}
		postAll(l, noon, before...)
		delayed := desired("a", one, Failure)
		delayed.NotBefore = noon.Add(time.Minute)
		if _, wait, ok := l.Next([]Desired{delayed}, noon.Add(time.Second)); ok || wait != 59*time.Second {
			t.Errorf("%s: wait %s, due %v", name, wait, ok)
		}
		if got := postAll(l, noon.Add(time.Minute), delayed); fmt.Sprint(got) != "[a 1 failure]" {
			t.Errorf("%s: then posted %s", name, got)
		}
	}
}

func TestNextPrefersInstallsWithoutFailures(t *testing.T) {
	l := &Tracker{}
	wanted := []Desired{desired("a", one, Success), desired("b", one, Success)}
	n, _, _ := l.Next(wanted, noon)
	l.Failed(n)
	if n.Context != "a" || fmt.Sprint(postAll(l, noon, wanted...)) != "[b 1 success a 1 success]" {
		t.Errorf("first status %s, or wrong order after the failure", n.Context)
	}
}

func TestFlappingInstallIsPostedLessAndLess(t *testing.T) {
	l, now, last := &Tracker{}, noon, State("")
	posted := 0
	for end := noon.Add(7 * 24 * time.Hour); now.Before(end); {
		state := Success
		if last == Success {
			state = Failure
		}
		n, wait, ok := l.Next([]Desired{desired("a", one, state)}, now)
		if !ok {
			if wait <= 0 || wait > time.Hour {
				t.Fatalf("after %d statuses: wait %s", posted, wait)
			}
			now = now.Add(wait)
			continue
		}
		l.Posted(n, now)
		last = state
		posted++
		now = now.Add(time.Second)
	}
	if posted < 7*24 || posted > 200 {
		t.Errorf("%d statuses in a week", posted)
	}
	if n, _, ok := l.Next([]Desired{desired("a", two, Failure)}, now); !ok || n.Commit != two {
		t.Error("the status of another commit is delayed")
	}
}
