package setup

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	fluxevents "github.com/fluxcd/pkg/runtime/events"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	storagev1alpha1 "github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/install"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/dependency"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/internal/sources/content"
	"github.com/ksctl/gitops/internal/sources/publish"
	"github.com/ksctl/gitops/internal/sources/storage"
	"github.com/ksctl/gitops/internal/telemetry/events"
	"github.com/ksctl/gitops/internal/telemetry/metrics"
)

// EventsLinger is how long the events of the end may take.
const EventsLinger = 5 * time.Second

// AddToScheme adds every kind that the reconcilers read or write.
func AddToScheme(s *runtime.Scheme) error {
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, sourcev1.AddToScheme, appsv1.AddToScheme, storagev1alpha1.AddToScheme, clusterv1.AddToScheme} {
		if err := add(s); err != nil {
			return err
		}
	}
	return nil
}

// Controllers are what the reconcilers of one manager share.
type Controllers struct {
	opts Options
	mgr  ctrl.Manager
	// metrics of all kinds.
	metrics *metrics.Recorder
	// direct reads from and writes to the API server, with the controller's own rights.
	direct client.Client
	index  *live.Index
	target *engine.Target
	// targets are nil until a kind is added that has some.
	targets   *target.Targets
	engine    *engine.Engine
	discovery *engine.ServerDiscovery
	// key for hashes of secret content.
	key []byte
	// content gets what stacks hold, for whoever wants it.
	content *content.Loader
	// served has what is served to others; nil until AddSources.
	served *storage.Storage
}

// New adds what the reconcilers share to a manager: the index of live objects and,
// without Options.Events, the queue of events. It asks the API server for the key in
// Options.Namespace.
func New(ctx context.Context, mgr ctrl.Manager, o Options) (*Controllers, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Concurrent == 0 {
		o.Concurrent = DefaultConcurrent
	}
	recorder, err := metrics.Register(o.Metrics)
	if err != nil {
		return nil, err
	}
	direct, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme()})
	if err != nil {
		return nil, err
	}
	c := &Controllers{opts: o, mgr: mgr, metrics: recorder, direct: direct, engine: engine.New(engine.Options{})}
	if c.key, err = hashKey(ctx, direct, o.Namespace); err != nil {
		return nil, err
	}
	if c.index, err = live.New(mgr.GetConfig(), live.Options{Owner: o.OwnerID, Log: mgr.GetLogger().WithName("index"), SecretKey: c.key}); err != nil {
		return nil, err
	}
	if err := mgr.Add(c.index); err != nil {
		return nil, err
	}
	if c.target, c.discovery, err = newTarget(mgr.GetConfig(), c.index); err != nil {
		return nil, err
	}
	if o.Events == nil {
		if err := c.addEvents(); err != nil {
			return nil, err
		}
	}
	c.content, err = c.newContent()
	return c, err
}

// addEvents has events written by the API server, which no reconcile waits for.
func (c *Controllers) addEvents() error {
	recorder, err := fluxevents.NewRecorder(c.mgr, c.mgr.GetLogger(), "", FieldOwner)
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	q := &events.Queue{To: recorder, Scheme: c.mgr.GetScheme(), Clock: clock.RealClock{}, Linger: EventsLinger,
		Dropped: func() { c.metrics.EventDropped("kubernetes") }, Held: func(n int) { c.metrics.EventsWaiting("kubernetes", n) }}
	c.opts.Events = q
	return c.mgr.Add(q)
}

// AddInstalls adds the reconciler of KsctlInstall. What installs publish is served by the
// server of AddSources: without that, or before it, nothing is published.
func (c *Controllers) AddInstalls(ctx context.Context) error {
	if err := c.addTargets(ctx); err != nil {
		return err
	}
	steps := &install.Steps{
		Client: c.mgr.GetClient(), Content: c.content,
		Engine: c.engine, Targets: c.targets,
		Chunks:       &engine.ChunkStore{Client: c.mgr.GetClient(), Reader: c.mgr.GetClient(), Direct: c.mgr.GetAPIReader()},
		Installation: c.opts.OwnerID, DefaultServiceAccount: c.opts.DefaultServiceAccount, ConfigsSelected: c.opts.ConfigsSelected, SecretKey: c.key, Clock: clock.RealClock{},
	}
	if c.served != nil {
		steps.Publisher = &publish.Publisher{Client: c.mgr.GetClient(), Direct: c.mgr.GetAPIReader(), Serves: c.discovery.Serves, Storage: c.served.Space(install.Space),
			Limits: c.opts.ArtifactLimits, FieldOwner: FieldOwner, Clock: clock.RealClock{}}
	}
	depends, err := dependency.New(c.mgr.GetConfig())
	if err != nil {
		return err
	}
	if err := c.mgr.Add(depends); err != nil {
		return err
	}
	steps.Depends, steps.Plans, steps.Corrected = depends, install.NewPlans(), c.metrics.Corrected
	forms := &install.Forms{One: steps, Many: &install.Fleets{Client: c.mgr.GetClient(), Content: c.content, One: steps, FieldOwner: FieldOwner, Clock: clock.RealClock{}}}
	setup := &install.Setup{
		Reconciler: newReconciler(c, install.Kind, forms, func() *appsv1.KsctlInstall { return &appsv1.KsctlInstall{} }),
		Index:      c.index, Clusters: c.targets.Clusters, Depends: depends, Plans: steps.Plans, Served: c.discovery, KindsChanged: c.kindsChanged, KindsListed: c.discovery.Reset,
		Installation: c.opts.OwnerID, DefaultServiceAccount: c.opts.DefaultServiceAccount,
		Options: c.controllerOptions(),
	}
	if c.served != nil {
		setup.Storage = steps.Publisher.Storage
	}
	return setup.Register(ctx, c.mgr)
}

// controllerOptions are those of every kind. Several may run in one process, as in tests.
func (c *Controllers) controllerOptions() controller.Options {
	return controller.Options{MaxConcurrentReconciles: c.opts.Concurrent, SkipNameValidation: ptr.To(true)}
}

func newReconciler[T reconcile.Object](c *Controllers, kind string, steps reconcile.Steps[T], empty func() T) *reconcile.Reconciler[T] {
	return &reconcile.Reconciler[T]{
		Client: c.mgr.GetClient(), Reader: c.mgr.GetAPIReader(), New: empty, Kind: kind, Steps: steps,
		Events: c.opts.Events, Metrics: c.metrics, Clock: clock.RealClock{}, FieldOwner: FieldOwner,
		Jitter: func(d time.Duration) time.Duration { return spread(d, c.opts.Jitter) },
	}
}

// spread moves a duration by up to so many percent either way.
func spread(d time.Duration, percent uint8) time.Duration {
	return d + time.Duration((rand.Float64()*2-1)*float64(percent)/100*float64(d))
}

// kindsChanged is called when a CustomResourceDefinition (<plural>.<group>) or
// an APIService (<version>.<group>) changed.
func (c *Controllers) kindsChanged(name string) {
	c.discovery.Changed()
	if _, group, ok := strings.Cut(name, "."); ok {
		c.index.WakeGroup(group)
	}
}
