package reconcile_test

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// removeSteps are the steps of a kind. Each call takes the next possible step, and returns.
type removeSteps struct{}

func (removeSteps) Reconcile(_ context.Context, req *reconcile.Request[*appsv1.KsctlRemove]) reconcile.Outcome {
	switch req.Object.Spec.Stack {
	case "":
		return reconcile.Stalled{Reason: "NoStack", Err: errors.New("spec.stack is empty: set it")}
	case "later":
		return reconcile.Waiting{On: "KsctlInstall later is not ready"}
	}
	return reconcile.Done{Message: "nothing is left"}
}

func (removeSteps) Finalize(context.Context, *reconcile.Request[*appsv1.KsctlRemove]) reconcile.Outcome {
	return reconcile.Done{}
}

func (removeSteps) Forget(types.NamespacedName) {}

// A kind implements Steps; the Reconciler maps their outcomes to conditions, events and retries.
func ExampleReconciler() {
	add := func(mgr ctrl.Manager, events record.EventRecorder, metrics reconcile.Metrics) error {
		r := &reconcile.Reconciler[*appsv1.KsctlRemove]{
			Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), New: func() *appsv1.KsctlRemove {
				return &appsv1.KsctlRemove{}
			},
			Kind: "KsctlRemove", Steps: removeSteps{}, Events: events, Metrics: metrics,
			Clock: clock.RealClock{}, FieldOwner: "example",
			Jitter: func(d time.Duration) time.Duration { return d },
		}
		return ctrl.NewControllerManagedBy(mgr).For(&appsv1.KsctlRemove{}).Complete(r)
	}
	_ = add
}
