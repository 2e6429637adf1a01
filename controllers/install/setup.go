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
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/internal/sources/sourceref"
	"github.com/ksctl/gitops/internal/sources/storage"
)

// ChangeNotifier calls subscribers with the key of each owner whose objects change.
type ChangeNotifier interface {
	Subscribe(f func(ownerKey string)) (unsubscribe func())
}

// Setup adds the KsctlInstall controller to a manager. It defines the watches, and which installs
// each event enqueues.
type Setup struct {
	Reconciler *reconcile.Reconciler[*appsv1.KsctlInstall]
	// Index is the index of the local cluster. Clusters are the other clusters.
	Index    ChangeNotifier
	Clusters *target.Clusters
	// Dependencies calls subscribers with each install that depends on a changed object.
	Dependencies interface {
		Subscribe(f func(install types.NamespacedName))
	}
	// Plans calls subscribers with each install whose wait for the plans of other installs is over.
	Plans *Plans
	// Served reports which kinds of sources the cluster serves.
	Served sourceref.Discovery
	// KindsChanged is called with the name of each CustomResourceDefinition or APIService that
	// changed, before installs are enqueued because of it.
	KindsChanged func(name string)
	// KindsListed is called once, when the initial list of these definitions arrives.
	KindsListed func()
	// Storage is the storage of published stacks. Files of deleted installs are removed from it. It
	// is nil if the controller runs without an artifact server.
	Storage *storage.Space
	// Installation is the controller's --owner-id.
	Installation          string
	DefaultServiceAccount string
	Options               controller.Options
}

// Register adds the controller to a manager.
func (s *Setup) Register(ctx context.Context, mgr ctrl.Manager) error {
	w := &requestMapper{client: mgr.GetClient(), setup: s}
	// Inventories are listed at the start, not by the first reconcile that needs them.
	if _, err := mgr.GetCache().GetInformer(ctx, &appsv1.KsctlInventory{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("watching KsctlInventory: %w", err)
	}
	if err := w.registerIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if s.Storage != nil {
		if err := mgr.Add(&storage.Sweeper{Space: s.Storage, Owners: publishingInstalls(mgr.GetClient()), Interval: storage.SweepInterval}); err != nil {
			return fmt.Errorf("adding the storage sweeper of %s: %w", appsv1.KsctlInstallKind, err)
		}
	}
	b := ctrl.NewControllerManagedBy(mgr).Named("ksctlinstall").
		For(&appsv1.KsctlInstall{}, builder.WithPredicates(s.Reconciler.SpecChanged())).
		Watches(&appsv1.KsctlInstall{}, w.relatedInstalls()).
		Watches(&appsv1.KsctlRemove{}, w.ksctlRemoves()).
		Watches(&clusterv1.KsctlCluster{}, w.clusters(), builder.WithPredicates(clusterChanged())).
		Watches(&appsv1.KsctlInstall{}, w.fleetMembers()).
		WatchesRawSource(source.Func(w.liveObjects)).
		WithOptions(s.Options)
	b = b.WatchesMetadata(reconcile.PartialMetadata("", "ConfigMap"), w.byIndex(referencedConfigsIndex, "ConfigMap")).
		WatchesMetadata(reconcile.PartialMetadata("", "Secret"), w.secrets()).
		WatchesMetadata(reconcile.PartialMetadata("", "ServiceAccount"), w.byIndex(serviceAccountIndex, "ServiceAccount"))
	var c controller.Controller
	sources := sourceref.NewWatcher(s.Served, func(kind string, object client.Object) error {
		if kind == sourcev1.ExternalArtifactKind {
			if err := c.Watch(source.Kind(mgr.GetCache(), object, w.externalArtifacts())); err != nil {
				return err
			}
		}
		return c.Watch(source.Kind(mgr.GetCache(), object, w.byIndex(sourceIndex, kind), predicate.Funcs{UpdateFunc: sourceref.ArtifactChanged}))
	}, w.enqueueNotReady)
	b = b.WatchesMetadata(reconcile.PartialMetadata("apiextensions.k8s.io", "CustomResourceDefinition"), w.kindDefinitions(sources)).
		WatchesMetadata(reconcile.PartialMetadata("apiregistration.k8s.io", "APIService"), w.kindDefinitions(sources))
	var err error
	if c, err = b.Build(s.Reconciler); err != nil {
		return fmt.Errorf("building the controller of %s: %w", appsv1.KsctlInstallKind, err)
	}
	// Source kinds that are served already are watched from the start. After an error the watcher
	// retries, so the error is ignored.
	_ = sources.Sync(ctx)
	return mgr.Add(sources)
}

// publishingInstalls returns a function that lists the installs that publish or may have published
// their stack.
func publishingInstalls(reader client.Reader) func(context.Context) ([]types.NamespacedName, error) {
	return func(ctx context.Context) (all []types.NamespacedName, err error) {
		var list appsv1.KsctlInstallList
		err = reader.List(ctx, &list, client.UnsafeDisableDeepCopy)
		for i := range list.Items {
			if in := &list.Items[i]; in.Spec.Publish != nil || mayBePublished(in) {
				all = append(all, client.ObjectKeyFromObject(in))
			}
		}
		return all, err
	}
}
