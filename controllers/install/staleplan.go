package install

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// stalePlanRetry is the delay of a reconcile while Plans lags behind the cache. The lag is in the
// range of milliseconds.
const stalePlanRetry = 50 * time.Millisecond

// deferOnStalePlan defers a reconcile while Plans lags behind the cache for an install that takes
// over from this install. The event for Plans and the event that this install is deleted arrive on
// different watches, in any order. deferOnStalePlan returns nil if Plans is up to date.
func (s *Steps) deferOnStalePlan(ctx context.Context, in *appsv1.KsctlInstall) reconcile.Outcome {
	if s.Served != nil {
		return nil
	}
	var successors appsv1.KsctlInstallList
	err := s.Client.List(ctx, &successors, client.InNamespace(in.Namespace),
		client.MatchingFields{takeOverIndex: in.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	for i := range successors.Items {
		if !s.Plans.IsCurrent(&successors.Items[i]) {
			return reconcile.Deferred{RequeueAt: s.Clock.Now().Add(stalePlanRetry)}
		}
	}
	return nil
}

// endPlanWaits ends the waits for the plans and claims of other installs, unless an object still
// waits for one.
func (s *Steps) endPlanWaits(o *owner, rep *engine.Report) {
	if o.holdAll {
		return // the waits enqueue the install when another install claims one of the kept objects
	}
	if len(rep.Plan.Left) > 0 {
		return
	}
	for _, w := range rep.Plan.Waits {
		notSent := w.Reason == plan.ReasonBlocked && w.Item == nil // another install may claim the objects until then
		if w.AwaitsOwner() || notSent {
			return
		}
	}
	s.Plans.ClearWaits(client.ObjectKeyFromObject(o.req.Object))
}
