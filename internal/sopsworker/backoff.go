package sopsworker

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/ksctl/gitops/stacks/sops"
)

// minBackoff is the delay after the first timeout of a request. It doubles up to maxBackoff.
const (
	minBackoff = time.Minute
	maxBackoff = time.Hour
)

// maxTracked is the maximum number of requests that are backing off at the same time.
const maxTracked = 1000

// requestHash identifies a request by its whole content, including the keys.
type requestHash = [sha256.Size]byte

// timeoutBackoff delays requests that timed out before. Callers repeat a request at each retry, and
// each attempt would occupy a worker process until the timeout, so the delay doubles after each
// timeout. A changed file or changed keys make another request, which is not delayed.
type timeoutBackoff struct {
	now func() time.Time

	mu      sync.Mutex
	entries map[requestHash]backoffEntry
}

type backoffEntry struct {
	delay   time.Duration
	retryAt time.Time
}

// record records that a request timed out.
func (l *timeoutBackoff) record(id requestHash) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for other, d := range l.entries { // drop requests that were not repeated
		if now.Sub(d.retryAt) > maxBackoff {
			delete(l.entries, other)
		}
	}
	d, known := l.entries[id]
	if !known && len(l.entries) >= maxTracked {
		return
	}
	d.delay = min(max(2*d.delay, minBackoff), maxBackoff)
	d.retryAt = now.Add(d.delay)
	l.entries[id] = d
}

// reset ends the backoff of a request, because it succeeded.
func (l *timeoutBackoff) reset(id requestHash) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.entries, id)
}

// check returns an error while a request is backing off. The message does not change until the
// request may be retried.
func (l *timeoutBackoff) check(id requestHash, verb string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	d, known := l.entries[id]
	if !known || !l.now().Before(d.retryAt) {
		return nil
	}
	return &sops.Error{Reason: sops.Interrupted, Message: fmt.Sprintf(
		"%sion timed out; the next attempt is at %s, or when the file or its keys change", verb,
		d.retryAt.UTC().Format(time.RFC3339))}
}
