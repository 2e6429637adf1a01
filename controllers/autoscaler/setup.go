package autoscaler

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/scaling/settings"
)

// Setup registers the controller of KsctlAutoScalers and its watches.
type Setup struct {
	Reconciler            *reconcile.Reconciler[*clusterv1.KsctlAutoScaler]
	Steps                 *Steps
	ChangeRecorder        *ChangeRecorder
	DefaultServiceAccount string
	Options               controller.Options
}

// Names of the field indexes of KsctlAutoScalers.
const (
	clusterIndex = ".spec.clusterRef.name"
	secretIndex  = "secrets"
	accountIndex = ".spec.serviceAccountName"
)

// Register adds the controller and its background tasks to a manager.
func (s *Setup) Register(ctx context.Context, mgr ctrl.Manager) error {
	fields := map[string]func(*clusterv1.KsctlAutoScaler) []string{
		clusterIndex: func(o *clusterv1.KsctlAutoScaler) []string { return []string{o.Spec.ClusterRef.Name} },
		secretIndex: func(o *clusterv1.KsctlAutoScaler) []string {
			out := []string{reconcile.IndexValue("Secret", o.Namespace, settings.ClientSecretName(o.Name))}
			if ref := o.Spec.Agent.SecretRef; ref != nil {
				out = append(out, reconcile.IndexValue("Secret", o.Namespace, ref.Name))
			}
			return out
		},
		accountIndex: func(o *clusterv1.KsctlAutoScaler) []string {
			return []string{reconcile.IndexValue("ServiceAccount", o.Namespace, cmp.Or(o.Spec.ServiceAccountName, s.DefaultServiceAccount))}
		},
	}
	if err := reconcile.AddIndexes(ctx, mgr.GetFieldIndexer(), &clusterv1.KsctlAutoScaler{}, fields); err != nil {
		return err
	}
	w := &enqueuer{reader: mgr.GetClient(), selector: s.Reconciler.Selector}
	w.connect(s)
	_, err := ctrl.NewControllerManagedBy(mgr).Named("ksctlautoscaler").
		For(&clusterv1.KsctlAutoScaler{}, builder.WithPredicates(s.Reconciler.SpecChanged())).
		Owns(&appsv1.KsctlInstall{}).
		Watches(&clusterv1.KsctlAutoScaler{}, handler.EnqueueRequestsFromMapFunc(w.ofSameCluster), builder.WithPredicates(onlyDeletes)).
		Watches(&clusterv1.KsctlAutoScaler{}, handler.Funcs{UpdateFunc: s.pauseSuspended}).
		Watches(&clusterv1.KsctlCluster{}, handler.EnqueueRequestsFromMapFunc(w.ofCluster)).
		WatchesMetadata(reconcile.PartialMetadata("", "Secret"), handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
			s.Steps.Certificates.handleSecret(o)
			return w.byField(secretIndex, "Secret")(ctx, o)
		})).
		WatchesMetadata(reconcile.PartialMetadata("", "ServiceAccount"), handler.EnqueueRequestsFromMapFunc(w.byField(accountIndex, "ServiceAccount"))).
		WatchesRawSource(source.Func(w.queue.Start)).
		WithOptions(s.Options).
		Build(s.Reconciler)
	if err != nil {
		return fmt.Errorf("building the controller of %s: %w", clusterv1.KsctlAutoScalerKind, err)
	}
	for _, run := range []interface{ Start(context.Context) error }{s.Steps.NodeWatches, s.Steps.AgentSessions} {
		if err := mgr.Add(run); err != nil {
			return err
		}
	}
	if s.Steps.Certificates.Address == "" {
		return nil
	}
	return mgr.Add(s.Steps.Certificates)
}

// onlyDeletes accepts only delete events. When a KsctlAutoScaler is deleted, the next one that
// names the same cluster takes over.
var onlyDeletes = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	UpdateFunc:  func(event.UpdateEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// pauseSuspended pauses the polling of Cluster Autoscaler when an object is suspended, because a
// suspended object is not reconciled.
func (s *Setup) pauseSuspended(_ context.Context, e event.UpdateEvent, _ workqueue.TypedRateLimitingInterface[crreconcile.Request]) {
	if obj, ok := e.ObjectNew.(*clusterv1.KsctlAutoScaler); ok && obj.Spec.Suspend && obj.DeletionTimestamp == nil && s.Steps.Published.Get(client.ObjectKeyFromObject(obj)) != nil {
		s.Steps.pausePolling(obj, errSuspended)
	}
}

// enqueuer maps events to the KsctlAutoScalers that they affect.
type enqueuer struct {
	reader   client.Reader
	selector predicate.Predicate
	queue    reconcile.Queue
}

// connect sets the callbacks with which the background tasks enqueue objects.
func (w *enqueuer) connect(s *Setup) {
	steps := s.Steps
	steps.NodeWatches.OnChange, steps.AgentSessions.OnReport, s.ChangeRecorder.Enqueue, steps.Published.Wake = w.enqueue, w.enqueue, w.enqueue, w.enqueue
	steps.Certificates.secretChanged = make(chan struct{}, 1)
	steps.Certificates.OnAuthorityChange = func() { w.queue.Add(w.requests(context.Background())...) }
	steps.Targets.Clusters.Subscribe(func(ownerKey string) {
		if k, ok := plan.ParseOwnerKey(ownerKey); ok && k.Kind == clusterv1.KsctlAutoScalerKind {
			w.enqueue(types.NamespacedName{Namespace: k.Namespace, Name: k.Name})
		}
	})
}

// enqueue adds an object to the queue.
func (w *enqueuer) enqueue(key types.NamespacedName) {
	w.queue.Add(crreconcile.Request{NamespacedName: key})
}

func (w *enqueuer) requests(ctx context.Context, opts ...client.ListOption) []crreconcile.Request {
	return reconcile.RequestsFor(ctx, w.reader, &clusterv1.KsctlAutoScalerList{}, w.selector, opts...)
}

// ofSameCluster returns requests for the objects that name the same cluster.
func (w *enqueuer) ofSameCluster(ctx context.Context, o client.Object) []crreconcile.Request {
	as, ok := o.(*clusterv1.KsctlAutoScaler)
	if !ok {
		return nil
	}
	return w.requests(ctx, client.InNamespace(as.Namespace), client.MatchingFields{clusterIndex: as.Spec.ClusterRef.Name})
}

func (w *enqueuer) ofCluster(ctx context.Context, o client.Object) []crreconcile.Request {
	return w.requests(ctx, client.InNamespace(o.GetNamespace()), client.MatchingFields{clusterIndex: o.GetName()})
}

// byField returns a function that maps an object of a kind to the KsctlAutoScalers that reference
// it, by the index of a field.
func (w *enqueuer) byField(field, kind string) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []crreconcile.Request {
		return w.requests(ctx, client.MatchingFields{field: reconcile.IndexValue(kind, o.GetNamespace(), o.GetName())})
	}
}
