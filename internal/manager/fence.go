package manager

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// LeaseLostError is returned for a write that was not sent because this process did not renew its
// lease in time and another replica may be the leader.
type LeaseLostError struct{ SinceRenewal time.Duration }

func (e *LeaseLostError) Error() string {
	return fmt.Sprintf("write refused: the leader election lease was last renewed %s ago and another replica may be "+
		"the leader", e.SinceRenewal.Round(time.Millisecond))
}

// fence prevents a leader from writing after its lease expired. A process that was paused continues
// where it stopped, and could send a write before leader election reports the loss of the lease.
type fence struct {
	leasesPath    string // URL path of the Leases in the controller's namespace
	leaseDuration time.Duration
	now           func() time.Time

	mu        sync.Mutex
	renewedAt time.Time
}

// fenceWrites makes every write through cfg fail with a LeaseLostError while the lease is expired.
// Requests for the lease itself pass, and so does every request before the lease was first
// acquired.
//
// The caller uses the returned fence to check the lease before it writes to other systems.
func fenceWrites(cfg *rest.Config, namespace, name string, leaseDuration time.Duration) *fence {
	f := &fence{leasesPath: "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases",
		leaseDuration: leaseDuration, now: time.Now}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &fencedTransport{fence: f, next: next, leaseName: name}
	})
	return f
}

type fencedTransport struct {
	*fence
	next      http.RoundTripper
	leaseName string
}

// WrappedRoundTripper implements the interface by which client-go unwraps transports.
func (t *fencedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t *fencedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return t.next.RoundTrip(r)
	}
	if r.URL.Path != t.leasesPath && r.URL.Path != t.leasesPath+"/"+t.leaseName {
		if err := t.checkLease(); err != nil {
			return nil, err
		}
		return t.next.RoundTrip(r)
	}
	began := t.now() // before the request is sent: other replicas count from a later time
	res, err := t.next.RoundTrip(r)
	if err == nil && res.StatusCode/100 == 2 {
		t.mu.Lock()
		t.renewedAt = began
		t.mu.Unlock()
	}
	return res, err
}

// checkLease returns nil while no other replica can hold the lease, and a LeaseLostError otherwise.
func (f *fence) checkLease() error {
	f.mu.Lock()
	renewed := f.renewedAt
	f.mu.Unlock()
	if renewed.IsZero() {
		return nil
	}
	now := f.now()
	// Compare the wall clock, too: the monotonic clock stops while the machine is suspended.
	if ago := max(now.Sub(renewed), now.Round(0).Sub(renewed.Round(0))); ago >= f.leaseDuration {
		return &LeaseLostError{SinceRenewal: ago}
	}
	return nil
}
