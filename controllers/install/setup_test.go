package install

import (
	"testing"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/install/handover"
	"github.com/ksctl/gitops/controllers/reconcile"
)

func dependsOnBase(in *appsv1.KsctlInstall) { in.Spec.DependsOn = []appsv1.Dependency{{Name: "base"}} }

func fullyRemoved(in *appsv1.KsctlInstall) {
	removedByRequest(in)
	in.Status.Inventory = nil
	in.Status.Conditions[0].Reason = appsv1.RemovedByRequestReason
}

// The removal of an install waits for the installs that depend on it.
func TestDependencyIsEnqueuedWhenDependentDropsIt(t *testing.T) {
	for name, c := range map[string]struct {
		before, after *appsv1.KsctlInstall
		woken         bool
	}{
		"the dependency is dropped": {install("app", "src", nil, dependsOnBase), install("app", "src", nil), true},
		"the dependent is removed": {install("app", "src", nil, dependsOnBase),
			install("app", "src", nil, dependsOnBase, fullyRemoved), true},
		"something else of it changes": {install("app", "src", nil, dependsOnBase),
			install("app", "src2", nil, dependsOnBase), false},
	} {
		t.Run(name, func(t *testing.T) {
			q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[crreconcile.Request]())
			defer q.ShutDown()
			s := &Setup{Steps: &Steps{
				Plans: handover.NewPlans(clock.RealClock{})}, Reconciler: &reconcile.Reconciler[*appsv1.KsctlInstall]{
				Client: cacheOf(t), NewList: func() client.ObjectList { return &appsv1.KsctlInstallList{} }}}
			s.relatedInstalls().Update(t.Context(), event.UpdateEvent{ObjectOld: c.before, ObjectNew: c.after}, q)
			enqueued := false
			for q.Len() > 0 {
				r, _ := q.Get()
				enqueued = enqueued || r.NamespacedName == key("base")
				q.Done(r)
			}
			if enqueued != c.woken {
				t.Errorf("woken %v, want %v", enqueued, c.woken)
			}
		})
	}
}
