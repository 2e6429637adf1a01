package source

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/storage"
)

// Space is the folder of the storage for the artifacts of sources.
const Space = "ksctlsource"

// Setup registers the controller of KsctlSources with a manager.
type Setup struct {
	Reconciler *reconcile.Reconciler[*appsv1.KsctlSource]
	// Storage is swept periodically: the artifacts of deleted sources are removed.
	Storage *storage.Space
	Options controller.Options
}

// bySecret indexes the sources by the Secrets that they refer to.
const bySecret = "secrets"

// Register adds the controller to a manager.
func (s *Setup) Register(ctx context.Context, mgr ctrl.Manager) error {
	if err := mgr.Add(&storage.Sweeper{Space: s.Storage, Owners: listSources(mgr.GetClient()), Interval: storage.SweepInterval}); err != nil {
		return fmt.Errorf("sweeper of %s: %w", appsv1.KsctlSourceKind, err)
	}
	err := mgr.GetFieldIndexer().IndexField(ctx, &appsv1.KsctlSource{}, bySecret, func(o client.Object) []string {
		return secretNames(o.(*appsv1.KsctlSource))
	})
	if err != nil {
		return fmt.Errorf("index of %s: %w", appsv1.KsctlSourceKind, err)
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("ksctlsource").
		For(&appsv1.KsctlSource{}, builder.WithPredicates(s.Reconciler.SpecChanged())).
		WatchesMetadata(reconcile.PartialMetadata("", "Secret"), handler.EnqueueRequestsFromMapFunc(s.forSecret(mgr.GetClient()))).
		WithOptions(s.Options).
		Complete(s.Reconciler)
	if err != nil {
		return fmt.Errorf("controller of %s: %w", appsv1.KsctlSourceKind, err)
	}
	return nil
}

// listSources returns a function that lists the keys of all sources.
func listSources(reader client.Reader) func(context.Context) ([]types.NamespacedName, error) {
	return func(ctx context.Context) (all []types.NamespacedName, err error) {
		var list appsv1.KsctlSourceList
		err = reader.List(ctx, &list, client.UnsafeDisableDeepCopy)
		for i := range list.Items {
			all = append(all, client.ObjectKeyFromObject(&list.Items[i]))
		}
		return all, err
	}
}

// forSecret returns a function that finds the sources that refer to a Secret.
func (s *Setup) forSecret(reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []crreconcile.Request {
		return reconcile.RequestsFor(ctx, reader, &appsv1.KsctlSourceList{}, s.Reconciler.Selector, client.InNamespace(o.GetNamespace()), client.MatchingFields{bySecret: o.GetName()})
	}
}
