package target

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Limits of requests to remote clusters. requestTimeout exceeds the 30 seconds that an admission
// webhook of the cluster may take.
const (
	dialTimeout    = 5 * time.Second
	requestTimeout = 45 * time.Second
	// A connection without traffic for pingAfter is pinged, and closed if the ping is not answered
	// within pingTimeout: otherwise a watch on a dead connection would wait forever.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
	maxHeaders  = 1 << 20
)

// connections is a pool of connections to one cluster. It can abort all pending requests.
type connections struct {
	http.RoundTripper
	close func()

	mu sync.Mutex
	// pending are the cancel functions of the requests without a response; nil after abort.
	pending map[*context.CancelFunc]struct{}
}

// newConnections returns a separate pool of connections with the credentials of cfg.
func newConnections(cfg *rest.Config) (*connections, error) {
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	t := &http.Transport{
		Proxy: cfg.Proxy, TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true,
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: pingAfter}).DialContext,
		TLSHandshakeTimeout: dialTimeout, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 16,
		MaxResponseHeaderBytes: maxHeaders,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
	rt, err := rest.HTTPWrappersForConfig(cfg, t)
	if err != nil {
		return nil, err
	}
	return &connections{RoundTripper: rt, close: t.CloseIdleConnections, pending: map[*context.CancelFunc]struct{}{}}, nil
}

// track registers the cancel function of a request until answered is called. After abort it cancels
// the request at once.
func (c *connections) track(cancel context.CancelFunc) (answered func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending == nil {
		cancel()
		return func() {}
	}
	key := &cancel
	c.pending[key] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.pending, key)
	}
}

// abort cancels all pending requests and closes idle connections.
func (c *connections) abort() {
	c.mu.Lock()
	pending := c.pending
	c.pending = nil
	c.mu.Unlock()
	for cancel := range pending {
		(*cancel)()
	}
	c.close()
}
