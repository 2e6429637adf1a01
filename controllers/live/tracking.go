package live

import "slices"

// Fields by which tools say that an object is theirs.
const (
	// KustomizationLabel and HelmReleaseLabel are those of Flux.
	KustomizationLabel = "kustomize.toolkit.fluxcd.io/name"
	HelmReleaseLabel   = "helm.toolkit.fluxcd.io/name"
	// ArgoTracking is the annotation of Argo CD, ArgoLabel the label that its
	// documentation recommends where it tracks by label.
	ArgoTracking = "argocd.argoproj.io/tracking-id"
	ArgoLabel    = "argocd.argoproj.io/instance"
	// ReleaseName is the annotation of Helm.
	ReleaseName = "meta.helm.sh/release-name"
)

// ToolMarks returns the places of these fields: a tool deletes an object that has its
// mark when it has no use for it any more.
func ToolMarks() [][]string {
	return [][]string{
		{"metadata", "labels", KustomizationLabel}, {"metadata", "labels", HelmReleaseLabel}, {"metadata", "labels", ArgoLabel},
		{"metadata", "annotations", ArgoTracking}, {"metadata", "annotations", ReleaseName},
	}
}

// toolMarks is not made anew for each object.
var toolMarks = ToolMarks()

// claimed is true when others put the mark of a tool on an object. One that is ignored
// is left to them.
func (m *managed) claimed(object map[string]any, ignored []string) bool {
	return slices.ContainsFunc(toolMarks, func(mark []string) bool {
		if _, present := lookup(object, mark); !present || slices.ContainsFunc(ignored, func(p string) bool { return touches(p, mark) }) {
			return false
		}
		return slices.ContainsFunc(m.others, func(o map[string]any) bool { return owns(o, object, mark) })
	})
}

// touches is true for a pointer to a field, into it or to what it is in.
func touches(pointer string, field []string) bool {
	tokens, err := parsePointer(pointer)
	if err != nil {
		return false
	}
	n := min(len(tokens), len(field))
	return slices.Equal(tokens[:n], field[:n])
}
