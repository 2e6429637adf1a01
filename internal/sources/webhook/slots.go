package webhook

import "sync"

// slots bound the requests whose bodies are held at a time: together, and those of
// one path, so that who knows one path can't keep the others' senders out.
type slots struct {
	mu    sync.Mutex
	taken int
	at    map[string]int // by path
}

// take is false when there is no slot for a path. Each that was taken is given back.
func (s *slots) take(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken == atATime || s.at[path] == atATimeOfOne {
		return false
	}
	if s.at == nil {
		s.at = map[string]int{}
	}
	s.taken++
	s.at[path]++
	return true
}

func (s *slots) give(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	if s.at[path]--; s.at[path] == 0 {
		delete(s.at, path)
	}
}
