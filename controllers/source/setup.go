package source

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
}

// bySecret indexes the sources by the Secrets that they refer to.
const bySecret = "secrets"

// Register adds the controller to a manager.
func (s *Setup) Register(ctx context.Context, mgr ctrl.Manager) error {
	if err := mgr.Add(&storage.Sweeper{Space: s.Storage, Owners: s.listSources}); err != nil {
		return fmt.Errorf("sweeper of %s: %w", appsv1.KsctlSourceKind, err)
	}
	err := reconcile.AddIndexes(ctx, mgr.GetFieldIndexer(), &appsv1.KsctlSource{},
		map[string]func(*appsv1.KsctlSource) []string{bySecret: secretNames})
	if err != nil {
		return err
	}
	err = s.Reconciler.NewBuilder(mgr).
		WatchesMetadata(reconcile.PartialMetadata("", "Secret"),
			handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
				return s.Reconciler.Requests(ctx, client.InNamespace(o.GetNamespace()),
					client.MatchingFields{bySecret: o.GetName()})
			})).
		Complete(s.Reconciler)
	if err != nil {
		return fmt.Errorf("controller of %s: %w", appsv1.KsctlSourceKind, err)
	}
	return nil
}

// listSources returns the keys of all sources.
func (s *Setup) listSources(ctx context.Context) (all []types.NamespacedName, err error) {
	var list appsv1.KsctlSourceList
	err = s.Reconciler.Client.List(ctx, &list, client.UnsafeDisableDeepCopy)
	for i := range list.Items {
		all = append(all, client.ObjectKeyFromObject(&list.Items[i]))
	}
	return all, err
}
