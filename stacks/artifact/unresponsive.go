package artifact

import (
	"maps"
	"sync"
	"time"
)

// unresponsiveURLs remembers URLs whose last request timed out. A URL whose server accepts
// requests and hangs costs one timeout per interval, however many callers fetch it.
type unresponsiveURLs struct {
	retryAfter time.Duration

	mu       sync.Mutex
	failures map[string]failure
}

type failure struct {
	err   *Error
	until time.Time
}

// record stores the timeout of a URL.
func (s *unresponsiveURLs) record(url string, err *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.failures, func(_ string, f failure) bool { return !now.Before(f.until) })
	s.failures[url] = failure{err, now.Add(s.retryAfter)}
}

// recentFailure returns the error of a URL that must not be requested again yet, and nil for
// other URLs.
func (s *unresponsiveURLs) recentFailure(url string) *Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, ok := s.failures[url]; ok && time.Now().Before(f.until) {
		return f.err
	}
	return nil
}
