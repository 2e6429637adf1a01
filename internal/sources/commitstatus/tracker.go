package commitstatus

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Wanted is an install that reads a source, and what is to be said of it.
type Wanted struct {
	Install types.UID
	// Statement; nil while nothing can be said.
	Statement *Statement
	// NotBefore is when it may be said; zero: at once.
	NotBefore time.Time
	// Offered is true when the commit is the one that the source offers. Another one
	// may be of the source that the install read before.
	Offered bool
}

// Ledger is what was said of the installs of one source.
type Ledger struct {
	said map[types.UID]*entry
}

// entry is what was said of one install.
type entry struct {
	last  Statement // nothing yet when its commit is empty
	times int       // that something was said at that commit
	at    time.Time // when it was the last time
	tries int       // that failed since
}

// Next is what is to be said.
type Next struct {
	Install types.UID
	Statement
	// gone is true when the install is, so that nothing more will be said.
	gone bool
}

// Next gives what is to be said now, one at a time: what failed least first, then what is
// new, then what may have been said before this process began. Without anything it
// gives when there will be something; 0 for not before something changes.
func (l *Ledger) Next(wanted []Wanted, now time.Time) (next Next, wait time.Duration, ok bool) {
	var all []Next
	there := map[types.UID]bool{}
	for _, w := range wanted {
		there[w.Install] = true
		n, due, ok := l.next(w, now)
		switch {
		case ok && due <= 0:
			all = append(all, n)
		case ok && (wait == 0 || due < wait):
			wait = due
		}
	}
	for uid, e := range l.said {
		switch {
		case there[uid]:
		case e.last.State == Pending:
			all = append(all, Next{uid, e.last.givenUp("the install went before it was ready"), true})
		default:
			delete(l.said, uid)
		}
	}
	if len(all) == 0 {
		return Next{}, wait, false
	}
	return slices.MinFunc(all, l.order), 0, true
}

// next is what is to be said of one install, in how long.
func (l *Ledger) next(w Wanted, now time.Time) (next Next, due time.Duration, ok bool) {
	e, s := l.said[w.Install], w.Statement
	due = max(w.NotBefore.Sub(now), 0)
	known := e != nil && e.last.Commit != ""
	switch {
	case s == nil, !w.Offered && (!known || e.last.Commit != s.Commit):
		return Next{}, 0, false
	case !known:
		return Next{w.Install, *s, false}, due, true
	case e.last == *s:
		return Next{}, 0, false
	case e.last.Commit != s.Commit && e.last.State == Pending:
		return Next{w.Install, e.last.givenUp("another commit came before it was ready"), false}, 0, true
	case e.last.Commit != s.Commit:
		return Next{w.Install, *s, false}, due, true
	case s.State == Pending:
		return Next{}, 0, false // it was there already: what comes next counts
	}
	return Next{w.Install, *s, false}, max(e.at.Add(pause(e.times)).Sub(now), due), true
}

func (s Statement) givenUp(why string) Statement {
	s.State, s.Description = GivenUp, why
	return s
}

func (l *Ledger) order(a, b Next) int {
	rank := func(n Next) (tries, old int) {
		e := l.said[n.Install]
		if e == nil {
			return 0, 1
		}
		if e.last.Commit == "" {
			old = 1
		}
		return e.tries, old
	}
	aTries, aOld := rank(a)
	bTries, bOld := rank(b)
	return cmp.Or(cmp.Compare(aTries, bTries), cmp.Compare(aOld, bOld), cmp.Compare(a.Context, b.Context))
}

// pause is how long the next word on a commit waits when so many were said: a
// deployment that comes and goes for days must not use up the 1000 that GitHub takes
// (https://docs.github.com/en/rest/commits/statuses#create-a-commit-status).
func pause(times int) time.Duration {
	const free, first, longest = 6, time.Minute, time.Hour
	if times < free {
		return 0
	}
	return min(first<<min(times-free, 10), longest)
}

// Said takes note that something was said, or that it can never be.
func (l *Ledger) Said(n Next, now time.Time) {
	if n.gone {
		delete(l.said, n.Install)
		return
	}
	e := l.entry(n.Install)
	if e.last.Commit != n.Commit {
		e.times = 0
	}
	e.last, e.at, e.tries = n.Statement, now, 0
	e.times++
}

// Failed takes note that something could not be said: others come first.
func (l *Ledger) Failed(n Next) { l.entry(n.Install).tries++ }

func (l *Ledger) entry(uid types.UID) *entry {
	if l.said == nil {
		l.said = map[types.UID]*entry{}
	}
	if l.said[uid] == nil {
		l.said[uid] = &entry{}
	}
	return l.said[uid]
}
