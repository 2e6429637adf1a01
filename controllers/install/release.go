package install

import (
	"maps"
	"slices"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/stacks"
)

// loadReleases returns the records of releases in the status of an install. A component with
// objects and without a record was installed before there were records: its release is complete if
// it was ever ready.
func loadReleases(in *appsv1.KsctlInstall, inv *plan.Inventory) map[string]stacks.ReleaseRecord {
	out := map[string]stacks.ReleaseRecord{}
	for _, e := range inv.All() {
		if e.Component != "" && e.State != appsv1.EntryIntended && in.Status.LastAppliedRevision != "" {
			out[e.Component] = stacks.ReleaseRecord{Revision: 1, Complete: true}
		}
	}
	for _, c := range in.Status.Components {
		if r := c.Release; r != nil {
			out[c.Name] = stacks.ReleaseRecord{Revision: int(r.Revision), Digest: r.Digest, Complete: r.Complete}
		}
	}
	return out
}

// prepareReleases sets the records of the rendered components in the status, and returns the
// components for planning. unsaved is true if a record has to be persisted before the first request
// of its release.
func (o *owner) prepareReleases(rendered []stacks.RenderedComponent) (out []stacks.RenderedComponent, unsaved bool) {
	out = slices.Clone(rendered)
	for i := range out {
		record := o.releases[out[i].Name]
		if out[i].Record.Revision == 0 || record.Revision == 0 {
			continue
		}
		out[i].Record.Complete = record.Complete
		unsaved = o.setRelease(out[i].Name) || unsaved
	}
	return out, unsaved
}

// setRelease sets the record of a component in the status. It returns true if the status had
// another one.
func (o *owner) setRelease(component string) bool {
	components := o.req.Object.Status.Components
	i := slices.IndexFunc(components, func(c appsv1.ComponentStatus) bool { return c.Name == component })
	if i < 0 {
		return false
	}
	before := components[i].Release
	components[i].Release = o.releaseStatus(component)
	return before == nil || before.Revision != components[i].Release.Revision
}

// releaseStatus returns the record of a component for the status; nil if it has none.
func (o *owner) releaseStatus(component string) *appsv1.ComponentRelease {
	r := o.releases[component]
	if r.Digest == "" {
		return nil
	}
	return &appsv1.ComponentRelease{Revision: int32(r.Revision), Digest: r.Digest, Complete: r.Complete}
}

// requestReleases returns the records for a request to render; nil for an install that only
// publishes, which is always an install.
func (o *owner) requestReleases() map[string]stacks.ReleaseRecord {
	if publishesOnly(o.req.Object) {
		return nil
	}
	o.forgetReleases()
	out := map[string]stacks.ReleaseRecord{}
	maps.Copy(out, o.releases)
	return out
}

// forgetReleases forgets the releases of components that were removed: coming back is an install.
func (o *owner) forgetReleases() {
	present, rendered := map[string]bool{}, map[string]bool{}
	for _, e := range o.inv.All() {
		present[e.Component] = true
		delete(o.takenOver, e.Component)
	}
	for i := range o.rendered.components {
		c := &o.rendered.components[i]
		rendered[c.Name] = true
		present[c.Name] = present[c.Name] || len(c.Objects) == 0
	}
	for name, r := range o.releases {
		isInstall := r.Revision == 1 && !r.Complete
		switch {
		case present[name], o.takenOver[name], rendered[name] && isInstall:
			continue
		case rendered[name]:
			o.releases[name] = stacks.ReleaseRecord{Revision: 1, Digest: r.Digest}
		default:
			delete(o.releases, name)
		}
		if v := o.generated[name]; v != nil && v.Release != nil {
			o.generated = maps.Clone(o.generated) // the old map is part of an earlier request
			o.generated[name] = v.Clone()
			o.generated[name].Release = nil
		}
	}
}

// recordReleases records the releases that are complete now, and forgets those of components that
// are removed.
func (o *owner) recordReleases(states []plan.ComponentState) {
	for i := range states {
		st := &states[i]
		if r := o.releases[st.Name]; st.Released && r.Digest != "" && !r.Complete {
			r.Complete = true
			o.releases[st.Name] = r
		}
	}
	o.forgetReleases()
}
