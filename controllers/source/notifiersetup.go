package source

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// byOurs is the field by which the installs of a KsctlSource are found.
const byOurs = "spec.sourceRef of a KsctlSource"

// Register adds the teller to a manager. It needs the index of Setup.
func (t *Teller) Register(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &appsv1.KsctlInstall{}, byOurs, func(o client.Object) []string {
		if key, ok := sourceOf(o); ok {
			return []string{key.String()}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index of commit statuses: %w", err)
	}
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err = ctrl.NewControllerManagedBy(mgr).Named("commitstatus").
		For(&appsv1.KsctlSource{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: concernsCommits})).
		Watches(&appsv1.KsctlInstall{}, handler.EnqueueRequestsFromMapFunc(ofInstall), builder.WithPredicates(predicate.Funcs{UpdateFunc: standsOtherwise})).
		WatchesMetadata(secret, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
			return reconcile.Find(ctx, mgr.GetClient(), &appsv1.KsctlSourceList{}, nil, client.InNamespace(o.GetNamespace()), client.MatchingFields{bySecret: o.GetName()})
		})).
		WithOptions(options).
		Complete(t)
	if err != nil {
		return fmt.Errorf("controller of commit statuses: %w", err)
	}
	return nil
}

// sourceOf is the KsctlSource that an install reads.
func sourceOf(o client.Object) (types.NamespacedName, bool) {
	in, ok := o.(*appsv1.KsctlInstall)
	if !ok || in.Spec.SourceRef.Kind != Kind {
		return types.NamespacedName{}, false
	}
	key := types.NamespacedName{Namespace: in.Spec.SourceRef.Namespace, Name: in.Spec.SourceRef.Name}
	if key.Namespace == "" {
		key.Namespace = in.Namespace
	}
	return key, true
}

func ofInstall(_ context.Context, o client.Object) []crreconcile.Request {
	if key, ok := sourceOf(o); ok {
		return []crreconcile.Request{{NamespacedName: key}}
	}
	return nil
}

// concernsCommits lets changes of a source through by which something else may be said.
func concernsCommits(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*appsv1.KsctlSource), e.ObjectNew.(*appsv1.KsctlSource)
	return before.Generation != after.Generation || before.UID != after.UID || offeredBy(before) != offeredBy(after)
}

// standsOtherwise lets changes of an install through that commits are told.
func standsOtherwise(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*appsv1.KsctlInstall), e.ObjectNew.(*appsv1.KsctlInstall)
	return before.UID != after.UID || before.Spec.SourceRef != after.Spec.SourceRef ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		commitstatus.StandingOf(before) != commitstatus.StandingOf(after)
}

// offeredBy is the commit that a source offers; empty without one.
func offeredBy(src *appsv1.KsctlSource) string {
	if src.Status.Artifact == nil {
		return ""
	}
	return commitstatus.CommitOf(src.Status.Artifact.Revision)
}
