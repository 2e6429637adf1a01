package install

import (
	"context"
	"fmt"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/reconcile"
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
		if err := mgr.Add(&storage.Sweeper{Space: s.Steps.Publisher.Storage, Owners: s.publishingInstalls}); err != nil {
			return fmt.Errorf("adding the storage sweeper of %s: %w", appsv1.KsctlInstallKind, err)
		}
	}
	b := s.Reconciler.NewBuilder(mgr).
		Watches(&appsv1.KsctlInstall{}, s.relatedInstalls()).
		Watches(&appsv1.KsctlRemove{}, handler.EnqueueRequestsFromMapFunc(installOfRemove), builder.WithPredicates(removalChanged)).
		Watches(&clusterv1.KsctlCluster{}, handler.EnqueueRequestsFromMapFunc(s.forCluster), builder.WithPredicates(clusterChanged)).
		Watches(&appsv1.KsctlInstall{}, handler.EnqueueRequestsFromMapFunc(fleetOfMember), builder.WithPredicates(memberChanged)).
		WatchesRawSource(source.Func(s.liveObjects))
	b = b.WatchesMetadata(reconcile.PartialMetadata("", "ConfigMap"), s.Reconciler.ByIndex(referencedConfigsIndex, "ConfigMap")).
		WatchesMetadata(reconcile.PartialMetadata("", "Secret"), handler.EnqueueRequestsFromMapFunc(s.forSecret)).
		WatchesMetadata(reconcile.PartialMetadata("", "ServiceAccount"), s.Reconciler.ByIndex(serviceAccountIndex, "ServiceAccount"))
	var c controller.Controller
	sources := sourceref.NewWatcher(s.Served, func(kind string, object client.Object) error {
		if kind == sourcev1.ExternalArtifactKind {
			if err := c.Watch(source.Kind(mgr.GetCache(), object, handler.EnqueueRequestsFromMapFunc(s.forExternalArtifact))); err != nil {
				return err
			}
		}
		return c.Watch(source.Kind(mgr.GetCache(), object, s.Reconciler.ByIndex(sourceIndex, kind), predicate.Funcs{UpdateFunc: sourceref.ArtifactChanged}))
	}, s.enqueueNotReady)
	b = b.WatchesMetadata(reconcile.PartialMetadata("apiextensions.k8s.io", "CustomResourceDefinition"), s.kindDefinitions(sources)).
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
