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
	in.Status.SharedDefinitions = nil
	s.Plans.DropClaims(client.ObjectKeyFromObject(in))
	o.handover = s.newHandover(o, "")
	dependents, err := s.blockingDependents(ctx, o)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	o.holdAll = len(dependents) > 0
	rep, failed := s.removeRequested(ctx, o)
	if failed != nil {
		return failed
	}
	for i, c := range in.Status.Components {
		in.Status.Components[i] = o.removedComponentStatus(c)
	}
	left := o.countRequested()
	switch {
	case left > 0 && o.holdAll:
		return dependentsOutcome(dependents)
	case left > 0 && rep != nil:
		return o.removalOutcome(rep, left, s.Clock.Now())
	case left > 0 || !o.removalRequests.firstReinstall().IsZero():
		return o.unapprovedOutcome()
	}
	in.Status.LastAppliedRevision = ""
	return reconcile.Done{Reason: appsv1.RemovedByRequestReason,
		Message: fmt.Sprintf("nothing is installed: removed by %s", o.removalRequests.requesters(""))}
}

// unapprovedOutcome is the outcome of an install whose removal requests are not active.
func (o *owner) unapprovedOutcome() reconcile.Outcome {
	return reconcile.Waiting{On: reconcile.JoinNames(o.removalRequests.inactiveReasons()),
		For: o.removalRequests.waits(o.key.Namespace), RequeueAt: o.removalRequests.firstReinstall()}
}

// removeRequested performs the next possible step to remove the requested objects, and no other
// change. failed is the outcome of an error. rep is nil if no objects can be removed now.
func (s *Steps) removeRequested(ctx context.Context, o *owner) (rep *engine.Report, failed reconcile.Outcome) {
	removable := o.removableObjects()
	if len(removable) == 0 {
		if err := o.flush(ctx); err != nil {
			return nil, s.interruptedOutcome(o, err, "")
		}
		return nil, nil
	}
	c, err := s.clientFor(ctx, o.req.Object)
	if err == nil {
		c, err = s.resolveTarget(ctx, o, c)
	}
	if err != nil {
		return nil, target.Outcome(err, "")
	}
	pass, err := s.pass(ctx, o, c, nil)
	if err != nil {
		return nil, reconcile.Retry{Err: err}
	}
	rep, err = s.Engine.Remove(ctx, pass)
	if failed = s.recordPass(ctx, o, rep, err, removable, ""); failed == nil {
		failed, _ = s.orClusterLost(o, nil, "", rep.Errors...)
	}
	return rep, failed
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
	return slices.DeleteFunc(slices.Clone(rendered), func(c stacks.RenderedComponent) bool {
		return o.removalRequests.cover(c.Name)
	})
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
	for _, c := range o.rendered.components {
		blockedComponents[c.Name] = slices.ContainsFunc(c.DependsOn, func(d string) bool {
			return o.removalRequests.cover(d) || blockedComponents[d]
		})
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
	for _, w := range rep.Plan.Waits {
		if it := w.Item; it == nil || !except[it.Component] {
			return false
		}
	}
	return rep.Plan.Idle()
}

// removalSummary returns a message suffix with the components of the stack whose removal is
// requested, and the components that are blocked by that.
func (o *owner) removalSummary(blockedComponents map[string]bool) string {
	var removed, blockedNames []string
	for _, c := range o.rendered.components {
		switch {
		case o.removalRequests.cover(c.Name):
			removed = append(removed, c.Name)
		case blockedComponents[c.Name]:
			blockedNames = append(blockedNames, c.Name)
		}
	}
	var by []string
	for _, r := range o.removalRequests {
		by = append(by, "KsctlRemove "+r.record.Name)
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
