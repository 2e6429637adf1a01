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

// Bounds of what clients may cost.
const (
	// maxMessage is how long a request, or an answer, may be: what gRPC's clients take, in bytes.
	maxMessage = 4 << 20
	// maxHeader bounds the headers of a request, in bytes.
	maxHeader = 16 << 10
	// maxStreams is how many requests of a connection are answered at a time, and
	// maxConnections how many connections there may be.
	maxStreams, maxConnections = 64, 4096
	// handshakeWithin is how long a client has to say who it is.
	handshakeWithin = 5 * time.Second
	// closeGrace is how long requests may still take when the process ends.
	closeGrace = within
)

// Metrics records what Cluster Autoscalers ask.
type Metrics interface {
	NodeGroupRequest(method, code string, took time.Duration)
	FailedHandshake()
}

// Listener has Cluster Autoscalers answered, over gRPC and TLS. A client shows a certificate with
// an Identity in it.
type Listener struct {
	// Addr to listen at.
	Addr string
	// Server answers.
	Server externalgrpc.CloudProviderServer
	// Certificate of the server, and ClientCAs, which certificates of clients are verified
	// against. They are asked for each connection, so that a new one is used at once.
	Certificate func() (*tls.Certificate, error)
	ClientCAs   func() (*x509.CertPool, error)
	Clock       clock.PassiveClock
	Log         logr.Logger
	Metrics     Metrics

	// handshake is handshakeWithin, unless a test has more time.
	handshake time.Duration
	listening atomic.Bool
}

// Listening is true while clients are let in.
func (l *Listener) Listening() bool { return l.listening.Load() }

// NeedLeaderElection is true: who does not lead knows of no cluster.
func (l *Listener) NeedLeaderElection() bool { return true }

// Start answers until ctx ends, and returns when nobody is answered any more.
func (l *Listener) Start(ctx context.Context) error {
	listening, err := (&net.ListenConfig{}).Listen(ctx, "tcp", l.Addr)
	if err != nil {
		return fmt.Errorf("answering Cluster Autoscaler: %w", err)
	}
	return l.serve(ctx, listening)
}

func (l *Listener) serve(ctx context.Context, at net.Listener) error {
	sockets := &sockets{Listener: at, open: map[*socket]struct{}{}}
	server := grpc.NewServer(l.options()...)
	externalgrpc.RegisterCloudProviderServer(server, l.Server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(sockets) }()
	l.listening.Store(true)
	defer l.listening.Store(false)
	select {
	case err := <-served:
		sockets.closeAll()
		server.Stop()
		return fmt.Errorf("answering Cluster Autoscaler: %w", err)
	case <-ctx.Done():
	}
	l.listening.Store(false)
	stopped := make(chan struct{})
	sockets.closeStrangers()
	go func() {
		defer close(stopped)
		server.GracefulStop()
	}()
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	select {
	case <-stopped:
	case <-grace.C:
		sockets.closeAll()
		server.Stop()
		<-stopped
	}
	if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("answering Cluster Autoscaler: %w", err)
	}
	return nil
}

func (l *Listener) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(&watched{TransportCredentials: credentials.NewTLS(l.tls()), metrics: l.Metrics, log: l.Log, failures: rate.NewLimiter(rate.Every(10*time.Second), 10)}),
		grpc.UnaryInterceptor(l.answer),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage), grpc.MaxHeaderListSize(maxHeader),
		grpc.MaxConcurrentStreams(maxStreams), grpc.ConnectionTimeout(cmp.Or(l.handshake, handshakeWithin)), grpc.WaitForHandlers(true),
		// A client that is gone is noticed, and certificates are looked at again each hour.
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: 15 * time.Minute, MaxConnectionAge: time.Hour,
			MaxConnectionAgeGrace: time.Minute, Time: time.Minute, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
}

func (l *Listener) tls() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			certificate, err := l.Certificate()
			if err != nil {
				return nil, fmt.Errorf("our certificate: %w", err)
			}
			authorities, err := l.ClientCAs()
			if err != nil {
				return nil, fmt.Errorf("the authority of clients: %w", err)
			}
			if certificate == nil || authorities == nil {
				return nil, errors.New("there is no certificate yet")
			}
			return &tls.Config{
				MinVersion: tls.VersionTLS13, Time: l.Clock.Now, Certificates: []tls.Certificate{*certificate},
				ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authorities,
				SessionTicketsDisabled: true, // who comes again is verified again
				VerifyConnection: func(s tls.ConnectionState) error {
					_, err := pki.ClientOf(s.PeerCertificates[0])
					return err
				},
			}, nil
		},
	}
}
