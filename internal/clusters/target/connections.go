package target

import (
	"context"
	"net"
	"net/http"
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

// connections is a pool of connections to one cluster.
type connections struct {
	http.RoundTripper
	// ctx is done after abort, which cancels the requests without a response and closes idle
	// connections.
	ctx   context.Context
	abort func()
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
	ctx, cancel := context.WithCancel(context.Background())
	abort := func() {
		cancel()
		t.CloseIdleConnections()
	}
	return &connections{RoundTripper: rt, ctx: ctx, abort: abort}, nil
}
