package match

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// By is what an object was told by.
type By string

// What objects are told by.
const (
	// Release: it carries the marks of the Helm release that its component is.
	Release By = "Release"
	// Fields: every field that the stack renders is so in the cluster.
	Fields By = "Fields"
	// Name: the stack renders nothing of it but its name, and labels.
	Name By = "Name"
)

// Verdict on an object.
type Verdict struct {
	// By is what it was told by; empty when it does not count.
	By By
	// Why it does not count, for people. No value of a field is in it.
	Why string
}

// Counts is true for an object that is the stack's.
func (v Verdict) Counts() bool { return v.By != "" }

// Wanted is a rendered object, and the release that its component is, if it is one.
type Wanted struct {
	stacks.Object
	Release *stacks.Release
}

// Judge tells whether a live object is the one that was rendered, which has its
// group, kind, namespace and name. It is not, whatever its fields, when it says
// that it is somebody's. self is the key of who asks: what it marked itself is its own.
func Judge(w *Wanted, self string, u *unstructured.Unstructured) Verdict {
	if by := owner(w, self, u); by != "" {
		return Verdict{Why: "it belongs to " + by}
	}
	if w.Release != nil && isOf(u, w.Release) {
		return Verdict{By: Release}
	}
	var want map[string]any
	if err := utiljson.Unmarshal(w.Manifest, &want); err != nil {
		return Verdict{Why: fmt.Sprintf("what the stack renders can't be read: %T", err)}
	}
	path, content := compare(want, u.Object)
	switch {
	case path != "":
		return Verdict{Why: path + " is not as the stack has it, and no Helm release of the stack marked it"}
	case content:
		return Verdict{By: Fields}
	}
	if path := labels(want, u.Object); path != "" {
		return Verdict{Why: path + " is not as the stack has it, which renders little else of it"}
	}
	return Verdict{By: Name}
}

// owner is who an object says it belongs to, other than the release of its
// component and who asks; empty when it says nothing.
func owner(w *Wanted, self string, u *unstructured.Unstructured) string {
	if m, err := live.ParseMark(u.GetAnnotations()[live.MarkAnnotation]); err == nil && m.ID == w.ID() {
		if m.Owner == self {
			return ""
		}
		return engine.OwnerName(m.Owner)
	}
	if r := engine.ReleaseOf(u); r != nil && w.Release != nil && *r == *w.Release {
		return engine.Controller(u)
	}
	return engine.Manager(u)
}

// isOf is true for an object that Helm would take for one of a release.
func isOf(u *unstructured.Unstructured, r *stacks.Release) bool {
	of := engine.ReleaseOf(u)
	return of != nil && *of == *r && u.GetLabels()["app.kubernetes.io/managed-by"] == "Helm"
}

// keepPolicy is the annotation by which Helm leaves an object when it uninstalls.
const keepPolicy = "helm.sh/resource-policy"

// Kept is true for an object that Helm would leave.
func Kept(w *Wanted, u *unstructured.Unstructured) bool {
	if u.GetAnnotations()[keepPolicy] == "keep" {
		return true
	}
	var want struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	return utiljson.Unmarshal(w.Manifest, &want) == nil && want.Metadata.Annotations[keepPolicy] == "keep"
}
