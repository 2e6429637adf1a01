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

// neighbours wakes the installs that depend on one which changed, and those that
// waited for it to go. Plans know of each before the first reconcile: workers
// start when this has heard of all that are there.
func (w *wakes) neighbours() handler.EventHandler {
	dependents := func(ctx context.Context, o client.Object, q queue) {
		for _, r := range w.find(ctx, byDependency, reconcile.FieldValue(Kind, o.GetNamespace(), o.GetName())) {
			q.Add(r)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			w.setup.Plans.seen(e.Object.(*appsv1.KsctlInstall))
			if !e.IsInInitialList {
				dependents(ctx, e.Object, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*appsv1.KsctlInstall), e.ObjectNew.(*appsv1.KsctlInstall)
			w.setup.Plans.seen(after)
			if concerns(before, after) {
				dependents(ctx, after, q)
			}
			if removedWhole(before) != removedWhole(after) || !slices.Equal(before.Spec.DependsOn, after.Spec.DependsOn) {
				w.needed(before, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			w.setup.Plans.gone(client.ObjectKeyFromObject(e.Object))
			dependents(ctx, e.Object, q)
			w.needed(e.Object.(*appsv1.KsctlInstall), q)
		},
	}
}

// needed wakes the installs that may have waited for one to go, or to need them no more.
func (w *wakes) needed(by *appsv1.KsctlInstall, q queue) {
	for _, d := range dependencyNames(by) {
		q.Add(request(d))
	}
	if len(dependency.Objects(by)) > 0 {
		for _, name := range w.setup.Plans.awaitingAny() {
			q.Add(request(name))
		}
	}
}

func request(name types.NamespacedName) crreconcile.Request {
	return crreconcile.Request{NamespacedName: name}
}

// removes wakes the install that a KsctlRemove names, when it asks for something else
// than before; not when it only says how far it came.
func (w *wakes) removes() handler.EventHandler {
	named := func(o client.Object, q queue) {
		if rm := o.(*appsv1.KsctlRemove); rm.Spec.InstallRef != nil {
			q.Add(request(types.NamespacedName{Namespace: rm.Namespace, Name: rm.Spec.InstallRef.Name}))
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { named(e.Object, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { named(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*appsv1.KsctlRemove), e.ObjectNew.(*appsv1.KsctlRemove)
			if before.Generation != after.Generation || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
				said(before) != said(after) {
				named(before, q)
				named(after, q)
			}
		},
	}
}

// said is which rehearsal a KsctlRemove has.
func said(rm *appsv1.KsctlRemove) string {
	if rm.Status.Removal == nil {
		return ""
	}
	return fmt.Sprint(rm.Status.Removal.Generation, " ", rm.Status.Removal.Digest)
}

// concerns is true for a change of an install that those see who depend on it.
func concerns(before, after *appsv1.KsctlInstall) bool {
	return isReady(before) != isReady(after) || before.Generation != after.Generation ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) || message(before) != message(after) ||
		removedWhole(before) != removedWhole(after)
}

// message is that of an install which says that it is not ready.
func message(in *appsv1.KsctlInstall) string {
	if c := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition); c != nil && c.Status == "False" {
		return c.Message
	}
	return ""
}

func readyMessage(in *appsv1.KsctlInstall) string {
	if c := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition); c != nil {
		return c.Message
	}
	return ""
}
