package nodegroup

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"k8s.io/utils/clock"

	"github.com/ksctl/gitops/internal/scaling/nodegroup/externalgrpc"
	"github.com/ksctl/gitops/internal/scaling/pki"
)

// Bounds on the resources that clients can use.
const (
	// maxMessageBytes bounds a request and a response. It is the default limit of gRPC clients.
	maxMessageBytes = 4 << 20
	// maxHeaderBytes bounds the headers of a request.
	maxHeaderBytes = 16 << 10
	// maxStreams bounds the concurrent requests of a connection, maxConnections the number of
	// connections.
	maxStreams, maxConnections = 64, 4096
	// handshakeTimeout is the time in which a client must complete the TLS handshake.
	handshakeTimeout = 5 * time.Second
	// closeGrace is how long requests in progress may still take during shutdown.
	closeGrace = requestTimeout
)

// Metrics records the requests of Cluster Autoscalers.
type Metrics interface {
	NodeGroupRequest(method, code string, took time.Duration)
	FailedHandshake()
}

// Listener serves Cluster Autoscalers over gRPC and mutual TLS. A client presents a certificate
// with a ClientURI of package pki.
type Listener struct {
	// Addr is the address to listen on.
	Addr string
	// Server handles the requests.
	Server externalgrpc.CloudProviderServer
	// Certificate returns the server's certificate, ClientCAs the authorities that verify client
	// certificates. Both are called for each connection, so that a renewed one is used at once.
	Certificate func() (*tls.Certificate, error)
	ClientCAs   func() (*x509.CertPool, error)
	Clock       clock.PassiveClock
	Log         logr.Logger
	Metrics     Metrics

	// handshakeTimeout replaces the constant of this name if it is not 0: tests set a longer one.
	handshakeTimeout time.Duration
	listening        atomic.Bool
}

// Listening reports whether the Listener accepts clients.
func (l *Listener) Listening() bool { return l.listening.Load() }

// NeedLeaderElection returns true: only the leader has state of clusters.
func (l *Listener) NeedLeaderElection() bool { return true }

// Start serves until ctx is done, and returns once all requests have ended.
func (l *Listener) Start(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", l.Addr)
	if err != nil {
		return fmt.Errorf("serving node groups to Cluster Autoscaler: %w", err)
	}
	return l.serve(ctx, listener)
}

func (l *Listener) serve(ctx context.Context, listener net.Listener) error {
	conns := &boundedListener{Listener: listener, open: map[*trackedConn]struct{}{}}
	server := grpc.NewServer(l.options()...)
	externalgrpc.RegisterCloudProviderServer(server, l.Server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(conns) }()
	l.listening.Store(true)
	defer l.listening.Store(false)
	select {
	case err := <-served:
		conns.closeAll()
		server.Stop()
		return fmt.Errorf("serving node groups to Cluster Autoscaler: %w", err)
	case <-ctx.Done():
	}
	l.listening.Store(false)
	stopped := make(chan struct{})
	// Connections without a completed handshake have no requests.
	conns.closeIf(func(c *trackedConn) bool { return !c.authenticated.Load() })
	go func() {
		defer close(stopped)
		server.GracefulStop()
	}()
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	select {
	case <-stopped:
	case <-grace.C:
		conns.closeAll()
		server.Stop()
		<-stopped
	}
	if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serving node groups to Cluster Autoscaler: %w", err)
	}
	return nil
}

func (l *Listener) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(&observedCredentials{TransportCredentials: credentials.NewTLS(l.tls()), metrics: l.Metrics,
			log: l.Log, failures: rate.NewLimiter(rate.Every(10*time.Second), 10)}),
		grpc.UnaryInterceptor(l.intercept),
		grpc.MaxRecvMsgSize(maxMessageBytes), grpc.MaxSendMsgSize(maxMessageBytes),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxConcurrentStreams(maxStreams), grpc.ConnectionTimeout(cmp.Or(l.handshakeTimeout, handshakeTimeout)),
		grpc.WaitForHandlers(true),
		// Dead clients are detected, and certificates are verified anew every hour.
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: 15 * time.Minute,
			MaxConnectionAge:      time.Hour,
			MaxConnectionAgeGrace: time.Minute, Time: time.Minute, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second,
			PermitWithoutStream: true}),
	}
}

func (l *Listener) tls() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			certificate, err := l.Certificate()
			if err != nil {
				return nil, fmt.Errorf("getting the server certificate: %w", err)
			}
			authorities, err := l.ClientCAs()
			if err != nil {
				return nil, fmt.Errorf("getting the client authorities: %w", err)
			}
			if certificate == nil || authorities == nil {
				return nil, errors.New("the server certificate or the client authorities are not loaded yet")
			}
			return &tls.Config{
				MinVersion: tls.VersionTLS13, Time: l.Clock.Now, Certificates: []tls.Certificate{*certificate},
				ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authorities,
				SessionTicketsDisabled: true, // a client that reconnects is verified again
				VerifyConnection: func(s tls.ConnectionState) error {
					_, err := pki.ClientOf(s.PeerCertificates[0])
					return err
				},
			}, nil
		},
	}
}
