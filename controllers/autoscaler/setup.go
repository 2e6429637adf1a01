package autoscaler

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
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
	Reconciler *reconcile.Reconciler[*clusterv1.KsctlAutoScaler]
	Steps      *Steps

	queue reconcile.Queue
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
			return []string{reconcile.IndexValue("ServiceAccount", o.Namespace, s.Steps.account(o))}
		},
	}
	if err := reconcile.AddIndexes(ctx, mgr.GetFieldIndexer(), &clusterv1.KsctlAutoScaler{}, fields); err != nil {
		return err
	}
	s.connect()
	_, err := s.Reconciler.NewBuilder(mgr).
		Owns(&appsv1.KsctlInstall{}).
		Watches(&clusterv1.KsctlAutoScaler{}, handler.Funcs{UpdateFunc: s.pauseSuspended, DeleteFunc: s.handOver}).
		Watches(&clusterv1.KsctlCluster{}, handler.EnqueueRequestsFromMapFunc(s.ofCluster)).
		WatchesMetadata(reconcile.PartialMetadata("", "Secret"),
			handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
				s.Steps.Certificates.handleSecret(o)
				return s.Reconciler.Requests(ctx,
					client.MatchingFields{secretIndex: reconcile.IndexValue("Secret", o.GetNamespace(), o.GetName())})
			})).
		WatchesMetadata(reconcile.PartialMetadata("", "ServiceAccount"),
			s.Reconciler.ByIndex(accountIndex, "ServiceAccount")).
		WatchesRawSource(source.Func(s.queue.Start)).
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

// pauseSuspended pauses the polling of Cluster Autoscaler when an object is suspended, because a
// suspended object is not reconciled.
func (s *Setup) pauseSuspended(_ context.Context, e event.UpdateEvent,
	_ workqueue.TypedRateLimitingInterface[crreconcile.Request]) {
	if obj, ok := e.ObjectNew.(*clusterv1.KsctlAutoScaler); ok && obj.Spec.Suspend && obj.DeletionTimestamp == nil &&
		s.Steps.Published.Get(client.ObjectKeyFromObject(obj)) != nil {
		s.Steps.pausePolling(obj, errSuspended)
	}
}

// connect sets the callbacks with which the background tasks enqueue objects.
func (s *Setup) connect() {
	steps := s.Steps
	steps.NodeWatches.OnChange, steps.AgentSessions.OnReport, steps.enqueue, steps.Published.Wake = s.enqueue,
		s.enqueue, s.enqueue, s.enqueue
	steps.Certificates.secretChanged = make(chan struct{}, 1)
	steps.Certificates.OnAuthorityChange = func() { s.queue.Add(s.Reconciler.Requests(context.Background())...) }
	steps.Targets.Clusters.Subscribe(func(ownerKey string) {
		if k, ok := plan.ParseOwnerKey(ownerKey); ok && k.Kind == clusterv1.KsctlAutoScalerKind {
			s.enqueue(types.NamespacedName{Namespace: k.Namespace, Name: k.Name})
		}
	})
}

// enqueue adds an object to the queue.
func (s *Setup) enqueue(key types.NamespacedName) {
	s.queue.Add(crreconcile.Request{NamespacedName: key})
}

// handOver enqueues the objects that name the cluster of a deleted one: the next one takes over.
func (s *Setup) handOver(ctx context.Context, e event.DeleteEvent,
	queue workqueue.TypedRateLimitingInterface[crreconcile.Request]) {
	obj, ok := e.Object.(*clusterv1.KsctlAutoScaler)
	if !ok {
		return
	}
	for _, r := range s.Reconciler.Requests(ctx, client.InNamespace(obj.Namespace),
		client.MatchingFields{clusterIndex: obj.Spec.ClusterRef.Name}) {
		queue.Add(r)
	}
}

func (s *Setup) ofCluster(ctx context.Context, o client.Object) []crreconcile.Request {
	return s.Reconciler.Requests(ctx, client.InNamespace(o.GetNamespace()),
		client.MatchingFields{clusterIndex: o.GetName()})
}
