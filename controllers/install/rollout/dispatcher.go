package rollout

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/install"
	"github.com/ksctl/gitops/controllers/install/handover"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
)

// Dispatcher reconciles KsctlInstalls: Single those for one cluster, Fleet those with a
// clusterSelector.
type Dispatcher struct {
	Single *install.Steps
	Fleet  *FleetSteps
}

var _ reconcile.Steps[*appsv1.KsctlInstall] = (*Dispatcher)(nil)

// Reconcile implements reconcile.Steps.
func (f *Dispatcher) Reconcile(ctx context.Context, req *reconcile.Request[*appsv1.KsctlInstall]) reconcile.Outcome {
	next := f.Single.Reconcile
	switch in := req.Object; {
	case handover.IsFleet(in):
		next = f.Fleet.Reconcile
	case in.Spec.ClusterSelector != nil:
		return reconcile.Stalled{Reason: appsv1.ClusterChangedReason, Err: fmt.Errorf(
			"spec.clusterSelector is set, but objects are installed on %s: nothing is changed; unset "+
				"spec.clusterSelector, or remove the installed objects first to move them",
			target.DisplayName(target.InstallCluster(in)))}
	}
	return f.Single.ReportWaitCycle(ctx, req.Object, next(ctx, req))
}

// Finalize implements reconcile.Steps.
func (f *Dispatcher) Finalize(ctx context.Context, req *reconcile.Request[*appsv1.KsctlInstall]) reconcile.Outcome {
	finalize := f.Single.Finalize
	if handover.IsFleet(req.Object) {
		finalize = f.Fleet.Finalize
	}
	return f.Single.ReportWaitCycle(ctx, req.Object, finalize(ctx, req))
}

// Forget implements reconcile.Steps.
func (f *Dispatcher) Forget(key types.NamespacedName) { f.Single.Forget(key) }
