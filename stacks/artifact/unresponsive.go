package artifact

import (
	"maps"
	"sync"
	"time"
)

// silent are URLs that nobody answered for a while ago: a server that takes requests and
// hangs costs one wait each pause, however many ask.
type silent struct {
	pause time.Duration
	now   func() time.Time

	mu     sync.Mutex
	failed map[string]failure
}

type failure struct {
	err   *Error
	until time.Time
}

// note remembers a URL that was not answered for.
func (s *silent) note(url string, err *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	maps.DeleteFunc(s.failed, func(_ string, f failure) bool { return !now.Before(f.until) })
	if s.failed == nil {
		s.failed = map[string]failure{}
	}
	s.failed[url] = failure{err, now.Add(s.pause)}
}

// says is the failure of a URL that is not to be asked again yet; nil for others.
func (s *silent) says(url string) *Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, ok := s.failed[url]; ok && s.now().Before(f.until) {
		return f.err
	}
	return nil
}
