package registry

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
)

// retryAfter is the delay after which clients should repeat a refused request, in seconds.
const retryAfter = "5"

// writes counts running requests that write, and refuses them while it is blocked.
type writes struct {
	mu      sync.Mutex
	running int
	blocked bool
	idle    chan struct{} // closed when no request runs, if block waits for that
}

// begin counts a request; it returns false if the request must be refused.
func (w *writes) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.blocked {
		return false
	}
	w.running++
	return true
}

// end ends a request for which begin returned true.
func (w *writes) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	if w.running == 0 && w.idle != nil {
		close(w.idle)
		w.idle = nil
	}
}

// block refuses requests from now on, and waits for those that run. If ctx ends before, it permits
// requests again and returns the error.
func (w *writes) block(ctx context.Context) error {
	w.mu.Lock()
	w.blocked = true
	if w.running == 0 {
		w.mu.Unlock()
		return nil
	}
	idle := make(chan struct{})
	w.idle = idle
	w.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		w.unblock()
		return ctx.Err()
	}
}

// unblock permits requests again.
func (w *writes) unblock() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blocked, w.idle = false, nil
}

// refuseWrite responds to a request that begin refused.
func refuseWrite(w http.ResponseWriter) {
	type diagnostic struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", retryAfter)
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = json.NewEncoder(w).Encode(map[string][]diagnostic{"errors": {{Code: "UNAVAILABLE",
		Message: "the registry collects garbage: try again"}}})
}
