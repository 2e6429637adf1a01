package install

import (
	"slices"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
)

// componentStatuses returns the status of each planned component. While KsctlRemoves are in effect,
// it has each rendered component instead, also those that are removed.
func (o *owner) componentStatuses(in []plan.ComponentState) []appsv1.ComponentStatus {
	states := map[string]plan.ComponentState{}
	out := make([]appsv1.ComponentStatus, 0, len(in))
	for _, c := range in {
		states[c.Name] = c
		if len(o.removalRequests) == 0 {
			out = append(out, o.componentStatus(c))
		}
	}
	for i := range o.rendered.components {
		rc := &o.rendered.components[i]
		c, planned := states[rc.Name]
		switch {
		case len(o.removalRequests) == 0:
		case planned:
			out = append(out, o.componentStatus(c))
		default:
			out = append(out, o.removedComponentStatus(o.componentStatus(plan.ComponentState{Name: rc.Name, Version: rc.Version})))
		}
	}
	return out
}

// addRenderedComponents adds the rendered components that a status does not have yet. A status with
// a revision then lists all components of that revision before the first object is applied.
func addRenderedComponents(statuses []appsv1.ComponentStatus, rendered []stacks.RenderedComponent) []appsv1.ComponentStatus {
	for i := range rendered {
		name := rendered[i].Name
		if !slices.ContainsFunc(statuses, func(c appsv1.ComponentStatus) bool { return c.Name == name }) {
			statuses = append(statuses, appsv1.ComponentStatus{Name: name, Version: rendered[i].Version})
		}
	}
	return statuses
}

func (o *owner) componentStatus(c plan.ComponentState) appsv1.ComponentStatus {
	st := appsv1.ComponentStatus{Name: c.Name, Version: c.Version, Ready: c.Ready, Objects: int32(c.Objects),
		Message: reconcile.Truncate(c.Message, maxComponentMessage)}
	for i := range o.rendered.components {
		if rc := &o.rendered.components[i]; rc.Name == c.Name {
			st.DependsOn = rc.DependsOn
			st.Chart, st.ChartDependencies = chartStatus(rc)
		}
	}
	return st
}

// maxComponentMessage is the maximum length of the message of a component, in bytes. The messages
// of 256 components fit into a status, whatever the length of a webhook's response.
const maxComponentMessage = 1024
