package stacks

import (
	"slices"

	"github.com/ksctl/gitops/stacks/internal/kustomize"
	"github.com/ksctl/gitops/stacks/internal/manifest"
)

// changeObjects changes the rendered objects of all components: variables, fields, metadata and
// names, then patches, images and replicas.
func (r *renderRun) changeObjects(rendered [][]*manifest.Object) error {
	err := r.eachComponent(rendered, func(p *ResolvedComponent,
		objects []*manifest.Object) ([]*manifest.Object, error) {
		return p.substitute(objects)
	})
	if err != nil {
		return err
	}
	r.assignNamespaces(rendered)
	err = r.eachComponent(rendered, func(p *ResolvedComponent, objects []*manifest.Object) ([]*manifest.Object, error) {
		err := setFields(p, objects)
		if !p.Component.Contribute { // the objects are of other owners
			p.metadata.setMetadata(objects)
		}
		return objects, err
	})
	if err != nil {
		return err
	}
	if err := r.rename(rendered); err != nil {
		return err
	}
	if err := manifest.FindDuplicates(slices.Concat(rendered...)).Err(); err != nil {
		return err
	}
	changed := false
	err = r.eachComponent(rendered, func(p *ResolvedComponent, objects []*manifest.Object) ([]*manifest.Object, error) {
		o := kustomizeOverride(p)
		if o.Empty() {
			return objects, nil
		}
		changed = true
		return kustomize.Apply(r.ctx, objects, o)
	})
	if err != nil || !changed {
		return err
	}
	r.assignNamespaces(rendered)
	return manifest.FindDuplicates(slices.Concat(rendered...)).Err()
}

// eachComponent changes the objects of each component. A chart that is left out has none.
func (r *renderRun) eachComponent(rendered [][]*manifest.Object,
	change func(*ResolvedComponent, []*manifest.Object) ([]*manifest.Object, error)) error {
	for i := range r.resolved.Components {
		p := &r.resolved.Components[i]
		if p.Component.Helm != nil && p.chart == nil {
			continue
		}
		objects, err := r.runStep(p, func() ([]*manifest.Object, error) { return change(p, rendered[i]) })
		if err != nil {
			return err
		}
		rendered[i] = objects
	}
	return nil
}

// assignNamespaces sets the namespace of every object, and drops those that a chart repeats.
func (r *renderRun) assignNamespaces(rendered [][]*manifest.Object) {
	clusterKinds := manifest.ClusterKindsOf(slices.Concat(rendered...))
	for i, objects := range rendered {
		p := &r.resolved.Components[i]
		for _, o := range objects {
			clusterKinds.SetNamespace(o, p.Namespace)
			o.Component = p.Component.Name
		}
		if p.Component.Helm != nil {
			var warnings []string
			rendered[i], warnings = manifest.DropRepeated(objects)
			r.warn(p.Component, warnings)
		}
	}
}

// digestedChanges returns the variables, the metadata and the names of a component for the digest
// of its release; nil if there are none.
func (p *ResolvedComponent) digestedChanges() any {
	if len(p.variables) == 0 && len(p.metadata.Labels)+len(p.metadata.Annotations) == 0 &&
		p.namePrefix+p.nameSuffix == "" {
		return nil
	}
	return []any{p.variables, p.metadata, p.namePrefix, p.nameSuffix}
}
