package webhook

import "sync"

// slots bound how many request bodies are in memory: in total, and per path, so that a sender that
// knows one path cannot block the senders of other paths.
type slots struct {
	mu          sync.Mutex
	taken       int
	takenByPath map[string]int // by path
}

// acquire acquires a slot for a path; false if none is free. The caller must release it.
func (s *slots) acquire(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken == maxConcurrent || s.takenByPath[path] == maxConcurrentPerPath {
		return false
	}
	if s.takenByPath == nil {
		s.takenByPath = map[string]int{}
	}
	s.taken++
	s.takenByPath[path]++
	return true
}

func (s *slots) release(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	if s.takenByPath[path]--; s.takenByPath[path] == 0 {
		delete(s.takenByPath, path)
	}
}
