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

// removeAll is a reconcile of an install all of which is asked to go: it needs
// neither source nor stack.
func (s *Steps) removeAll(ctx context.Context, o *owner) reconcile.Outcome {
	in := o.req.Object
	s.Depends.Use(client.ObjectKeyFromObject(in), nil)
	s.Plans.forget(client.ObjectKeyFromObject(in)) // it wants nothing
	s.findHeirs(o, "")
	before, err := s.dependents(ctx, o)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	o.holdAll = len(before) > 0
	rep, failed := s.removeAsked(ctx, o)
	if failed != nil {
		return failed
	}
	in.Status.Components = o.goneComponents(in.Status.Components)
	left := o.askedLeft()
	switch {
	case left > 0 && o.holdAll:
		return reconcile.Waiting{On: "these depend on it and go first: " + list(before), Reason: DependentsReason}
	case left > 0 && rep != nil:
		return o.removing(rep, left, s.Clock.Now())
	case left > 0 || !o.removals.returns().IsZero():
		return o.held()
	}
	in.Status.LastAppliedRevision = ""
	return reconcile.Done{Reason: RemovedByRequestReason, Message: fmt.Sprintf("nothing is installed: removed by %s", o.removals.people(""))}
}

// held says why nothing happens to what is asked to go.
func (o *owner) held() reconcile.Outcome {
	return reconcile.Waiting{On: list(o.removals.why()), Until: o.removals.returns()}
}

// removeAsked does what can be done now towards removing what is asked to go, and
// nothing else. Failed is set when it could not; rep is nil when there was nothing to do.
func (s *Steps) removeAsked(ctx context.Context, o *owner) (rep *engine.Report, failed reconcile.Outcome) {
	going := o.going()
	if len(going) == 0 {
		return nil, o.store(ctx, s, "")
	}
	c, err := s.there(ctx, o)
	if err != nil {
		return nil, target.Outcome(err, "")
	}
	rep, err = s.Engine.Remove(ctx, o.target, c, o, s.retry(o.req.Object))
	if rep != nil {
		o.report(rep)
		o.noteKept(going, rep)
	}
	if err != nil {
		return nil, s.unrecorded(o, err, "")
	}
	s.settled(o, rep)
	if failed = o.store(ctx, s, ""); failed != nil {
		return rep, failed
	}
	failed, _ = s.orLost(o, nil, "", rep.Errors...)
	return rep, failed
}

// store brings the inventory into the status; the outcome is that of a failure.
func (o *owner) store(ctx context.Context, s *Steps, revision string) reconcile.Outcome {
	if err := o.flush(ctx); err != nil {
		return s.unrecorded(o, err, revision)
	}
	return nil
}

// going are the objects that are asked to go and may, with their components.
func (o *owner) going() map[string]string {
	out := map[string]string{}
	if len(o.removals) == 0 {
		return out
	}
	p := o.Policies()
	for _, e := range o.inv.Entries() {
		if r := p.Asked(&e); r != nil && !r.Hold {
			out[e.ID] = e.Component
		}
	}
	return out
}

// askedLeft is how many objects are there yet that are asked to go.
func (o *owner) askedLeft() int {
	n := 0
	if len(o.removals) > 0 {
		for _, e := range o.inv.Entries() {
			if o.removals.names(e.Component) {
				n++
			}
		}
	}
	return n
}

// wantedOf are the rendered components that nobody asked to go.
func (o *owner) wantedOf(rendered []stacks.RenderedComponent) []stacks.RenderedComponent {
	if len(o.removals) == 0 {
		return rendered
	}
	return slices.DeleteFunc(slices.Clone(rendered), func(c stacks.RenderedComponent) bool { return o.removals.names(c.Name) })
}

// goneComponents is the status of components that are asked to go.
func (o *owner) goneComponents(before []appsv1.ComponentStatus) []appsv1.ComponentStatus {
	out := slices.Clone(before)
	for i := range out {
		out[i] = o.goneComponent(out[i])
	}
	return out
}

func (o *owner) goneComponent(c appsv1.ComponentStatus) appsv1.ComponentStatus {
	c.Ready, c.Objects, c.Message = false, 0, "removed by "+o.removals.people(c.Name)
	for _, e := range o.inv.Entries() {
		if e.Component == c.Name {
			c.Objects++
		}
	}
	return c
}

// lacking are the components that wait for one which was removed, and for nothing else.
func (o *owner) lacking(rep *engine.Report) map[string]bool {
	lacks := map[string]bool{}
	for i := range o.rendered.rendered {
		c := &o.rendered.rendered[i]
		lacks[c.Name] = slices.ContainsFunc(c.DependsOn, func(d string) bool { return o.removals.names(d) || lacks[d] })
	}
	for _, c := range rep.Plan.Components {
		if c.Ready {
			delete(lacks, c.Name)
		}
	}
	return lacks
}

// settledBut is true when everything is ready but those components, and nothing is
// left to do.
func settledBut(rep *engine.Report, lacks map[string]bool) bool {
	for _, c := range rep.Plan.Components {
		if !c.Ready && !lacks[c.Name] {
			return false
		}
	}
	for i := range rep.Plan.Waits {
		if it := rep.Plan.Waits[i].Item; it == nil || !lacks[it.Component] {
			return false
		}
	}
	return rep.Plan.Idle()
}

// removedNames are the components of the stack that are not installed by request, and
// those that lack them.
func (o *owner) removedNames(lacks map[string]bool) string {
	var gone, waits []string
	for i := range o.rendered.rendered {
		switch name := o.rendered.rendered[i].Name; {
		case o.removals.names(name):
			gone = append(gone, name)
		case lacks[name]:
			waits = append(waits, name)
		}
	}
	var by []string
	for i := range o.removals {
		by = append(by, "KsctlRemove "+o.removals[i].record.Name)
	}
	out := fmt.Sprintf("; removed by %s: %s", list(by), list(gone))
	if len(gone) == 0 {
		out = fmt.Sprintf("; %s names no component of the stack", list(by))
	}
	if len(waits) > 0 {
		out += "; these wait for what was removed: " + strings.Join(waits, ", ")
	}
	return out
}

// removedWhole is true for an install of which nothing is there, as a KsctlRemove asks.
func removedWhole(in *appsv1.KsctlInstall) bool {
	for _, c := range in.Status.Conditions {
		if c.Type == appsv1.ReadyCondition && c.Reason == RemovedByRequestReason {
			return in.Status.Inventory == nil && askedWhole(in)
		}
	}
	return false
}

// askedWhole is true for an install all of which is asked to go: it wants nothing.
func askedWhole(in *appsv1.KsctlInstall) bool {
	return slices.ContainsFunc(in.Status.Removals, func(r appsv1.InstallRemoval) bool { return len(r.Components) == 0 })
}
