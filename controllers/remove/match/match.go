package match

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// Rendered is a rendered object, with the Helm release of its component; nil if it has none.
type Rendered struct {
	stacks.Object
	Release *stacks.Release
}

// Match decides whether a live object is the rendered object with the same group, kind, namespace
// and name. It never matches an object that is marked by another owner. self is the owner key of
// the caller, whose own marks are ignored. mismatch is the reason for users why the object does not
// match; it contains no field values, and is empty if the object matches. inRelease is true if the
// object matches because it has the labels and annotations of the Helm release of its component.
func Match(w *Rendered, self string, u *unstructured.Unstructured) (mismatch string, inRelease bool) {
	if by := ownerOf(w, self, u); by != "" {
		return "belongs to " + by, false
	}
	if w.Release != nil && isInRelease(u, w.Release) {
		return "", true
	}
	var want map[string]any
	if err := utiljson.Unmarshal(w.Manifest, &want); err != nil {
		return fmt.Sprintf("the rendered object can't be parsed: %T", err), false
	}
	path, content := diff(want, u.Object)
	switch {
	case path != "":
		return path + " differs from the stack, and the object is not marked by a Helm release of the stack", false
	case content:
		return "", false
	}
	if path := diffLabels(want, u.Object); path != "" {
		return path + " differs from the stack, which renders only the name and labels", false
	}
	return "", false
}

// ownerOf returns the owner that an object is marked with; empty if there is none, or if it is the
// caller or the release of the component.
func ownerOf(w *Rendered, self string, u *unstructured.Unstructured) string {
	if m, err := live.ParseMark(u.GetAnnotations()[live.MarkAnnotation]); err == nil && m.ID == w.ID() {
		if m.Owner == self {
			return ""
		}
		return plan.OwnerDisplayName(m.Owner)
	}
	if r := engine.HelmReleaseOf(u); r != nil && w.Release != nil && *r == *w.Release {
		return engine.ActiveManagerOf(u)
	}
	return engine.ManagerOf(u)
}

// isInRelease reports whether Helm would treat the object as part of the release.
func isInRelease(u *unstructured.Unstructured, r *stacks.Release) bool {
	release := engine.HelmReleaseOf(u)
	return release != nil && *release == *r && u.GetLabels()["app.kubernetes.io/managed-by"] == "Helm"
}

// KeptByHelm reports whether helm uninstall would keep the object.
func KeptByHelm(rendered *Rendered, u *unstructured.Unstructured) bool {
	want := unstructured.Unstructured{Object: contentOf(rendered)}
	return live.IsKeptByHelm(u.GetAnnotations()[live.HelmPolicyAnnotation]) ||
		live.IsKeptByHelm(want.GetAnnotations()[live.HelmPolicyAnnotation])
}

// KeptByAnnotation reports whether other annotations keep the object when its removal is requested.
func KeptByAnnotation(rendered *Rendered, u *unstructured.Unstructured) bool {
	return stacks.ObjectPolicyOf(u.Object).KeptWhenDeleted || stacks.ObjectPolicyOf(contentOf(rendered)).KeptWhenDeleted
}

// contentOf returns the content of a manifest; nil if it is invalid.
func contentOf(rendered *Rendered) map[string]any {
	var content map[string]any
	if utiljson.Unmarshal(rendered.Manifest, &content) != nil {
		return nil
	}
	return content
}
