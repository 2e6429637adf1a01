package sopsworker

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/ksctl/gitops/stacks/sops"
)

// Times after which a file is tried again that was not done in time: the first, and at most.
const (
	firstWait = time.Minute
	mostWait  = time.Hour
)

// mostLate is how many files are remembered that were not done in time.
const mostLate = 1000

// identity of a request: what it holds, with keys and all.
type identity = [sha256.Size]byte

// lateness remembers files that were not done in time. Whoever wants one asks again at each retry, and
// each try takes as long: so it waits twice as long after each of them. One that was changed, or
// has other keys, is another one.
type lateness struct {
	now func() time.Time

	mu    sync.Mutex
	files map[identity]delay
}

type delay struct {
	wait  time.Duration
	until time.Time
}

// add notes that a file was not done in time.
func (l *lateness) add(id identity) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for other, d := range l.files { // of which nobody wants anything any more
		if now.Sub(d.until) > mostWait {
			delete(l.files, other)
		}
	}
	d, known := l.files[id]
	if !known && len(l.files) >= mostLate {
		return
	}
	d.wait = min(max(2*d.wait, firstWait), mostWait)
	d.until = now.Add(d.wait)
	l.files[id] = d
}

// remove forgets a file that was done.
func (l *lateness) remove(id identity) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.files, id)
}

// refuse is an error for a file that has to wait. It says the same until then.
func (l *lateness) refuse(id identity, verb string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	d, known := l.files[id]
	if !known || !l.now().Before(d.until) {
		return nil
	}
	return &sops.Error{Reason: sops.Interrupted, Message: fmt.Sprintf(
		"%sing was not done in time, and is not tried before %s, unless the file or its keys change", verb, d.until.UTC().Format(time.RFC3339))}
}
