package source

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/commitstatus"
)

// bySource indexes the installs by their KsctlSource.
const bySource = ".spec.sourceRef.KsctlSource"

// Register adds the Notifier to a manager. It requires the index that Setup registers.
func (t *Notifier) Register(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	err := reconcile.AddIndexes(ctx, mgr.GetFieldIndexer(), &appsv1.KsctlInstall{},
		map[string]func(*appsv1.KsctlInstall) []string{bySource: func(in *appsv1.KsctlInstall) []string {
			if key, ok := sourceOf(in); ok {
				return []string{key.String()}
			}
			return nil
		}})
	if err != nil {
		return err
	}
	reconciler := reconcile.Func(t.reconcile)
	err = reconciler.NewBuilder(mgr, "commitstatus", options).
		For(&appsv1.KsctlSource{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: statusesChanged})).
		Watches(&appsv1.KsctlInstall{}, handler.EnqueueRequestsFromMapFunc(sourceRequests),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: installStateChanged})).
		WatchesMetadata(reconcile.PartialMetadata("", "Secret"),
			handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
				return reconcile.RequestsFor(ctx, mgr.GetClient(), &appsv1.KsctlSourceList{}, nil,
					client.InNamespace(o.GetNamespace()), client.MatchingFields{bySecret: o.GetName()})
			})).
		Complete(reconciler)
	if err != nil {
		return fmt.Errorf("controller of commit statuses: %w", err)
	}
	return nil
}

// sourceOf returns the KsctlSource of an install; false if its source is of another kind.
func sourceOf(in *appsv1.KsctlInstall) (types.NamespacedName, bool) {
	if in.Spec.SourceRef.Kind != appsv1.KsctlSourceKind {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: cmp.Or(in.Spec.SourceRef.Namespace, in.Namespace),
		Name: in.Spec.SourceRef.Name}, true
}

func sourceRequests(_ context.Context, o client.Object) []crreconcile.Request {
	if key, ok := sourceOf(o.(*appsv1.KsctlInstall)); ok {
		return []crreconcile.Request{{NamespacedName: key}}
	}
	return nil
}

// statusesChanged accepts updates of a source that may change its commit statuses.
func statusesChanged(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*appsv1.KsctlSource), e.ObjectNew.(*appsv1.KsctlSource)
	return before.Generation != after.Generation || before.UID != after.UID ||
		offeredCommit(before) != offeredCommit(after)
}

// installStateChanged accepts updates of an install that may change its commit status.
func installStateChanged(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*appsv1.KsctlInstall), e.ObjectNew.(*appsv1.KsctlInstall)
	return before.UID != after.UID || before.Spec.SourceRef != after.Spec.SourceRef ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		commitstatus.InstallStateOf(before) != commitstatus.InstallStateOf(after)
}

// offeredCommit returns the commit of a source's artifact; empty if there is none.
func offeredCommit(src *appsv1.KsctlSource) string {
	if src.Status.Artifact == nil {
		return ""
	}
	return commitstatus.CommitOf(src.Status.Artifact.Revision)
}
