package target

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Bounds of requests to other clusters. A webhook there may take 30 s, and the API server
// answers after it.
const (
	dialTimeout    = 5 * time.Second
	requestTimeout = 45 * time.Second
	// A connection is asked for a sign of life when nothing came for so long, and given up
	// when there is none: a watch would wait for ever.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
	maxHeaders  = 1 << 20
)

// connections are those to one cluster.
type connections struct {
	http.RoundTripper
	close func()

	mu sync.Mutex
	// waiting are the requests that have no answer yet; nil: nothing may wait any more.
	waiting map[*context.CancelFunc]struct{}
}

// connect prepares connections of their own, with the credentials of a config.
func connect(cfg *rest.Config) (*connections, error) {
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
	return &connections{RoundTripper: rt, close: t.CloseIdleConnections, waiting: map[*context.CancelFunc]struct{}{}}, nil
}

// began takes note of a request, until answered is called.
func (c *connections) began(cancel context.CancelFunc) (answered func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		cancel()
		return func() {}
	}
	key := &cancel
	c.waiting[key] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting, key)
	}
}

// end breaks off what has no answer yet.
func (c *connections) end() {
	c.mu.Lock()
	waiting := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	for cancel := range waiting {
		(*cancel)()
	}
	c.close()
}
