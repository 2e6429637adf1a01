package install

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/install/handover"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/dependency"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/internal/sources/sourceref"
	"github.com/ksctl/gitops/internal/sources/storage"
)

// Setup adds the KsctlInstall controller to a manager. It defines the watches, and which installs
// each event enqueues.
type Setup struct {
	Reconciler *reconcile.Reconciler[*appsv1.KsctlInstall]
	Steps      *Steps
	// Index is the index of the local cluster.
	Index *live.Index
	// Served reports which kinds of sources the cluster serves.
	Served sourceref.Discovery
	// KindsChanged is called with the name of each CustomResourceDefinition or APIService that
	// changed, before installs are enqueued because of it.
	KindsChanged func(name string)
	// KindsListed is called once, when the initial list of these definitions arrives.
	KindsListed func()

	queue reconcile.Queue
}

// Register adds the controller to a manager.
func (s *Setup) Register(ctx context.Context, mgr ctrl.Manager) error {
	// Inventories are listed at the start, not by the first reconcile that needs them.
	if _, err := mgr.GetCache().GetInformer(ctx, &appsv1.KsctlInventory{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("watching KsctlInventory: %w", err)
	}
	if err := s.registerIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if s.Steps.Publisher != nil { // remove the published stacks of deleted installs
		if err := mgr.Add(&storage.Sweeper{Space: s.Steps.Publisher.Storage,
			Owners: s.publishingInstalls}); err != nil {
			return fmt.Errorf("adding the storage sweeper of %s: %w", appsv1.KsctlInstallKind, err)
		}
	}
	b := s.Reconciler.NewBuilder(mgr).
		Watches(&appsv1.KsctlInstall{}, s.relatedInstalls()).
		Watches(&appsv1.KsctlRemove{}, handler.EnqueueRequestsFromMapFunc(installOfRemove),
			builder.WithPredicates(removalChanged)).
		Watches(&clusterv1.KsctlCluster{}, s.clusterEvents(), builder.WithPredicates(clusterChanged)).
		Watches(&appsv1.KsctlInstall{}, handler.EnqueueRequestsFromMapFunc(fleetOfMember),
			builder.WithPredicates(memberChanged)).
		WatchesRawSource(source.Func(s.liveObjects))
	b = b.WatchesMetadata(reconcile.PartialMetadata("", "ConfigMap"),
		s.Reconciler.ByIndex(referencedConfigsIndex, "ConfigMap")).
		WatchesMetadata(reconcile.PartialMetadata("", "Secret"), handler.EnqueueRequestsFromMapFunc(s.forSecret)).
		WatchesMetadata(reconcile.PartialMetadata("", "ServiceAccount"),
			s.Reconciler.ByIndex(serviceAccountIndex, "ServiceAccount"))
	b = reconcile.WatchPermissions(b, s.permissionEvents())
	var c controller.Controller
	sources := sourceref.NewWatcher(s.Served, func(kind string, object client.Object) error {
		if kind == sourcev1.ExternalArtifactKind {
			if err := c.Watch(source.Kind(mgr.GetCache(), object,
				handler.EnqueueRequestsFromMapFunc(s.forExternalArtifact))); err != nil {
				return err
			}
		}
		return c.Watch(source.Kind(mgr.GetCache(), object, s.Reconciler.ByIndex(sourceIndex, kind),
			predicate.Funcs{UpdateFunc: sourceref.ArtifactChanged}))
	}, s.enqueueNotReady)
	b = b.WatchesMetadata(reconcile.PartialMetadata("apiextensions.k8s.io", "CustomResourceDefinition"),
		s.kindDefinitions(sources)).
		WatchesMetadata(reconcile.PartialMetadata("apiregistration.k8s.io", "APIService"), s.kindDefinitions(sources))
	var err error
	if c, err = b.Build(s.Reconciler); err != nil {
		return fmt.Errorf("building the controller of %s: %w", appsv1.KsctlInstallKind, err)
	}
	// Source kinds that are served already are watched from the start. After an error the watcher
	// retries, so the error is ignored.
	_ = sources.Sync(ctx)
	return mgr.Add(sources)
}

// publishingInstalls returns the installs that publish or may have published their stack.
func (s *Setup) publishingInstalls(ctx context.Context) (all []types.NamespacedName, err error) {
	var list appsv1.KsctlInstallList
	err = s.Steps.Client.List(ctx, &list, client.UnsafeDisableDeepCopy)
	for i := range list.Items {
		if in := &list.Items[i]; in.Spec.Publish != nil || mayBePublished(in) {
			all = append(all, client.ObjectKeyFromObject(in))
		}
	}
	return all, err
}

// registerIndexes adds the field indexes to the cache.
func (s *Setup) registerIndexes(ctx context.Context, ix client.FieldIndexer) error {
	err := reconcile.AddIndexes(ctx, ix, &appsv1.KsctlRemove{},
		map[string]func(*appsv1.KsctlRemove) []string{removeInstallIndex: func(r *appsv1.KsctlRemove) []string {
			if ref := r.Spec.InstallRef; ref != nil {
				return []string{ref.Name}
			}
			return nil
		}})
	if err != nil {
		return err
	}
	return reconcile.AddIndexes(ctx, ix, &appsv1.KsctlInstall{}, installIndexes(s.Steps.DefaultServiceAccount))
}

// forExternalArtifact returns a request for the install that publishes, or is going to publish, an
// ExternalArtifact.
func (s *Setup) forExternalArtifact(ctx context.Context, o client.Object) []crreconcile.Request {
	var in appsv1.KsctlInstall
	name := client.ObjectKeyFromObject(o)
	if err := s.Steps.Client.Get(ctx, name, &in, client.UnsafeDisableDeepCopy); err != nil || in.Spec.Publish == nil {
		return nil
	}
	return []crreconcile.Request{request(name)}
}

func (s *Setup) find(ctx context.Context, field, value string) []crreconcile.Request {
	return s.Reconciler.Requests(ctx, client.MatchingFields{field: value})
}

// kindDefinitions enqueues the installs that are not ready: they may wait for the kind of a
// CustomResourceDefinition or an APIService.
func (s *Setup) kindDefinitions(sources *sourceref.Watcher) handler.EventHandler {
	h := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
		s.KindsChanged(o.GetName())
		if strings.HasSuffix(o.GetName(), "."+sourcev1.GroupVersion.Group) {
			sources.DefinitionChanged()
		}
		return s.find(ctx, waitingForKindIndex, "true")
	})
	// The initial list counts as one change: after its first event, discovery returns all kinds.
	var listed atomic.Bool
	create := func(ctx context.Context, e event.CreateEvent, q queue) {
		switch {
		case !e.IsInInitialList:
			h.Create(ctx, e, q)
		case !listed.Swap(true):
			s.KindsListed()
			sources.DefinitionChanged()
		}
	}
	return handler.Funcs{CreateFunc: create, UpdateFunc: h.Update, DeleteFunc: h.Delete, GenericFunc: h.Generic}
}

// enqueueNotReady enqueues the installs that are not ready, without an event.
func (s *Setup) enqueueNotReady(ctx context.Context) {
	s.queue.Add(s.find(ctx, waitingForKindIndex, "true")...)
}

// forCluster returns requests for the installs with a KsctlCluster as target, and for the installs
// of its namespace with a clusterSelector, which may match the KsctlCluster.
func (s *Setup) forCluster(ctx context.Context, o client.Object) []crreconcile.Request {
	out := s.find(ctx, clusterRefIndex, target.ClusterID(o.GetNamespace(), o.GetName()))
	return append(out,
		s.Reconciler.Requests(ctx, client.InNamespace(o.GetNamespace()),
			client.MatchingFields{clusterSelectorIndex: "true"})...)
}

// clusterChanged passes the changes of a KsctlCluster that affect installs: changes of its
// connection, of its labels, and of the fields that values are computed from.
var clusterChanged = predicate.Or(target.AccessChanged, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*clusterv1.KsctlCluster), e.ObjectNew.(*clusterv1.KsctlCluster)
	return !maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations) ||
		!apiequality.Semantic.DeepEqual(before.Status.Facts, after.Status.Facts) ||
		before.Status.KubernetesVersion != after.Status.KubernetesVersion
}})

// fleetOfMember returns a request for the fleet install of a member install.
func fleetOfMember(_ context.Context, o client.Object) []crreconcile.Request {
	name := handover.FleetName(o)
	if name == "" {
		return nil
	}
	return []crreconcile.Request{request(types.NamespacedName{Namespace: o.GetNamespace(), Name: name})}
}

// memberChanged passes the changes of a member install that affect its fleet install.
var memberChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*appsv1.KsctlInstall), e.ObjectNew.(*appsv1.KsctlInstall)
	b, a := handover.ReadyCondition(before), handover.ReadyCondition(after)
	return before.Annotations[appsv1.ReleaseAnnotation] != after.Annotations[appsv1.ReleaseAnnotation] ||
		b.Status != a.Status || b.Reason != a.Reason ||
		reconcile.QuotedMessage(before.Status.Conditions) != reconcile.QuotedMessage(after.Status.Conditions) ||
		before.Generation != after.Generation ||
		before.Status.LastAppliedRevision != after.Status.LastAppliedRevision ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil)
}}

// forSecret returns requests for the installs that read a Secret, and for the installs on a cluster
// whose kubeconfig is in the Secret.
func (s *Setup) forSecret(ctx context.Context, o client.Object) []crreconcile.Request {
	out := s.find(ctx, referencedConfigsIndex, reconcile.IndexValue("Secret", o.GetNamespace(), o.GetName()))
	for _, id := range target.ClustersWithSecret(ctx, s.Steps.Client, o) {
		out = append(out, s.find(ctx, clusterRefIndex, id)...)
	}
	return out
}

// liveObjects enqueues installs when their objects change, in the local or in another cluster. It
// also enqueues the installs that the watch of dependencies and Plans report.
func (s *Setup) liveObjects(ctx context.Context, q queue) error {
	if err := s.queue.Start(ctx, q); err != nil {
		return err
	}
	s.Steps.Targets.Clusters.EnqueueOwners(ctx, s.Index, appsv1.KsctlInstallKind, q)
	wake := func(install types.NamespacedName) { q.Add(request(install)) }
	s.Steps.Dependencies.Subscribe(wake)
	s.Steps.Plans.Subscribe(wake)
	return nil
}

type queue = workqueue.TypedRateLimitingInterface[crreconcile.Request]

// relatedInstalls enqueues the installs that depend on a changed install, and those whose removal
// waits for the install. It also updates Plans. Workers start after the handler has received the
// initial list, so Plans has all installs before the first reconcile.
func (s *Setup) relatedInstalls() handler.EventHandler {
	enqueueDependents := func(ctx context.Context, o client.Object, q queue) {
		for _, r := range s.find(ctx, dependsOnIndex,
			reconcile.IndexValue(appsv1.KsctlInstallKind, o.GetNamespace(), o.GetName())) {
			q.Add(r)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			s.Steps.Plans.Update(e.Object.(*appsv1.KsctlInstall))
			if !e.IsInInitialList {
				enqueueDependents(ctx, e.Object, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*appsv1.KsctlInstall), e.ObjectNew.(*appsv1.KsctlInstall)
			s.Steps.Plans.Update(after)
			if affectsDependents(before, after) {
				enqueueDependents(ctx, after, q)
			}
			if affectsWaitCycle(before, after) {
				for _, r := range s.find(ctx, waitsForIndex,
					reconcile.IndexValue(appsv1.KsctlInstallKind, after.Namespace, after.Name)) {
					q.Add(r)
				}
			}
			if handover.IsFullyRemoved(before) != handover.IsFullyRemoved(after) ||
				!slices.Equal(before.Spec.DependsOn, after.Spec.DependsOn) {
				s.enqueueDependencies(before, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			s.Steps.Plans.Remove(client.ObjectKeyFromObject(e.Object))
			enqueueDependents(ctx, e.Object, q)
			s.enqueueDependencies(e.Object.(*appsv1.KsctlInstall), q)
		},
	}
}

// enqueueDependencies enqueues the installs whose removal may wait until an install is removed or
// no longer depends on them.
func (s *Setup) enqueueDependencies(in *appsv1.KsctlInstall, q queue) {
	for _, d := range dependency.Installs(in) {
		q.Add(request(d))
	}
	if len(dependency.ObjectRefs(in)) > 0 {
		for _, name := range s.Steps.Plans.ListAwaitingDependents() {
			q.Add(request(name))
		}
	}
}

func request(name types.NamespacedName) crreconcile.Request {
	return crreconcile.Request{NamespacedName: name}
}

// installOfRemove returns a request for the install of a KsctlRemove.
func installOfRemove(_ context.Context, o client.Object) []crreconcile.Request {
	ref := o.(*appsv1.KsctlRemove).Spec.InstallRef
	if ref == nil {
		return nil
	}
	return []crreconcile.Request{request(types.NamespacedName{Namespace: o.GetNamespace(), Name: ref.Name})}
}

// removalChanged passes the changes of the request of a KsctlRemove, but not the progress in its
// status.
var removalChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*appsv1.KsctlRemove), e.ObjectNew.(*appsv1.KsctlRemove)
	return before.Generation != after.Generation ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		rehearsalID(before) != rehearsalID(after)
}}

// rehearsalID identifies the rehearsal in the status of a KsctlRemove. It is empty if there is
// none.
func rehearsalID(rm *appsv1.KsctlRemove) string {
	if rm.Status.Removal == nil {
		return ""
	}
	return fmt.Sprint(rm.Status.Removal.Generation, " ", rm.Status.Removal.Digest)
}

// affectsDependents reports whether a change of an install affects the installs that depend on it.
func affectsDependents(before, after *appsv1.KsctlInstall) bool {
	return handover.IsReady(before) != handover.IsReady(after) || before.Generation != after.Generation ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		handover.NotReadyMessage(before) != handover.NotReadyMessage(after) ||
		handover.IsFullyRemoved(before) != handover.IsFullyRemoved(after)
}
