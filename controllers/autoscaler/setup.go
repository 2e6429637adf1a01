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
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/scaling/settings"
)

// Setup says what the controller watches.
type Setup struct {
	Reconciler            *reconcile.Reconciler[*clusterv1.KsctlAutoScaler]
	Steps                 *Steps
	Ledger                *Ledger
	DefaultServiceAccount string
	Options               controller.Options
}

// Fields by which KsctlAutoScalers are found.
const (
	byCluster = "spec.clusterRef.name"
	bySecret  = "Secrets of a KsctlAutoScaler"
	byAccount = "spec.serviceAccountName of a KsctlAutoScaler"
)

// Register adds the controller, and what it keeps running, to a manager.
func (s *Setup) Register(ctx context.Context, mgr ctrl.Manager) error {
	fields := map[string]func(*clusterv1.KsctlAutoScaler) []string{
		byCluster: func(o *clusterv1.KsctlAutoScaler) []string { return []string{o.Spec.ClusterRef.Name} },
		bySecret: func(o *clusterv1.KsctlAutoScaler) []string {
			out := []string{reconcile.FieldValue("Secret", o.Namespace, settings.ClientSecretName(o.Name))}
			if ref := o.Spec.Agent.SecretRef; ref != nil {
				out = append(out, reconcile.FieldValue("Secret", o.Namespace, ref.Name))
			}
			return out
		},
		byAccount: func(o *clusterv1.KsctlAutoScaler) []string {
			return []string{reconcile.FieldValue("ServiceAccount", o.Namespace, cmp.Or(o.Spec.ServiceAccountName, s.DefaultServiceAccount))}
		},
	}
	for field, of := range fields {
		err := mgr.GetFieldIndexer().IndexField(ctx, &clusterv1.KsctlAutoScaler{}, field, func(o client.Object) []string {
			return of(o.(*clusterv1.KsctlAutoScaler))
		})
		if err != nil {
			return fmt.Errorf("index of %s: %w", Kind, err)
		}
	}
	w := &wakes{reader: mgr.GetClient(), selector: s.Reconciler.Selector}
	w.connect(s)
	_, err := ctrl.NewControllerManagedBy(mgr).Named("ksctlautoscaler").
		For(&clusterv1.KsctlAutoScaler{}, builder.WithPredicates(s.Reconciler.Wishes())).
		Owns(&appsv1.KsctlInstall{}).
		Watches(&clusterv1.KsctlAutoScaler{}, handler.EnqueueRequestsFromMapFunc(w.rivals), builder.WithPredicates(departed)).
		Watches(&clusterv1.KsctlAutoScaler{}, handler.Funcs{UpdateFunc: s.suspended}).
		Watches(&clusterv1.KsctlCluster{}, handler.EnqueueRequestsFromMapFunc(w.cluster)).
		WatchesMetadata(reconcile.Metadata("", "Secret"), handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
			s.Steps.Provider.look(o)
			return w.named(bySecret, "Secret")(ctx, o)
		})).
		WatchesMetadata(reconcile.Metadata("", "ServiceAccount"), handler.EnqueueRequestsFromMapFunc(w.named(byAccount, "ServiceAccount"))).
		WatchesRawSource(source.Func(w.queue.Start)).
		WithOptions(s.Options).
		Build(s.Reconciler)
	if err != nil {
		return fmt.Errorf("controller of %s: %w", Kind, err)
	}
	for _, run := range []interface{ Start(context.Context) error }{s.Steps.Watches, s.Steps.Links} {
		if err := mgr.Add(run); err != nil {
			return err
		}
	}
	if s.Steps.Provider.Address == "" {
		return nil
	}
	return mgr.Add(s.Steps.Provider)
}

// departed lets through that an object is deleted: the next one may have its cluster.
var departed = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	UpdateFunc:  func(event.UpdateEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// suspended has Cluster Autoscaler wait for an object that nothing reconciles any more.
func (s *Setup) suspended(_ context.Context, e event.UpdateEvent, _ workqueue.TypedRateLimitingInterface[crreconcile.Request]) {
	if obj, ok := e.ObjectNew.(*clusterv1.KsctlAutoScaler); ok && obj.Spec.Suspend && obj.DeletionTimestamp == nil && s.Steps.Published.Get(client.ObjectKeyFromObject(obj)) != nil {
		s.Steps.silence(obj, errSuspended)
	}
}

// wakes finds the objects that an event concerns.
type wakes struct {
	reader   client.Reader
	selector predicate.Predicate
	queue    reconcile.Queue
}

// connect has everything that runs beside the controller wake its objects.
func (w *wakes) connect(s *Setup) {
	steps := s.Steps
	steps.Watches.Wake, steps.Links.Wake, s.Ledger.Wake, steps.Published.Wake = w.one, w.one, w.one, w.one
	steps.Provider.wake = make(chan struct{}, 1)
	steps.Provider.Changed = func() { w.queue.Add(w.find(context.Background())...) }
	steps.Targets.Clusters.Subscribe(func(ownerKey string) {
		if k, ok := engine.ParseOwnerKey(ownerKey); ok && k.Kind == Kind {
			w.one(types.NamespacedName{Namespace: k.Namespace, Name: k.Name})
		}
	})
}

// one wakes an object.
func (w *wakes) one(key types.NamespacedName) {
	w.queue.Add(crreconcile.Request{NamespacedName: key})
}

func (w *wakes) find(ctx context.Context, opts ...client.ListOption) []crreconcile.Request {
	return reconcile.Find(ctx, w.reader, &clusterv1.KsctlAutoScalerList{}, w.selector, opts...)
}

// rivals are those that name the same cluster.
func (w *wakes) rivals(ctx context.Context, o client.Object) []crreconcile.Request {
	as, ok := o.(*clusterv1.KsctlAutoScaler)
	if !ok {
		return nil
	}
	return w.find(ctx, client.InNamespace(as.Namespace), client.MatchingFields{byCluster: as.Spec.ClusterRef.Name})
}

func (w *wakes) cluster(ctx context.Context, o client.Object) []crreconcile.Request {
	return w.find(ctx, client.InNamespace(o.GetNamespace()), client.MatchingFields{byCluster: o.GetName()})
}

// named finds the objects that name another one, by a field.
func (w *wakes) named(field, kind string) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []crreconcile.Request {
		return w.find(ctx, client.MatchingFields{field: reconcile.FieldValue(kind, o.GetNamespace(), o.GetName())})
	}
}
