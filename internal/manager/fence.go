package manager

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// LeaseLostError says that a write was not sent, because another process may
// lead by now.
type LeaseLostError struct{ Ago time.Duration }

func (e *LeaseLostError) Error() string {
	return fmt.Sprintf("the leader's lease was last renewed %s ago, so another process may lead: nothing is written", e.Ago.Round(time.Millisecond))
}

// fence keeps a leader from writing when its lease ran out without its notice:
// a process that was paused goes on where it was, and the word that it lost the
// lease comes later than what it was about to send.
type fence struct {
	lease string // path
	valid time.Duration
	now   func() time.Time

	mu      sync.Mutex
	renewed time.Time
}

// fenced has writes through a configuration guarded by a lease. What leads
// to the lease is let through, and so is everything before it was first taken.
//
// The fence is also for what is written elsewhere.
func fenced(cfg *rest.Config, namespace, name string, valid time.Duration) *fence {
	f := &fence{lease: "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases", valid: valid, now: time.Now}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &fencedTripper{fence: f, next: next, name: name}
	})
	return f
}

type fencedTripper struct {
	*fence
	next http.RoundTripper
	name string
}

// WrappedRoundTripper lets client-go find the transport.
func (t *fencedTripper) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t *fencedTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return t.next.RoundTrip(r)
	}
	if r.URL.Path != t.lease && r.URL.Path != t.lease+"/"+t.name {
		if err := t.holds(); err != nil {
			return nil, err
		}
		return t.next.RoundTrip(r)
	}
	began := t.now() // others count from later
	res, err := t.next.RoundTrip(r)
	if err == nil && res.StatusCode/100 == 2 {
		t.mu.Lock()
		t.renewed = began
		t.mu.Unlock()
	}
	return res, err
}

// holds returns nil while nobody else can have the lease.
func (f *fence) holds() error {
	f.mu.Lock()
	renewed := f.renewed
	f.mu.Unlock()
	if renewed.IsZero() {
		return nil
	}
	now := f.now()
	// By the clock on the wall, too: the other one stands still while a machine sleeps.
	if ago := max(now.Sub(renewed), now.Round(0).Sub(renewed.Round(0))); ago >= f.valid {
		return &LeaseLostError{Ago: ago}
	}
	return nil
}
