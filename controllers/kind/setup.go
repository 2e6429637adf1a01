package kind

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/dependency"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/internal/sources/sourceref"
)

// Setup adds two controllers to a manager: that of KsctlKinds, and that of the objects of all
// served kinds.
type Setup struct {
	Reconciler *reconcile.Reconciler[*appsv1.KsctlKind]
	Steps      *Steps
	Kinds      *Kinds
	// Index is the index of the local cluster, and Clusters are the other ones.
	Index    *live.Index
	Clusters *target.Clusters
	// Discovery reports which kinds of sources the cluster serves.
	Discovery sourceref.Discovery
	// Dependencies watches the objects that installs depend on.
	Dependencies *dependency.Watcher
	// Options of the controller of objects.
	Options controller.Options

	kinds, objects reconcile.Queue
	kindController controller.Controller
}

// Field indexes of KsctlKinds: by the source, and by the Secret of spec.decryption.
const (
	bySource     = ".spec.sourceRef"
	byDecryption = ".spec.decryption"
)

// Register adds the controllers to a manager.
func (s *Setup) Register(ctx context.Context, mgr ctrl.Manager) error {
	if err := mgr.Add(s.Kinds); err != nil {
		return err
	}
	objects, err := s.registerObjects(mgr)
	if err != nil {
		return fmt.Errorf("controller of served objects: %w", err)
	}
	s.Steps.Published = func(kind string) {
		s.Kinds.composition.forget(kind)
		s.enqueueObjects(context.Background(), kind, nil)
	}
	s.Steps.Released = func(kind string, object types.NamespacedName) { s.objects.Add(request(kind, object)) }
	s.Kinds.changed = func(p *publishedKind) { s.kinds.Add(ownerRequest(p.owner)) }
	s.Kinds.watch = func(p *publishedKind, c cache.Cache) error { return s.watchObjects(objects, p, c) }
	return s.registerKinds(ctx, mgr)
}

func (s *Setup) registerKinds(ctx context.Context, mgr ctrl.Manager) error {
	if err := reconcile.AddIndexes(ctx, mgr.GetFieldIndexer(), &appsv1.KsctlKind{},
		map[string]func(*appsv1.KsctlKind) []string{bySource: func(k *appsv1.KsctlKind) []string {
			ref := k.Spec.SourceRef
			return []string{reconcile.IndexValue(ref.Kind, ref.Namespace, ref.Name)}
		}, byDecryption: func(k *appsv1.KsctlKind) []string {
			if k.Spec.Decryption == nil {
				return nil
			}
			secret := s.Steps.keysSecret(k.Spec)
			return []string{reconcile.IndexValue("Secret", secret.Namespace, secret.Name)}
		}}); err != nil {
		return err
	}
	var c controller.Controller
	sources := sourceref.NewWatcher(s.Discovery, func(kind string, object client.Object) error {
		return c.Watch(source.Kind(mgr.GetCache(), object, s.Reconciler.ByIndex(bySource, kind),
			predicate.Funcs{UpdateFunc: sourceref.ArtifactChanged}))
	}, func(ctx context.Context) { s.kinds.Add(s.Reconciler.Requests(ctx)...) })
	var err error
	c, err = s.Reconciler.NewBuilder(mgr).
		WatchesMetadata(reconcile.PartialMetadata("apiextensions.k8s.io", "CustomResourceDefinition"),
			handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []crreconcile.Request {
				if strings.HasSuffix(o.GetName(), "."+sourcev1.GroupVersion.Group) {
					sources.DefinitionChanged()
				}
				if owner, ok := s.Steps.owners.Load(o.GetName()); ok {
					return []crreconcile.Request{ownerRequest(owner.(string))}
				}
				return nil
			})).
		WatchesMetadata(reconcile.PartialMetadata("", "Secret"), s.Reconciler.ByIndex(byDecryption, "Secret")).
		WatchesMetadata(reconcile.PartialMetadata(rbacv1.GroupName, "ClusterRole"),
			handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []crreconcile.Request {
				if owner, ok := s.Steps.ownerOf(o); ok {
					return []crreconcile.Request{ownerRequest(owner)}
				}
				return nil
			})).
		WatchesRawSource(source.Func(s.kinds.Start)).
		Build(crreconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
			var k appsv1.KsctlKind
			if err := s.Reconciler.Client.Get(ctx, req.NamespacedName, &k); err == nil {
				if err := s.Steps.EnsureWatched(ctx, &k); err != nil { // the reconcile has its own conditions
					log.FromContext(ctx).Error(err, "unable to watch the objects of the kind")
				}
			}
			return s.Reconciler.Reconcile(ctx, req)
		}))
	if err != nil {
		return fmt.Errorf("controller of %s: %w", appsv1.KsctlKindKind, err)
	}
	s.kindController = c
	_ = sources.Sync(ctx) // errors are retried by the watcher
	return mgr.Add(sources)
}

// registerObjects adds the controller of the objects of all kinds. Their kinds are watched when
// they are served.
func (s *Setup) registerObjects(mgr ctrl.Manager) (controller.Controller, error) {
	b := ctrl.NewControllerManagedBy(mgr).Named("servedobject").WithOptions(s.Options).
		WatchesRawSource(source.Func(s.liveObjects)).
		Watches(&clusterv1.KsctlCluster{}, s.users(func(o client.Object) string {
			return target.ClusterID(o.GetNamespace(), o.GetName())
		}))
	for _, kind := range []string{"ConfigMap", "Secret", "ServiceAccount"} {
		b = b.WatchesMetadata(reconcile.PartialMetadata("", kind), s.users(func(o client.Object) string {
			return reconcile.IndexValue(kind, o.GetNamespace(), o.GetName())
		}))
	}
	b = reconcile.WatchPermissions(b, s.permissionEvents())
	for _, watched := range []*metav1.PartialObjectMetadata{
		reconcile.PartialMetadata("apiextensions.k8s.io", "CustomResourceDefinition"),
		reconcile.PartialMetadata("apiregistration.k8s.io", "APIService")} {
		b = b.WatchesMetadata(watched, handler.Funcs{
			CreateFunc: func(ctx context.Context, e event.CreateEvent, _ queue) {
				if !e.IsInInitialList {
					s.enqueueNotReady(ctx)
				}
			},
			UpdateFunc: func(ctx context.Context, _ event.UpdateEvent, _ queue) { s.enqueueNotReady(ctx) }})
	}
	return b.Build(crreconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		key, object := parseQueueKey(req.NamespacedName)
		p := s.Kinds.get(key)
		if p == nil {
			return ctrl.Result{}, nil
		}
		return p.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: object})
	}))
}

type queue = workqueue.TypedRateLimitingInterface[crreconcile.Request]

// watchObjects enqueues the objects of a kind when they change, and the KsctlKind when their number
// or their readiness changes.
func (s *Setup) watchObjects(c controller.Controller, p *publishedKind, objects cache.Cache) error {
	key := p.key()
	enqueue := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []crreconcile.Request {
		return []crreconcile.Request{request(key, client.ObjectKeyFromObject(o))}
	})
	err := c.Watch(source.Kind[client.Object](objects, &Object{}, enqueue, p.reconciler.SpecChanged()))
	if err != nil {
		return err
	}
	count := func(q queue) { q.AddAfter(ownerRequest(p.owner), countDelay) }
	return s.kindController.Watch(source.Kind[client.Object](objects, &Object{}, handler.Funcs{
		CreateFunc: func(_ context.Context, _ event.CreateEvent, q queue) { count(q) },
		DeleteFunc: func(_ context.Context, _ event.DeleteEvent, q queue) { count(q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*Object), e.ObjectNew.(*Object)
			if rolloutStateOf(before) != rolloutStateOf(after) {
				count(q)
			}
		}}))
}

// countDelay is the minimum time between two counts of the objects of a kind.
const countDelay = time.Second

func ownerRequest(owner string) crreconcile.Request {
	return crreconcile.Request{NamespacedName: types.NamespacedName{Name: owner}}
}

// rolloutStateOf returns what a KsctlKind counts of an object.
func rolloutStateOf(o *Object) (out struct {
	ready                      metav1.ConditionStatus
	applied, attempted, digest string
}) {
	out.ready, out.applied, out.attempted = readyStatus(o), o.Status.LastAppliedRevision, o.Status.LastAttemptedRevision
	if o.Status.Artifact != nil {
		out.digest = o.Status.Artifact.Digest
	}
	return out
}

// readyStatus returns the status of the condition Ready; Unknown for an earlier generation.
func readyStatus(o *Object) metav1.ConditionStatus {
	c := apimeta.FindStatusCondition(o.Status.Conditions, appsv1.ReadyCondition)
	if c == nil || c.ObservedGeneration != o.Generation {
		return metav1.ConditionUnknown
	}
	return c.Status
}

func isReady(o *Object) bool { return readyStatus(o) == metav1.ConditionTrue }

// users returns a handler that enqueues the objects that use something.
func (s *Setup) users(value func(client.Object) string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []crreconcile.Request {
		return s.Kinds.references.requests(value(o))
	})
}

// permissionEvents enqueue the objects that a change of permissions or namespaces may concern, and
// those of a namespace that is being deleted.
func (s *Setup) permissionEvents() reconcile.PermissionEvents {
	return reconcile.PermissionEvents{
		Changed: func(namespace string, q queue) {
			for _, p := range s.Kinds.all() {
				for name, delay := range p.installs.PermissionsChanged(namespace) {
					q.AddAfter(request(p.key(), name), delay)
				}
			}
		},
		Terminating: func(ctx context.Context, namespace string, _ queue) {
			for _, p := range s.Kinds.all() {
				s.enqueueObjects(ctx, p.key(), func(o *Object) bool { return o.Namespace == namespace })
			}
		},
	}
}

// liveObjects enqueues objects when what they installed changes, in the local or in another
// cluster, and when an object that they depend on changes.
func (s *Setup) liveObjects(ctx context.Context, q queue) error {
	if err := s.objects.Start(ctx, q); err != nil {
		return err
	}
	s.Clusters.SubscribeOwners(ctx, s.Index, func(k plan.OwnerKey) {
		if s.Kinds.get(k.Kind) != nil {
			q.Add(request(k.Kind, types.NamespacedName{Namespace: k.Namespace, Name: k.Name}))
		}
	})
	s.Dependencies.Subscribe(func(key types.NamespacedName) { q.Add(crreconcile.Request{NamespacedName: key}) })
	return nil
}

// enqueueObjects enqueues the objects of a kind; those that a filter selects if it is not nil.
func (s *Setup) enqueueObjects(ctx context.Context, kind string, selects func(*Object) bool) {
	p := s.Kinds.get(kind)
	if p == nil {
		return
	}
	objects, out := p.list(ctx)
	if out != nil {
		return // the cache starts, and enqueues all of them
	}
	objects = slices.DeleteFunc(slices.Clone(objects), func(o Object) bool { return selects != nil && !selects(&o) })
	for i := range objects {
		s.objects.Add(request(kind, client.ObjectKeyFromObject(&objects[i])))
	}
}

// enqueueNotReady enqueues the objects that are not ready: they may wait for a kind.
func (s *Setup) enqueueNotReady(ctx context.Context) {
	for _, p := range s.Kinds.all() {
		s.enqueueObjects(ctx, p.key(), func(o *Object) bool { return !isReady(o) })
	}
}
