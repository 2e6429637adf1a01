package live

import "slices"

// Labels and annotations by which other tools track the objects that they manage.
const (
	// FluxKustomizationLabel and FluxHelmReleaseLabel are the labels of Flux.
	FluxKustomizationLabel = "kustomize.toolkit.fluxcd.io/name"
	FluxHelmReleaseLabel   = "helm.toolkit.fluxcd.io/name"
	// ArgoCDTrackingAnnotation is the annotation of Argo CD. ArgoCDInstanceLabel is the label
	// that the documentation of Argo CD recommends for tracking by label.
	ArgoCDTrackingAnnotation = "argocd.argoproj.io/tracking-id"
	ArgoCDInstanceLabel      = "argocd.argoproj.io/instance"
	// HelmReleaseNameAnnotation is the annotation of Helm.
	HelmReleaseNameAnnotation = "meta.helm.sh/release-name"
)

// TrackingFields returns the paths of these labels and annotations. A tool deletes an object that
// carries its label or annotation once the object is no longer part of its application or release.
func TrackingFields() [][]string {
	return [][]string{
		{"metadata", "labels", FluxKustomizationLabel}, {"metadata", "labels", FluxHelmReleaseLabel},
		{"metadata", "labels", ArgoCDInstanceLabel},
		{"metadata", "annotations", ArgoCDTrackingAnnotation}, {"metadata", "annotations", HelmReleaseNameAnnotation},
	}
}

// trackingFields is shared, so that no object allocates its own.
var trackingFields = TrackingFields()

// trackedByTool reports whether a manager other than FieldManager owns a tracking label or
// annotation of the object. Ignored ones do not count.
func (m *managedFields) trackedByTool(object map[string]any, ignored []ignoredPath) bool {
	return slices.ContainsFunc(trackingFields, func(path []string) bool {
		_, present := lookup(object, path)
		return present && m.othersOwn(object, ignoredPath{tokens: path}) &&
			!slices.ContainsFunc(ignored, func(p ignoredPath) bool { return overlaps(p.tokens, path) })
	})
}

// overlaps reports whether the tokens of a pointer refer to a field, to a part of it or to an
// ancestor of it.
func overlaps(tokens, field []string) bool {
	n := min(len(tokens), len(field))
	return slices.Equal(tokens[:n], field[:n])
}
