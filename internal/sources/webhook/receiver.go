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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// Bounds of requests, of whoever sends them.
const (
	// DefaultMaxBytes of a body: that of a push of some thousand commits.
	DefaultMaxBytes = 4 << 20
	// atATime is how many requests are read and looked into at a time, and
	// atATimeOfOne how many at one path.
	atATime      = 32
	atATimeOfOne = 8
	// closeGrace is how long they may still take when the process ends.
	closeGrace = 5 * time.Second
	// askWithin bounds what the API server is asked for one of them.
	askWithin = 5 * time.Second
)

// Options of a Receiver.
type Options struct {
	// Client reads sources and the metadata of Secrets from the cache, and writes
	// annotations; Secrets reads from the API server.
	Client  client.Client
	Secrets client.Reader
	// Addr to listen at, such as ":9292".
	Addr string
	// MaxBytes of a body; DefaultMaxBytes when 0.
	MaxBytes   int64
	FieldOwner string
	Clock      clock.Clock
	Log        logr.Logger
	// Count is called after each request, with the type of the webhook, empty if unknown, and
	// the result; nil counts nothing.
	Count func(webhook, result string)
}

// Receiver is told of pushes over HTTP.
type Receiver struct {
	Options

	gate   *gate
	stop   context.CancelFunc
	slots  slots
	tokens *lru.Cache // token by types.NamespacedName
	// refusals bounds what strangers can have logged.
	refusals  *rate.Limiter
	listening atomic.Bool
}

// New makes a Receiver. It receives once it is started.
func New(o Options) *Receiver {
	if o.Count == nil {
		o.Count = func(string, string) {}
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	ctx, stop := context.WithCancel(context.Background())
	return &Receiver{Options: o, gate: newGate(ctx, o.Clock), stop: stop, tokens: lru.New(maxSources),
		refusals: rate.NewLimiter(rate.Every(10*time.Second), 10)}
}

// byPath is the field by which the source of a path is found.
const byPath = "status.webhookPath"

// Register adds the receiver to a manager.
func (r *Receiver) Register(ctx context.Context, mgr ctrl.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &appsv1.KsctlSource{}, byPath, pathOf); err != nil {
		return fmt.Errorf("index of webhooks: %w", err)
	}
	// Filled before the first request: its path shows when a token is another one.
	if _, err := mgr.GetCache().GetInformer(ctx, secretMetadata()); err != nil {
		return fmt.Errorf("secrets of webhooks: %w", err)
	}
	if err := mgr.AddReadyzCheck("webhook", r.ready); err != nil {
		return fmt.Errorf("readiness of webhooks: %w", err)
	}
	return mgr.Add(r)
}

func pathOf(o client.Object) []string {
	if path := o.(*appsv1.KsctlSource).Status.WebhookPath; path != "" {
		return []string{path}
	}
	return nil
}

func secretMetadata() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return m
}

// ready keeps requests from a process that does not listen yet.
func (r *Receiver) ready(*http.Request) error {
	if !r.listening.Load() {
		return errors.New("pushes are not received yet")
	}
	return nil
}

// NeedLeaderElection is false: a sender reaches any replica.
func (r *Receiver) NeedLeaderElection() bool { return false }

// Start receives until ctx ends, and returns when everything that it started has.
func (r *Receiver) Start(ctx context.Context) error {
	defer r.gate.waiting.Wait()
	defer r.stop()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", r.Addr)
	if err != nil {
		return fmt.Errorf("receiving webhooks: %w", err)
	}
	server := &http.Server{Handler: r, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	r.listening.Store(true)
	select {
	case err := <-served:
		return fmt.Errorf("receiving webhooks: %w", err)
	case <-ctx.Done():
	}
	r.listening.Store(false)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
	defer cancel()
	if err = server.Shutdown(grace); err != nil {
		err = errors.Join(err, server.Close())
	}
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	if err != nil {
		return fmt.Errorf("receiving webhooks: %w", err)
	}
	return nil
}
