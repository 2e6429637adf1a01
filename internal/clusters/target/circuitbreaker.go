package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/ksctl/gitops/internal/clusters/probe"
)

const (
	// probeTimeout is the timeout of a probe. recheckTimeout is the shorter one while the cluster
	// is available, because workers then wait for the result in their requests.
	probeTimeout   = 10 * time.Second
	recheckTimeout = 5 * time.Second
	// slowRequest is how long a request may take before the cluster is probed in parallel.
	slowRequest = 3 * time.Second
	// minRecheckInterval is the minimum time between two probes of an available cluster.
	minRecheckInterval = 5 * time.Second
	// minBackoff and maxBackoff are the limits of the delay between probes of an unavailable
	// cluster.
	minBackoff = time.Second
	maxBackoff = time.Minute
)

// circuitBreaker is the transport of a cluster. It passes requests while the cluster is available,
// and fails them at once while it is not. The cluster becomes unavailable when a request can't
// reach it, or when a request is slow and a parallel probe fails. It becomes available when a probe
// succeeds.
type circuitBreaker struct {
	id    string
	cfg   *rest.Config
	clock clock.WithTicker
	// probeCluster probes a cluster; connect prepares new connections.
	probeCluster func(context.Context, *rest.Config) (probe.Result, error)
	connect      func(*rest.Config) (*connections, error)
	// availabilityChanged is called when the cluster becomes available, and once for each new
	// reason why it is not.
	availabilityChanged func(open bool)
	// pendingProbes requests a probe because the cluster may have become unavailable.
	// immediateProbes requests one at once instead of after the backoff. Both have a buffer of one.
	pendingProbes, immediateProbes chan struct{}

	mu sync.Mutex
	// active are the connections while the cluster is available; nil while it is not.
	active *connections
	// err is why the cluster is unavailable; nil while it is being probed.
	err error
	// notifiedErr is the error of the last notification; "" while the cluster is available.
	notifiedErr string
	// uid is the UID of the cluster, as in probe.Result.
	uid string
}

// RoundTrip implements http.RoundTripper.
func (g *circuitBreaker) RoundTrip(req *http.Request) (*http.Response, error) {
	conns, err := g.connections()
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	ctx, cancel := context.WithCancel(req.Context())
	answered := context.AfterFunc(conns.ctx, cancel)
	slowTimer := time.AfterFunc(slowRequest, func() { signal(g.pendingProbes) })
	res, err := conns.RoundTrip(req.WithContext(ctx))
	slowTimer.Stop()
	answered()
	if err != nil {
		cancel()
		return nil, g.requestFailed(req, conns, err)
	}
	res.Body = &body{ReadCloser: res.Body, close: cancel}
	switch {
	case res.StatusCode == http.StatusUnauthorized:
		signal(g.pendingProbes) // one aggregated API may reject credentials that the cluster accepts
	case res.StatusCode >= 300 && res.StatusCode < 400 && res.Header.Get("Location") != "":
		_ = res.Body.Close()
		// Following the redirect would send the credentials along.
		return nil, fmt.Errorf("%s redirects %s (%d): redirects are not followed", DisplayName(g.id), req.URL.Path,
			res.StatusCode)
	}
	if res.StatusCode >= 400 {
		if err := maskCredentials(res, g.cfg); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// requestFailed returns the error of a request without a response, and marks the cluster as
// unavailable or requests a probe.
func (g *circuitBreaker) requestFailed(req *http.Request, used *connections, err error) error {
	switch ended := req.Context().Err(); {
	case g.replaced(used): // the request was aborted with its connections
		return &UnreachableError{Cluster: g.id}
	case errors.Is(ended, context.Canceled):
		return err
	case errors.Is(ended, context.DeadlineExceeded): // only this request may be slow
		signal(g.pendingProbes)
	default:
		g.trip(used, nil)
		signal(g.pendingProbes)
	}
	return &UnreachableError{Cluster: g.id, Err: probe.SanitizeError(req.Context(), err)}
}

// body is a response body that ends the context of its request when it is closed.
type body struct {
	io.ReadCloser
	close context.CancelFunc
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer b.close()
	return b.ReadCloser.Close()
}

// connections returns the connections of an available cluster, or an *UnreachableError.
func (g *circuitBreaker) connections() (*connections, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.active == nil {
		return nil, &UnreachableError{Cluster: g.id, Err: g.err}
	}
	return g.active, nil
}

// unavailable returns the *UnreachableError of an unavailable cluster; nil if it is available.
func (g *circuitBreaker) unavailable() error {
	_, err := g.connections()
	return err
}

// clusterUID returns the UID of the cluster as of the last successful probe.
func (g *circuitBreaker) clusterUID() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.uid
}

func (g *circuitBreaker) replaced(used *connections) bool {
	active, _ := g.connections()
	return active != used
}

// trip makes the cluster unavailable until a probe succeeds, and aborts pending requests. It does
// nothing if used are not the active connections: the failure of replaced connections does not
// concern their successors.
func (g *circuitBreaker) trip(used *connections, reason error) {
	g.mu.Lock()
	wasActive := g.active == used
	if wasActive {
		g.active, g.err = nil, reason
	}
	g.mu.Unlock()
	if wasActive {
		used.abort()
	}
}

// run probes the cluster until it answers, and again whenever a probe is pending.
func (g *circuitBreaker) run(ctx context.Context) {
	defer func() {
		if conns, err := g.connections(); err == nil {
			g.trip(conns, nil)
		}
	}()
	backoff, lastProbe := time.Duration(0), time.Time{}
	for ctx.Err() == nil {
		if g.unavailable() == nil {
			select {
			case <-ctx.Done():
				return
			case <-g.pendingProbes:
			}
			since := g.clock.Since(lastProbe)
			if since > maxBackoff {
				backoff = 0
			}
			if g.unavailable() == nil && since < minRecheckInterval && !g.wait(ctx, minRecheckInterval-since, nil) {
				return
			}
		}
		available := g.unavailable() == nil
		if !available && backoff > 0 && !g.wait(ctx, backoff/2+rand.N(backoff), g.immediateProbes) {
			return
		}
		answered := g.probeOnce(ctx)
		if answered {
			lastProbe = g.clock.Now()
		}
		if !available || !answered { // a cluster that flaps is probed at growing intervals
			backoff = min(max(2*backoff, minBackoff), maxBackoff)
		}
	}
}

// probeOnce probes the cluster once and reports whether it answered.
func (g *circuitBreaker) probeOnce(ctx context.Context) bool {
	active, _ := g.connections()
	timeout := probeTimeout
	if active != nil {
		timeout = recheckTimeout
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := g.probeCluster(limited, g.cfg)
	if ctx.Err() != nil {
		return false
	}
	if active != nil && err != nil {
		g.trip(active, err)
	}
	if active != nil && err == nil && !g.replaced(active) {
		return true
	}
	var conns *connections
	if err == nil {
		conns, err = g.connect(g.cfg)
	}
	if g.recordResult(conns, answer.UID, err) {
		g.availabilityChanged(err == nil)
	}
	return err == nil
}

// recordResult stores the result of a probe and reports whether the users must be notified.
func (g *circuitBreaker) recordResult(conns *connections, uid string, err error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.active, g.err = conns, err
	if err == nil {
		g.notifiedErr, g.uid = "", uid
		return true
	}
	repeated := g.notifiedErr == err.Error()
	g.notifiedErr = err.Error()
	return !repeated
}

// wait waits for d, or until wake receives. It returns false when ctx ends.
func (g *circuitBreaker) wait(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	t := g.clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C():
	case <-wake:
	}
	return true
}
