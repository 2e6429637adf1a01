package setup

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	fluxevents "github.com/fluxcd/pkg/runtime/events"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	storagev1alpha1 "github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/install"
	"github.com/ksctl/gitops/controllers/install/handover"
	"github.com/ksctl/gitops/controllers/install/rollout"
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

// EventsDrainTimeout bounds the time to send the remaining events at shutdown.
const EventsDrainTimeout = 5 * time.Second

var realClock clock.RealClock

// AddToScheme adds the types of all kinds that the reconcilers read or write.
func AddToScheme(s *runtime.Scheme) error {
	all := runtime.SchemeBuilder{clientgoscheme.AddToScheme, sourcev1.AddToScheme, appsv1.AddToScheme,
		storagev1alpha1.AddToScheme, clusterv1.AddToScheme}
	return all.AddToScheme(s)
}

// Controllers adds reconcilers to one manager and holds their shared dependencies.
type Controllers struct {
	opts Options
	mgr  ctrl.Manager
	// metrics of all kinds.
	metrics *metrics.Recorder
	// direct reads from and writes to the API server with the controller's own permissions.
	direct      client.Client
	index       *live.Index
	localTarget *engine.Target
	// targets is nil until a kind with target clusters is added.
	targets   *target.Resolver
	engine    *engine.Engine
	discovery *engine.ServerDiscovery
	// key is the key for hashes of secret content.
	key []byte
	// content loads the content of stacks.
	content *content.Loader
	// artifactStorage holds the artifacts that the artifact server serves; nil until AddSources.
	artifactStorage *storage.Storage
}

// New adds the shared dependencies of the reconcilers to a manager: the index of live objects and,
// without Options.Events, the event queue. It reads the hash key in Options.Namespace from the API
// server, or creates it.
func New(ctx context.Context, mgr ctrl.Manager, o Options) (*Controllers, error) {
	if err := o.validate(); err != nil {
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
	if c.index, err = live.New(mgr.GetConfig(),
		live.Options{OwnerID: o.OwnerID, Log: mgr.GetLogger().WithName("index"), SecretKey: c.key}); err != nil {
		return nil, err
	}
	if err := mgr.Add(c.index); err != nil {
		return nil, err
	}
	if c.localTarget, c.discovery, err = newTarget(mgr.GetConfig(), c.index); err != nil {
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

// addEvents adds a queue that sends events to the API server, so that no reconcile waits for it.
func (c *Controllers) addEvents() error {
	recorder, err := fluxevents.NewRecorder(c.mgr, c.mgr.GetLogger(), "", FieldOwner)
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	q := &events.Queue{Recorder: recorder, Scheme: c.mgr.GetScheme(), DrainTimeout: EventsDrainTimeout,
		OnDrop: func() {
			c.metrics.EventDropped("kubernetes")
		}, OnLength: func(n int) { c.metrics.EventsWaiting("kubernetes", n) }}
	c.opts.Events = q
	return c.mgr.Add(q)
}

// AddInstalls adds the reconciler of KsctlInstall. The artifact server of AddSources serves the
// artifacts that installs publish: unless AddSources was called before, installs publish nothing.
func (c *Controllers) AddInstalls(ctx context.Context) error {
	if err := c.addTargets(ctx); err != nil {
		return err
	}
	steps := &install.Steps{
		Client: c.mgr.GetClient(), Content: c.content,
		Engine: c.engine, Targets: c.targets,
		Chunks: &engine.ChunkStore{Client: c.mgr.GetClient(), Reader: c.mgr.GetClient(),
			APIReader: c.mgr.GetAPIReader()},
		Installation: c.opts.OwnerID, DefaultServiceAccount: c.opts.DefaultServiceAccount,
		ConfigsSelected: c.opts.ConfigCacheFiltered, SecretKey: c.key, Clock: realClock,
	}
	if c.artifactStorage != nil {
		steps.Publisher = &publish.Publisher{Client: c.mgr.GetClient(), Direct: c.mgr.GetAPIReader(),
			Serves: c.discovery.Serves, Storage: c.artifactStorage.Space(install.StorageSpace),
			Limits: c.opts.ArtifactLimits, FieldOwner: FieldOwner, Clock: realClock}
	}
	depends, err := dependency.New(c.mgr.GetConfig())
	if err != nil {
		return err
	}
	if err := c.mgr.Add(depends); err != nil {
		return err
	}
	steps.Dependencies, steps.Plans, steps.RecordDriftCorrections = depends, handover.NewPlans(clock.RealClock{}),
		c.metrics.RecordDriftCorrections
	dispatcher := &rollout.Dispatcher{Single: steps,
		Fleet: &rollout.FleetSteps{Client: c.mgr.GetClient(), Single: steps, FieldOwner: FieldOwner}}
	setup := &install.Setup{
		Reconciler: newReconciler[appsv1.KsctlInstall, appsv1.KsctlInstallList](c, appsv1.KsctlInstallKind, dispatcher),
		Steps:      steps, Index: c.index, Served: c.discovery, KindsChanged: c.kindsChanged,
		KindsListed: c.discovery.Invalidate,
	}
	setup.Reconciler.Selector = nil // the cache restricts the installs
	return setup.Register(ctx, c.mgr)
}

// controllerOptions returns the controller options of every kind. They skip the name validation,
// because one process may run several managers, as in tests.
func (c *Controllers) controllerOptions() controller.Options {
	return controller.Options{MaxConcurrentReconciles: c.opts.Concurrent, SkipNameValidation: ptr.To(true)}
}

// objectOf and listOf are the pointers to the struct types of a kind and of its list.
type (
	objectOf[T any] interface {
		*T
		reconcile.Object
	}
	listOf[L any] interface {
		*L
		client.ObjectList
	}
)

// newReconciler returns a reconciler of the objects that Options.Selector selects. The cache does
// not restrict them: an install may refer to a source of another shard, and reacts to each
// KsctlRemove that references it.
func newReconciler[T, L any, O objectOf[T], OL listOf[L]](c *Controllers, kind string,
	steps reconcile.Steps[O]) *reconcile.Reconciler[O] {
	r := &reconcile.Reconciler[O]{
		Client: c.mgr.GetClient(), Reader: c.mgr.GetAPIReader(), New: func() O {
			return new(T)
		}, NewList: func() client.ObjectList { return OL(new(L)) },
		Kind: kind, Steps: steps, Events: c.opts.Events, Metrics: c.metrics, Clock: realClock, FieldOwner: FieldOwner,
		Jitter: func(d time.Duration) time.Duration { return jitter(d, c.opts.Jitter) }, Options: c.controllerOptions(),
	}
	if selector := c.opts.Selector; selector != nil {
		r.Selector = predicate.NewPredicateFuncs(func(o client.Object) bool {
			return selector.Matches(labels.Set(o.GetLabels()))
		})
	}
	return r
}

// jitter changes a duration randomly by up to percent in both directions.
func jitter(d time.Duration, percent uint8) time.Duration {
	return d + time.Duration((rand.Float64()*2-1)*float64(percent)/100*float64(d))
}

// kindsChanged is called with the name of a changed CustomResourceDefinition (<plural>.<group>) or
// APIService (<version>.<group>).
func (c *Controllers) kindsChanged(name string) {
	c.discovery.MarkChanged()
	if _, group, ok := strings.Cut(name, "."); ok {
		c.index.WakeGroup(group)
	}
}
