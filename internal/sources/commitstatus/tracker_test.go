package commitstatus

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// want is an install at a commit, which the source offers.
func want(uid, commit string, state State, words ...string) Wanted {
	s := Statement{Commit: commit, Context: uid, State: state, Description: fmt.Sprint(words)}
	return Wanted{Install: types.UID(uid), Statement: &s, Offered: true}
}

// all says all that there is to say now, at once.
func all(l *Ledger, now time.Time, wanted ...Wanted) (said []string) {
	for range 100 {
		n, _, ok := l.Next(wanted, now)
		if !ok {
			return said
		}
		said = append(said, fmt.Sprintf("%s %s %s", n.Context, n.Commit[:1], n.State))
		l.Said(n, now)
	}
	return append(said, "and so on")
}

func TestWhatIsSaidWhen(t *testing.T) {
	type step struct {
		wanted []Wanted
		said   string
	}
	foreign := want("a", two, Success)
	foreign.Offered = false
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"from pending to success, once each", []step{
			{[]Wanted{want("a", one, Pending)}, "[a 1 pending]"},
			{[]Wanted{want("a", one, Pending)}, "[]"},
			{[]Wanted{want("a", one, Success)}, "[a 1 success]"},
			{[]Wanted{want("a", one, Success)}, "[]"},
		}},
		{"the newest state alone", []step{{[]Wanted{want("a", one, Success)}, "[a 1 success]"}}},
		{"another message", []step{
			{[]Wanted{want("a", one, Failure, "x")}, "[a 1 failure]"},
			{[]Wanted{want("a", one, Failure, "y")}, "[a 1 failure]"},
		}},
		{"what was installed is not installed again", []step{
			{[]Wanted{want("a", one, Success)}, "[a 1 success]"},
			{[]Wanted{want("a", one, Pending)}, "[]"},
			{[]Wanted{want("a", one, Success)}, "[]"},
			{[]Wanted{want("a", one, Failure)}, "[a 1 failure]"},
			{[]Wanted{want("a", one, Pending)}, "[]"},
			{[]Wanted{want("a", one, Success)}, "[a 1 success]"},
		}},
		{"another commit", []step{
			{[]Wanted{want("a", one, Success)}, "[a 1 success]"},
			{[]Wanted{want("a", two, Pending)}, "[a 2 pending]"},
		}},
		{"another commit before it was ready", []step{
			{[]Wanted{want("a", one, Pending)}, "[a 1 pending]"},
			{[]Wanted{want("a", two, Pending)}, "[a 1 given-up a 2 pending]"},
			{[]Wanted{want("a", one, Success)}, "[a 2 given-up a 1 success]"},
		}},
		{"an install that goes", []step{
			{[]Wanted{want("a", one, Pending), want("b", one, Success)}, "[a 1 pending b 1 success]"},
			{nil, "[a 1 given-up]"},
			{nil, "[]"},
		}},
		{"nothing to be said for a while", []step{
			{[]Wanted{want("a", one, Pending)}, "[a 1 pending]"},
			{[]Wanted{{Install: "a"}}, "[]"},
			{[]Wanted{want("a", one, Success)}, "[a 1 success]"},
		}},
		{"a commit of another source", []step{{[]Wanted{foreign}, "[]"}}},
		{"a commit that the source no longer offers", []step{
			{[]Wanted{want("a", two, Pending)}, "[a 2 pending]"},
			{[]Wanted{foreign}, "[a 2 success]"},
		}},
		{"what is new comes before what may be known", []step{
			{[]Wanted{want("z", one, Success)}, "[z 1 success]"},
			{[]Wanted{want("a", one, Success), want("z", two, Pending)}, "[z 2 pending a 1 success]"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &Ledger{}
			for i, s := range c.steps {
				if got := fmt.Sprint(all(l, noon, s.wanted...)); got != s.said {
					t.Errorf("step %d: said %s, want %s", i, got, s.said)
				}
			}
		})
	}
}

func TestWhatIsHeldBack(t *testing.T) {
	for name, before := range map[string][]Wanted{"of what was said": {want("a", one, Success)}, "after a start": nil} {
		l := &Ledger{}
		all(l, noon, before...)
		held := want("a", one, Failure)
		held.NotBefore = noon.Add(time.Minute)
		if _, wait, ok := l.Next([]Wanted{held}, noon.Add(time.Second)); ok || wait != 59*time.Second {
			t.Errorf("%s: wait %s, now %v", name, wait, ok)
		}
		if got := all(l, noon.Add(time.Minute), held); fmt.Sprint(got) != "[a 1 failure]" {
			t.Errorf("%s: then said %s", name, got)
		}
	}
}

func TestWhatFailedLetsOthersPass(t *testing.T) {
	l := &Ledger{}
	wanted := []Wanted{want("a", one, Success), want("b", one, Success)}
	n, _, _ := l.Next(wanted, noon)
	l.Failed(n)
	if n.Context != "a" || fmt.Sprint(all(l, noon, wanted...)) != "[b 1 success a 1 success]" {
		t.Errorf("first %s", n.Context)
	}
}

func TestOneThatComesAndGoesIsSaidLessAndLess(t *testing.T) {
	l, now, last := &Ledger{}, noon, State("")
	said := 0
	for end := noon.Add(7 * 24 * time.Hour); now.Before(end); {
		state := Success
		if last == Success {
			state = Failure
		}
		n, wait, ok := l.Next([]Wanted{want("a", one, state)}, now)
		if !ok {
			if wait <= 0 || wait > time.Hour {
				t.Fatalf("after %d: wait %s", said, wait)
			}
			now = now.Add(wait)
			continue
		}
		l.Said(n, now)
		last = state
		said++
		now = now.Add(time.Second)
	}
	if said < 7*24 || said > 200 {
		t.Errorf("said %d times in a week", said)
	}
	if n, _, ok := l.Next([]Wanted{want("a", two, Failure)}, now); !ok || n.Commit != two {
		t.Error("another commit waits")
	}
}
