package install

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/install/handover"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/dependency"
)

type queue = workqueue.TypedRateLimitingInterface[crreconcile.Request]

// relatedInstalls enqueues the installs that depend on a changed install, and those whose removal
// waits for the install. It also updates Plans. Workers start after the handler has received the
// initial list, so Plans has all installs before the first reconcile.
func (s *Setup) relatedInstalls() handler.EventHandler {
	enqueueDependents := func(ctx context.Context, o client.Object, q queue) {
		for _, r := range s.find(ctx, dependsOnIndex, reconcile.IndexValue(appsv1.KsctlInstallKind, o.GetNamespace(), o.GetName())) {
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
			if handover.IsFullyRemoved(before) != handover.IsFullyRemoved(after) || !slices.Equal(before.Spec.DependsOn, after.Spec.DependsOn) {
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
	return before.Generation != after.Generation || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
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
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) || handover.NotReadyMessage(before) != handover.NotReadyMessage(after) ||
		handover.IsFullyRemoved(before) != handover.IsFullyRemoved(after)
}
