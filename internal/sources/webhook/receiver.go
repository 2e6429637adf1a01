package webhook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/httpserver"
)

// Limits for requests of any sender.
const (
	// DefaultMaxBytes is the default limit on the size of a body. A push of some thousand commits
	// fits.
	DefaultMaxBytes = 4 << 20
	// maxConcurrent is how many requests are read and parsed concurrently, maxConcurrentPerPath how
	// many of them at one path.
	maxConcurrent        = 32
	maxConcurrentPerPath = 8
	// closeGrace is how long requests in progress may still take during shutdown.
	closeGrace = 5 * time.Second
	// apiTimeout bounds each step of a request that calls the API server.
	apiTimeout = 5 * time.Second
)

// Options configure a Receiver.
type Options struct {
	// Client reads sources and the metadata of Secrets from the cache, and writes annotations.
	// Secrets reads Secrets from the API server.
	Client  client.Client
	Secrets client.Reader
	// Addr is the address to listen on, such as ":9292".
	Addr string
	// MaxBytes limits the size of a body; 0 means DefaultMaxBytes.
	MaxBytes   int64
	FieldOwner string
	Clock      clock.Clock
	Log        logr.Logger
	// Count is called after each request, with the type of the webhook, empty if unknown, and
	// the result; nil counts nothing.
	Count func(webhook, result string)
}

// Receiver receives push notifications over HTTP.
type Receiver struct {
	Options

	throttle *throttle
	stop     context.CancelFunc
	slots    slots
	tokens   *lru.Cache // token by types.NamespacedName
	// logLimiter bounds the log lines that unauthenticated senders can cause.
	logLimiter *rate.Limiter
	listening  atomic.Bool
}

// New returns a Receiver. It receives once it is started.
func New(o Options) *Receiver {
	if o.Count == nil {
		o.Count = func(string, string) {}
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	ctx, stop := context.WithCancel(context.Background())
	return &Receiver{Options: o, throttle: newThrottle(ctx, o.Clock), stop: stop, tokens: lru.New(maxSources),
		logLimiter: rate.NewLimiter(rate.Every(10*time.Second), 10)}
}

// webhookPathField is the index of sources by their webhook path.
const webhookPathField = "status.webhookPath"

// Register adds the Receiver, its index and its readiness check to a manager.
func (r *Receiver) Register(ctx context.Context, mgr ctrl.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &appsv1.KsctlSource{}, webhookPathField,
		indexWebhookPath); err != nil {
		return fmt.Errorf("indexing sources by webhook path: %w", err)
	}
	// The informer is synced before the first request: it shows whether a token has changed.
	if _, err := mgr.GetCache().GetInformer(ctx, reconcile.PartialMetadata("", "Secret")); err != nil {
		return fmt.Errorf("watching the metadata of Secrets: %w", err)
	}
	if err := mgr.AddReadyzCheck("webhook", r.ready); err != nil {
		return fmt.Errorf("adding the readiness check of webhooks: %w", err)
	}
	return mgr.Add(r)
}

func indexWebhookPath(o client.Object) []string {
	if path := o.(*appsv1.KsctlSource).Status.WebhookPath; path != "" {
		return []string{path}
	}
	return nil
}

// ready is a readiness check: it fails until the Receiver listens.
func (r *Receiver) ready(*http.Request) error {
	if !r.listening.Load() {
		return errors.New("the webhook receiver is not listening yet")
	}
	return nil
}

// NeedLeaderElection returns false: a sender may reach any replica.
func (r *Receiver) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable: it receives until ctx is done, and returns when all requests
// and delayed reconcile requests have ended.
func (r *Receiver) Start(ctx context.Context) error {
	defer r.throttle.waiting.Wait()
	defer r.stop()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", r.Addr)
	if err != nil {
		return fmt.Errorf("serving webhooks: %w", err)
	}
	server := &http.Server{Handler: r, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	r.listening.Store(true)
	context.AfterFunc(ctx, func() { r.listening.Store(false) })
	return httpserver.Serve(ctx, server, listener, closeGrace, "webhooks")
}

// result is the result of a request.
type result string

const (
	// accepted: a reconcile of the source is requested.
	accepted result = "accepted"
	// coalesced: a reconcile will be requested later, once for all pushes until then.
	coalesced result = "coalesced"
	// duplicate: the same request was received within dedupWindow.
	duplicate result = "duplicate"
	// ignored: the request is not a push, or the push does not affect the source.
	ignored result = "ignored"
	// rejected: there is no source at the path, or the sender does not know its token.
	rejected result = "rejected"
	// invalid: the sender knows the token, but the body is not a valid push.
	invalid result = "invalid"
	// tooLarge, incomplete, busy: the body was not parsed.
	tooLarge   result = "too_large"
	incomplete result = "incomplete"
	busy       result = "busy"
	// failed: a request to the API server failed.
	failed result = "failed"
)
