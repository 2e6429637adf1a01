package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/stacks"
)

// removeAll reconciles an install that a KsctlRemove removes as a whole. It works without the
// source and the stack.
func (s *Steps) removeAll(ctx context.Context, o *owner) reconcile.Outcome {
	in := o.req.Object
	s.Dependencies.SetDependencies(client.ObjectKeyFromObject(in), nil)
	s.Plans.dropPlan(client.ObjectKeyFromObject(in)) // the install claims no objects
	s.prepareHandover(o, "")
	dependents, err := s.blockingDependents(ctx, o)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	o.holdAll = len(dependents) > 0
	rep, failed := s.removeRequested(ctx, o)
	if failed != nil {
		return failed
	}
	in.Status.Components = o.removedComponentStatuses(in.Status.Components)
	left := o.countRequested()
	switch {
	case left > 0 && o.holdAll:
		return reconcile.Waiting{On: "dependents must be removed first: " + reconcile.JoinNames(dependents), Reason: DependentsReason}
	case left > 0 && rep != nil:
		return o.removalOutcome(rep, left, s.Clock.Now())
	case left > 0 || !o.removalRequests.firstReinstall().IsZero():
		return o.unapprovedOutcome()
	}
	in.Status.LastAppliedRevision = ""
	return reconcile.Done{Reason: RemovedByRequestReason, Message: fmt.Sprintf("nothing is installed: removed by %s", o.removalRequests.requesters(""))}
}

// unapprovedOutcome is the outcome of an install whose removal requests are not active.
func (o *owner) unapprovedOutcome() reconcile.Outcome {
	return reconcile.Waiting{On: reconcile.JoinNames(o.removalRequests.inactiveReasons()), RequeueAt: o.removalRequests.firstReinstall()}
}

// removeRequested performs the next possible step to remove the requested objects, and no other
// change. failed is the outcome of an error. rep is nil if no objects can be removed now.
func (s *Steps) removeRequested(ctx context.Context, o *owner) (rep *engine.Report, failed reconcile.Outcome) {
	removable := o.removableObjects()
	if len(removable) == 0 {
		return nil, o.flushInventory(ctx, s, "")
	}
	c, err := s.targetClient(ctx, o)
	if err != nil {
		return nil, target.Outcome(err, "")
	}
	rep, err = s.Engine.Remove(ctx, s.pass(o, c))
	if rep != nil {
		o.reportChanges(rep)
		o.recordKept(removable, rep)
	}
	if err != nil {
		return nil, s.interruptedOutcome(o, err, "")
	}
	s.endPlanWaits(o, rep)
	if failed = o.flushInventory(ctx, s, ""); failed != nil {
		return rep, failed
	}
	failed, _ = s.orClusterLost(o, nil, "", rep.Errors...)
	return rep, failed
}

// flushInventory stores the inventory, see flush. It returns the outcome of an error, or nil.
func (o *owner) flushInventory(ctx context.Context, s *Steps, revision string) reconcile.Outcome {
	if err := o.flush(ctx); err != nil {
		return s.interruptedOutcome(o, err, revision)
	}
	return nil
}

// removableObjects returns the components of the objects that active requests remove, by object ID.
func (o *owner) removableObjects() map[string]string {
	out := map[string]string{}
	if len(o.removalRequests) == 0 {
		return out
	}
	p := o.Policies()
	for _, e := range o.inv.Entries() {
		if r := p.RemovalRequest(&e); r != nil && !r.Suspended {
			out[e.ID] = e.Component
		}
	}
	return out
}

// countRequested returns the number of objects in the inventory whose removal is requested.
func (o *owner) countRequested() int {
	n := 0
	if len(o.removalRequests) > 0 {
		for _, e := range o.inv.Entries() {
			if o.removalRequests.cover(e.Component) {
				n++
			}
		}
	}
	return n
}

// withoutRequested returns the rendered components whose removal is not requested.
func (o *owner) withoutRequested(rendered []stacks.RenderedComponent) []stacks.RenderedComponent {
	if len(o.removalRequests) == 0 {
		return rendered
	}
	return slices.DeleteFunc(slices.Clone(rendered), func(c stacks.RenderedComponent) bool { return o.removalRequests.cover(c.Name) })
}

// removedComponentStatuses returns the status of components whose removal is requested.
func (o *owner) removedComponentStatuses(before []appsv1.ComponentStatus) []appsv1.ComponentStatus {
	out := slices.Clone(before)
	for i := range out {
		out[i] = o.removedComponentStatus(out[i])
	}
	return out
}

// removedComponentStatus returns the status of a component whose removal is requested. It counts
// the objects that are not removed yet.
func (o *owner) removedComponentStatus(c appsv1.ComponentStatus) appsv1.ComponentStatus {
	c.Ready, c.Objects, c.Message = false, 0, "removed by "+o.removalRequests.requesters(c.Name)
	for _, e := range o.inv.Entries() {
		if e.Component == c.Name {
			c.Objects++
		}
	}
	return c
}

// blockedByRemoval returns the components that are not ready because they depend on a component
// whose removal is requested, directly or through other components.
func (o *owner) blockedByRemoval(rep *engine.Report) map[string]bool {
	blockedComponents := map[string]bool{}
	for i := range o.rendered.components {
		c := &o.rendered.components[i]
		blockedComponents[c.Name] = slices.ContainsFunc(c.DependsOn, func(d string) bool { return o.removalRequests.cover(d) || blockedComponents[d] })
	}
	for _, c := range rep.Plan.Components {
		if c.Ready {
			delete(blockedComponents, c.Name)
		}
	}
	return blockedComponents
}

// settledExcept reports whether all other components are ready, and no action is left.
func settledExcept(rep *engine.Report, except map[string]bool) bool {
	for _, c := range rep.Plan.Components {
		if !c.Ready && !except[c.Name] {
			return false
		}
	}
	for i := range rep.Plan.Waits {
		if it := rep.Plan.Waits[i].Item; it == nil || !except[it.Component] {
			return false
		}
	}
	return rep.Plan.Idle()
}

// removalSummary returns a message suffix with the components of the stack whose removal is
// requested, and the components that are blocked by that.
func (o *owner) removalSummary(blockedComponents map[string]bool) string {
	var removed, blockedNames []string
	for i := range o.rendered.components {
		switch name := o.rendered.components[i].Name; {
		case o.removalRequests.cover(name):
			removed = append(removed, name)
		case blockedComponents[name]:
			blockedNames = append(blockedNames, name)
		}
	}
	var by []string
	for i := range o.removalRequests {
		by = append(by, "KsctlRemove "+o.removalRequests[i].record.Name)
	}
	out := fmt.Sprintf("; removed by %s: %s", reconcile.JoinNames(by), reconcile.JoinNames(removed))
	if len(removed) == 0 {
		out = fmt.Sprintf("; %s names no component of the stack", reconcile.JoinNames(by))
	}
	if len(blockedNames) > 0 {
		out += "; blocked by the removal: " + strings.Join(blockedNames, ", ")
	}
	return out
}

// isFullyRemoved reports whether all objects of an install are removed because of a KsctlRemove.
func isFullyRemoved(in *appsv1.KsctlInstall) bool {
	for _, c := range in.Status.Conditions {
		if c.Type == appsv1.ReadyCondition && c.Reason == RemovedByRequestReason {
			return in.Status.Inventory == nil && fullRemovalRequested(in)
		}
	}
	return false
}

// fullRemovalRequested reports whether a KsctlRemove removes an install as a whole. Such an install
// claims no objects.
func fullRemovalRequested(in *appsv1.KsctlInstall) bool {
	return slices.ContainsFunc(in.Status.Removals, func(r appsv1.InstallRemoval) bool { return len(r.Components) == 0 })
}
