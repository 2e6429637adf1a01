package install

import (
	"context"
	"fmt"
	"slices"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/dependency"
)

type queue = workqueue.TypedRateLimitingInterface[crreconcile.Request]

// relatedInstalls enqueues the installs that depend on a changed install, and those whose removal
// waits for the install. It also updates Plans. Workers start after the handler has received the
// initial list, so Plans has all installs before the first reconcile.
func (w *requestMapper) relatedInstalls() handler.EventHandler {
	enqueueDependents := func(ctx context.Context, o client.Object, q queue) {
		for _, r := range w.find(ctx, dependsOnIndex, reconcile.IndexValue(appsv1.KsctlInstallKind, o.GetNamespace(), o.GetName())) {
			q.Add(r)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			w.setup.Plans.update(e.Object.(*appsv1.KsctlInstall))
			if !e.IsInInitialList {
				enqueueDependents(ctx, e.Object, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*appsv1.KsctlInstall), e.ObjectNew.(*appsv1.KsctlInstall)
			w.setup.Plans.update(after)
			if affectsDependents(before, after) {
				enqueueDependents(ctx, after, q)
			}
			if isFullyRemoved(before) != isFullyRemoved(after) || !slices.Equal(before.Spec.DependsOn, after.Spec.DependsOn) {
				w.enqueueDependencies(before, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			w.setup.Plans.remove(client.ObjectKeyFromObject(e.Object))
			enqueueDependents(ctx, e.Object, q)
			w.enqueueDependencies(e.Object.(*appsv1.KsctlInstall), q)
		},
	}
}

// enqueueDependencies enqueues the installs whose removal may wait until an install is removed or
// no longer depends on them.
func (w *requestMapper) enqueueDependencies(in *appsv1.KsctlInstall, q queue) {
	for _, d := range installDependencies(in) {
		q.Add(request(d))
	}
	if len(dependency.ObjectRefs(in)) > 0 {
		for _, name := range w.setup.Plans.listAwaitingDependents() {
			q.Add(request(name))
		}
	}
}

func request(name types.NamespacedName) crreconcile.Request {
	return crreconcile.Request{NamespacedName: name}
}

// ksctlRemoves enqueues the install of a KsctlRemove when its request changes. Progress in its
// status does not enqueue the install.
func (w *requestMapper) ksctlRemoves() handler.EventHandler {
	enqueue := func(o client.Object, q queue) {
		if rm := o.(*appsv1.KsctlRemove); rm.Spec.InstallRef != nil {
			q.Add(request(types.NamespacedName{Namespace: rm.Namespace, Name: rm.Spec.InstallRef.Name}))
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { enqueue(e.Object, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { enqueue(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*appsv1.KsctlRemove), e.ObjectNew.(*appsv1.KsctlRemove)
			if before.Generation != after.Generation || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
				rehearsalID(before) != rehearsalID(after) {
				enqueue(before, q)
				enqueue(after, q)
			}
		},
	}
}

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
	return isReady(before) != isReady(after) || before.Generation != after.Generation ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) || notReadyMessage(before) != notReadyMessage(after) ||
		isFullyRemoved(before) != isFullyRemoved(after)
}

// notReadyMessage returns the message of the Ready condition if it is False.
func notReadyMessage(in *appsv1.KsctlInstall) string {
	if c := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition); c != nil && c.Status == "False" {
		return c.Message
	}
	return ""
}

// readyMessage returns the message of the Ready condition.
func readyMessage(in *appsv1.KsctlInstall) string {
	if c := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition); c != nil {
		return c.Message
	}
	return ""
}
