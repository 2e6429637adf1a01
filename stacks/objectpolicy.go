package stacks

import (
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// Annotations of other tools that have the same meaning as ours.
const (
	fluxPruneAnnotation    = "kustomize.toolkit.fluxcd.io/prune"
	fluxApplyAnnotation    = "kustomize.toolkit.fluxcd.io/ssa"
	fluxForceAnnotation    = "kustomize.toolkit.fluxcd.io/force"
	argoCDSyncAnnotation   = "argocd.argoproj.io/sync-options"
	argoCDHealthAnnotation = "argocd.argoproj.io/ignore-healthcheck"
)

// ObjectPolicy is how the annotations of an object change how it is applied and removed.
type ObjectPolicy struct {
	// KeptWhenPruned keeps an object that left the stack, and KeptWhenDeleted one whose removal is
	// requested, such as by the deletion of the install.
	KeptWhenPruned, KeptWhenDeleted bool
	// CreateOnly, Recreate and IgnoreHealth are those of Object.
	CreateOnly, Recreate, IgnoreHealth bool
}

// ObjectPolicyOf returns the policy in the annotations of an object. Other values than those that
// are documented count as absent. helm.sh/resource-policy is not part of it.
func ObjectPolicyOf(object map[string]any) ObjectPolicy {
	metadata, _ := object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	if len(annotations) == 0 && len(labels) == 0 {
		return ObjectPolicy{}
	}
	value := func(name string) string {
		text, _ := annotations[name].(string)
		return text
	}
	isTrue := func(name string) bool { return value(name) == "true" }
	flux := func(name, want string) bool { // Flux reads them as labels, too
		label, _ := labels[name].(string)
		return strings.EqualFold(value(name), want) || strings.EqualFold(label, want)
	}
	argoCD := func(want string) bool {
		for option := range strings.SplitSeq(value(argoCDSyncAnnotation), ",") {
			if strings.TrimSpace(option) == want {
				return true
			}
		}
		return false
	}
	keep := isTrue(appsv1.KeepAnnotation) || flux(fluxPruneAnnotation, "disabled")
	return ObjectPolicy{
		KeptWhenPruned:  keep || argoCD("Prune=false"),
		KeptWhenDeleted: keep || argoCD("Delete=false"),
		CreateOnly:      isTrue(appsv1.CreateOnlyAnnotation) || flux(fluxApplyAnnotation, "IfNotPresent"),
		// With Replace=true, Argo CD recreates the object at each sync.
		Recreate: isTrue(appsv1.RecreateAnnotation) || flux(fluxForceAnnotation, "enabled") ||
			argoCD("Force=true") && !argoCD("Replace=true"),
		IgnoreHealth: isTrue(appsv1.IgnoreHealthAnnotation) || isTrue(argoCDHealthAnnotation),
	}
}
