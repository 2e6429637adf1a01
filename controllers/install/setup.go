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

// Waker calls back with the key of an owner whose objects changed.
type Waker interface {
	Subscribe(f func(ownerKey string)) (unsubscribe func())
}

// Setup says what the controller watches and whom each event wakes.
type Setup struct {
	Reconciler *reconcile.Reconciler[*appsv1.KsctlInstall]
	// Index of this cluster, and Clusters are the others.
	Index    Waker
	Clusters *target.Clusters
	// Depends calls back with the install that an object is watched for, when it changed.
	Depends interface {
		Subscribe(f func(install types.NamespacedName))
	}
	// Plans call back with the installs that wait for those of others.
	Plans *Plans
	// Served tells which kinds of sources there are.
	Served sourceref.Served
	// KindsChanged is called with the name of each CustomResourceDefinition or
	// APIService that changed, before anything is woken by it.
	KindsChanged func(name string)
	// KindsListed is called once those that are there were listed.
	KindsListed func()
	// Storage of what is published is swept of what installs left that are gone; nil: there is none.
	Storage *storage.Space
	// Installation is the controller's --owner-id.
	Installation          string
	DefaultServiceAccount string
	Options               controller.Options
}

// Register adds the controller to a manager.
func (s *Setup) Register(ctx context.Context, mgr ctrl.Manager) error {
	w := &wakes{client: mgr.GetClient(), setup: s}
	// Listed with the rest, not by the first reconcile that needs it.
	if _, err := mgr.GetCache().GetInformer(ctx, &appsv1.KsctlInventory{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("watch of KsctlInventory: %w", err)
	}
	if err := w.index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if s.Storage != nil {
		if err := mgr.Add(&storage.Sweeper{Space: s.Storage, Owners: owners(mgr.GetClient()), Every: storage.SweepEvery}); err != nil {
			return fmt.Errorf("sweeper of %s: %w", Kind, err)
		}
	}
	b := ctrl.NewControllerManagedBy(mgr).Named("ksctlinstall").
		For(&appsv1.KsctlInstall{}, builder.WithPredicates(s.Reconciler.Wishes())).
		Watches(&appsv1.KsctlInstall{}, w.neighbours()).
		Watches(&appsv1.KsctlRemove{}, w.removes()).
		Watches(&clusterv1.KsctlCluster{}, w.clusters(), builder.WithPredicates(otherCluster())).
		Watches(&appsv1.KsctlInstall{}, w.fleets()).
		WatchesRawSource(source.Func(w.liveObjects)).
		WithOptions(s.Options)
	b = b.WatchesMetadata(reconcile.Metadata("", "ConfigMap"), w.installs(byValues, "ConfigMap")).
		WatchesMetadata(reconcile.Metadata("", "Secret"), w.secrets()).
		WatchesMetadata(reconcile.Metadata("", "ServiceAccount"), w.installs(byAccount, "ServiceAccount"))
	var c controller.Controller
	sources := sourceref.NewWatches(s.Served, func(kind string, object client.Object) error {
		if kind == sourcev1.ExternalArtifactKind {
			if err := c.Watch(source.Kind(mgr.GetCache(), object, w.published())); err != nil {
				return err
			}
		}
		return c.Watch(source.Kind(mgr.GetCache(), object, w.installs(bySource, kind), predicate.Funcs{UpdateFunc: sourceref.ArtifactChanged}))
	}, w.wakeUnready)
	b = b.WatchesMetadata(reconcile.Metadata("apiextensions.k8s.io", "CustomResourceDefinition"), w.unserved(sources)).
		WatchesMetadata(reconcile.Metadata("apiregistration.k8s.io", "APIService"), w.unserved(sources))
	var err error
	if c, err = b.Build(s.Reconciler); err != nil {
		return fmt.Errorf("controller of %s: %w", Kind, err)
	}
	// What is served by now is listed with the rest; what can't be told is asked for again.
	_ = sources.Ask(ctx)
	return mgr.Add(sources)
}

// owners lists the installs that may have published something.
func owners(reader client.Reader) func(context.Context) ([]types.NamespacedName, error) {
	return func(ctx context.Context) (all []types.NamespacedName, err error) {
		var list appsv1.KsctlInstallList
		err = reader.List(ctx, &list, client.UnsafeDisableDeepCopy)
		for i := range list.Items {
			if in := &list.Items[i]; in.Spec.Publish != nil || publishes(in) {
				all = append(all, client.ObjectKeyFromObject(in))
			}
		}
		return all, err
	}
}
