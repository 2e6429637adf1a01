package commitstatus

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Desired is the desired status of an install that reads a source.
type Desired struct {
	Install types.UID
	// Status is the desired status; nil while the state of the install is unknown.
	Status *Status
	// NotBefore is the earliest time to post it; zero means at once.
	NotBefore time.Time
	// IsCurrent is true if the commit is the current one of the source. Otherwise it may be a
	// commit of another source that the install read before.
	IsCurrent bool
}

// Tracker tracks the posted statuses of the installs of one source.
type Tracker struct {
	posted map[types.UID]*entry
}

// entry tracks one install.
type entry struct {
	last     Status    // last posted status; its commit is empty if there is none
	count    int       // statuses posted for that commit
	postedAt time.Time // time of the last post
	failures int       // failed posts since then
}

// Next is the next status to post.
type Next struct {
	Install types.UID
	Status
	// last is true if the install was deleted, so that this is its last status.
	last bool
}

// Next returns the status to post now: the one with the fewest failures first, then installs that
// this process has posted before, then installs that an earlier process may have posted. If there
// is none, wait is the time until there is one, or 0 if that requires a change.
func (l *Tracker) Next(desired []Desired, now time.Time) (next Next, wait time.Duration, ok bool) {
	var all []Next
	exists := map[types.UID]bool{}
	for _, w := range desired {
		exists[w.Install] = true
		n, due, ok := l.next(w, now)
		switch {
		case ok && due <= 0:
			all = append(all, n)
		case ok && (wait == 0 || due < wait):
			wait = due
		}
	}
	for uid, e := range l.posted {
		switch {
		case exists[uid]:
		case e.last.State == Pending:
			all = append(all, Next{uid, e.last.canceled("the install was deleted before it was ready"), true})
		default:
			delete(l.posted, uid)
		}
	}
	if len(all) == 0 {
		return Next{}, wait, false
	}
	return slices.MinFunc(all, l.order), 0, true
}

// next returns the next status of one install, and the time until it is due.
func (l *Tracker) next(w Desired, now time.Time) (next Next, due time.Duration, ok bool) {
	e, s := l.posted[w.Install], w.Status
	due = max(w.NotBefore.Sub(now), 0)
	known := e != nil && e.last.Commit != ""
	switch {
	case s == nil, !w.IsCurrent && (!known || e.last.Commit != s.Commit):
		return Next{}, 0, false
	case !known:
		return Next{w.Install, *s, false}, due, true
	case e.last == *s:
		return Next{}, 0, false
	case e.last.Commit != s.Commit && e.last.State == Pending:
		return Next{w.Install, e.last.canceled("superseded by another commit before it was ready"), false}, 0, true
	case e.last.Commit != s.Commit:
		return Next{w.Install, *s, false}, due, true
	case s.State == Pending:
		return Next{}, 0, false // this commit was installed before: only the outcome is posted
	}
	return Next{w.Install, *s, false}, max(e.postedAt.Add(pause(e.count)).Sub(now), due), true
}

func (s Status) canceled(why string) Status {
	s.State, s.Description = Canceled, why
	return s
}

func (l *Tracker) order(a, b Next) int {
	priority := func(n Next) (tries, old int) {
		e := l.posted[n.Install]
		if e == nil {
			return 0, 1
		}
		if e.last.Commit == "" {
			old = 1
		}
		return e.failures, old
	}
	aTries, aOld := priority(a)
	bTries, bOld := priority(b)
	return cmp.Or(cmp.Compare(aTries, bTries), cmp.Compare(aOld, bOld), cmp.Compare(a.Context, b.Context))
}

// pause returns the minimum time between statuses of a commit after the given number of them: a
// deployment that flaps for days must not exceed the 1000 statuses that GitHub allows
// (https://docs.github.com/en/rest/commits/statuses#create-a-commit-status).
func pause(times int) time.Duration {
	const free, first, longest = 6, time.Minute, time.Hour
	if times < free {
		return 0
	}
	return min(first<<min(times-free, 10), longest)
}

// Posted records that a status was posted, or that the server will never accept it.
func (l *Tracker) Posted(n Next, now time.Time) {
	if n.last {
		delete(l.posted, n.Install)
		return
	}
	e := l.entry(n.Install)
	if e.last.Commit != n.Commit {
		e.count = 0
	}
	e.last, e.postedAt, e.failures = n.Status, now, 0
	e.count++
}

// Failed records that a status could not be posted, so that others come first.
func (l *Tracker) Failed(n Next) { l.entry(n.Install).failures++ }

func (l *Tracker) entry(uid types.UID) *entry {
	if l.posted == nil {
		l.posted = map[types.UID]*entry{}
	}
	if l.posted[uid] == nil {
		l.posted[uid] = &entry{}
	}
	return l.posted[uid]
}
