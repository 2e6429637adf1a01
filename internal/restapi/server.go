package restapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/internal/sources/httpserver"
)

// closeGrace is how long changes in progress may still take during shutdown. It is less than the 30
// seconds that Kubernetes gives a pod.
const closeGrace = 20 * time.Second

// Options configure a Server.
type Options struct {
	// Addr is the address to listen on, such as ":9543".
	Addr string
	// CertFile and KeyFile are the files of the TLS certificate and its key, in PEM. They are read
	// again when they change.
	CertFile, KeyFile string
	// Config has the address and the certificate authority of the API server. Its credentials are
	// not used.
	Config *rest.Config
	// Kinds reads KsctlKinds, and Mapper finds the kinds that they publish.
	Kinds  client.Reader
	Mapper apimeta.RESTMapper
	// Repository is where changes are committed; nil: they are sent to the API server. The Server
	// closes it at its end, if it is an io.Closer.
	Repository Repository
	Clock      clock.Clock
	Log        logr.Logger
	// Observe is called after each request; took is without the time that it waited for an object.
	// nil observes nothing.
	Observe func(method string, code int, took time.Duration)
}

// Server serves the endpoint.
type Server struct {
	Options

	handler   *handler
	listening atomic.Bool
}

// New returns a Server. It serves once it is started.
func New(o Options) (*Server, error) {
	h, err := newHandler(&o)
	if err != nil {
		return nil, fmt.Errorf("the REST endpoint: %w", err)
	}
	return &Server{Options: o, handler: h}, nil
}

func newHandler(o *Options) (*handler, error) {
	server, err := newAPIServer(o.Config)
	if err != nil {
		return nil, err
	}
	h := &handler{server: server, resources: &resources{o.Kinds, o.Mapper}, backend: liveBackend{}, clock: o.Clock,
		log: o.Log, observe: o.Observe, slots: make(chan struct{}, maxConcurrent),
		decoding: make(chan struct{}, maxDecoding)}
	if o.Repository != nil {
		h.backend = &gitBackend{o.Repository}
	}
	if h.observe == nil {
		h.observe = func(string, int, time.Duration) {}
	}
	h.changes, h.stopping = context.Background(), context.Background()
	return h, nil
}

// Register adds the Server and its readiness check to a manager.
func (s *Server) Register(mgr ctrl.Manager) error {
	if err := mgr.AddReadyzCheck("rest", s.ready); err != nil {
		return fmt.Errorf("adding the readiness check of the REST endpoint: %w", err)
	}
	return mgr.Add(s)
}

// ready is a readiness check: it fails until the Server listens.
func (s *Server) ready(*http.Request) error {
	if !s.listening.Load() {
		return errors.New("the REST endpoint is not listening yet")
	}
	return nil
}

// NeedLeaderElection returns false: a caller may reach any replica.
func (s *Server) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable: it serves until ctx is done, and returns when all requests
// have ended. Requests that wait for an object end at once, and changes within closeGrace.
func (s *Server) Start(ctx context.Context) (err error) {
	if c, ok := s.Repository.(io.Closer); ok {
		defer func() { err = errors.Join(err, c.Close()) }()
	}
	certificate, err := certwatcher.New(s.CertFile, s.KeyFile)
	if err != nil {
		return fmt.Errorf("the certificate of the REST endpoint: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Addr)
	if err != nil {
		return fmt.Errorf("serving the REST endpoint: %w", err)
	}
	changes, cancel := context.WithCancel(context.WithoutCancel(ctx))
	group, ctx := errgroup.WithContext(ctx)
	s.handler.changes, s.handler.stopping = changes, ctx
	server := &http.Server{Handler: s.handler.routes(), ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout: 30 * time.Second, WriteTimeout: requestTimeout + maxWait + time.Minute, IdleTimeout: time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: log.New(&connectionLog{s.Log,
			rate.NewLimiter(rate.Every(10*time.Second), 10)}, "", 0)}
	secured := tls.NewListener(listener, &tls.Config{MinVersion: tls.VersionTLS12,
		GetCertificate: certificate.GetCertificate, NextProtos: []string{"http/1.1"}})
	s.listening.Store(true)
	context.AfterFunc(ctx, func() { s.listening.Store(false) })
	group.Go(func() error { return certificate.Start(ctx) })
	group.Go(func() error {
		defer s.handler.running.Wait()
		defer cancel()
		return httpserver.Serve(ctx, server, secured, closeGrace, "the REST endpoint")
	})
	return group.Wait()
}

// connectionLog logs errors of connections, such as failed handshakes. It bounds the lines that
// strangers can cause.
type connectionLog struct {
	log     logr.Logger
	limiter *rate.Limiter
}

// Write implements io.Writer.
func (l *connectionLog) Write(line []byte) (int, error) {
	if l.limiter.Allow() {
		l.log.Info("a connection failed", "reason", string(line))
	}
	return len(line), nil
}
