package install

import (
	"maps"
	"slices"

	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
)

// componentStatuses returns the status of each planned component. While KsctlRemoves are in effect,
// it has each rendered component instead, also those that are removed.
func (o *owner) componentStatuses(in []plan.ComponentState) []appsv1.ComponentStatus {
	out := make([]appsv1.ComponentStatus, 0, len(in))
	if len(o.removalRequests) == 0 {
		for _, c := range in {
			out = append(out, o.componentStatus(c))
		}
		return o.withLeavingReleases(out)
	}
	for _, rc := range o.rendered.components {
		if at := slices.IndexFunc(in, func(c plan.ComponentState) bool { return c.Name == rc.Name }); at >= 0 {
			out = append(out, o.componentStatus(in[at]))
		} else {
			out = append(out,
				o.removedComponentStatus(o.componentStatus(plan.ComponentState{Name: rc.Name, Version: rc.Version})))
		}
	}
	return o.withLeavingReleases(out)
}

// withLeavingReleases adds the components that left the stack, and whose objects are not removed
// yet: until then, their releases are recorded.
func (o *owner) withLeavingReleases(out []appsv1.ComponentStatus) []appsv1.ComponentStatus {
	for _, name := range slices.Sorted(maps.Keys(o.releases)) {
		if release := o.releaseStatus(name); release != nil &&
			!slices.ContainsFunc(out, func(c appsv1.ComponentStatus) bool { return c.Name == name }) {
			out = append(out, appsv1.ComponentStatus{Name: name, Message: "it is removed", Release: release})
		}
	}
	return out
}

// addRenderedComponents adds the rendered components that a status does not have yet. A status with
// a revision then lists all components of that revision before the first object is applied.
func addRenderedComponents(statuses []appsv1.ComponentStatus,
	rendered []stacks.RenderedComponent) []appsv1.ComponentStatus {
	for _, rc := range rendered {
		if !slices.ContainsFunc(statuses, func(c appsv1.ComponentStatus) bool { return c.Name == rc.Name }) {
			statuses = append(statuses, appsv1.ComponentStatus{Name: rc.Name, Version: rc.Version})
		}
	}
	return statuses
}

func (o *owner) componentStatus(c plan.ComponentState) appsv1.ComponentStatus {
	st := appsv1.ComponentStatus{Name: c.Name, Version: c.Version, Ready: c.Ready, Objects: int32(c.Objects),
		Message: reconcile.Truncate(c.Message, maxComponentMessage), Release: o.releaseStatus(c.Name)}
	for _, rc := range o.rendered.components {
		if rc.Name == c.Name {
			st.DependsOn, st.Notes = rc.DependsOn, reconcile.Truncate(rc.Notes, maxNotes)
			if rc.Chart != nil {
				st.Chart = ptr.To(chartStatus(rc.Chart))
			}
			for _, d := range rc.ChartDependencies {
				st.ChartDependencies = append(st.ChartDependencies, chartStatus(&d))
			}
		}
	}
	return st
}

// Maximum lengths of the message and the notes of a component, in bytes. Those of 256 components
// fit into a status, whatever the length of a webhook's response.
const (
	maxComponentMessage = 1024
	maxNotes            = 2048
)
