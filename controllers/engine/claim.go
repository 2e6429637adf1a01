package engine

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// argoInstanceLabel is the default label of Argo CD's tracking by label. Charts set it as well.
const argoInstanceLabel = "app.kubernetes.io/instance"

// claim returns the inventory state of an existing object for an owner that is allowed to manage
// it; else an *OwnedByOtherError. It is a pure function.
func claim(owner plan.OwnerKey, ref stacks.Ref, recorded *appsv1.InventoryEntry, adopt appsv1.AdoptMode,
	u *unstructured.Unstructured) (appsv1.EntryState, error) {
	if m, err := live.ParseMark(u.GetAnnotations()[live.MarkAnnotation]); err == nil && m.ID == ref.ID() {
		if m.Owner == owner.String() {
			if u.GetAnnotations()[live.AdoptedAnnotation] != "" {
				return appsv1.EntryAdopted, nil
			}
			return appsv1.EntryApplied, nil
		}
		return "", &plan.OwnedByOtherError{Ref: ref, By: plan.OwnerDisplayName(m.Owner),
			Hint: "remove the object from one of the two"}
	}
	if recorded.UID != "" && recorded.UID == u.GetUID() { // ours, without its mark
		if recorded.State == appsv1.EntryAdopted {
			return appsv1.EntryAdopted, nil
		}
		return appsv1.EntryApplied, nil
	}
	by := ManagerOf(u)
	switch adopt {
	case appsv1.AdoptAlways, appsv1.AdoptUnchanged:
		return appsv1.EntryApplied, nil
	case appsv1.AdoptNever:
		return "", &plan.OwnedByOtherError{Ref: ref, By: cmp.Or(by, "an unknown owner"),
			Hint: "set spec.adopt to take it over, or delete it"}
	default:
		if by != "" {
			return "", &plan.OwnedByOtherError{Ref: ref, By: by, Hint: "set spec.adopt to Always to take it over"}
		}
		return appsv1.EntryAdopted, nil
	}
}

// ManagerOf returns the name of the tool or controller that manages an object, according to its
// metadata; empty when there is none.
func ManagerOf(u *unstructured.Unstructured) string {
	if by := ActiveManagerOf(u); by != "" {
		return by
	}
	if r := HelmReleaseOf(u); r != nil {
		return fmt.Sprintf("Helm release %s/%s", r.Namespace, r.Name)
	}
	return ""
}

// ActiveManagerOf is ManagerOf for tools and controllers that revert changes of an object. Helm
// does not.
func ActiveManagerOf(u *unstructured.Unstructured) string {
	labels, ann := u.GetLabels(), u.GetAnnotations()
	if c := metav1.GetControllerOf(u); c != nil {
		return fmt.Sprintf("%s %s, which created it", c.Kind, c.Name)
	}
	switch {
	case labels[live.FluxKustomizationLabel] != "":
		return fmt.Sprintf("Flux Kustomization %s/%s", labels["kustomize.toolkit.fluxcd.io/namespace"],
			labels[live.FluxKustomizationLabel])
	case labels[live.FluxHelmReleaseLabel] != "":
		return fmt.Sprintf("Flux HelmRelease %s/%s", labels["helm.toolkit.fluxcd.io/namespace"],
			labels[live.FluxHelmReleaseLabel])
	case ann[live.ArgoCDTrackingAnnotation] != "":
		return fmt.Sprintf("Argo CD (%s)", ann[live.ArgoCDTrackingAnnotation])
	case labels[live.ArgoCDInstanceLabel] != "":
		return fmt.Sprintf("Argo CD application %s", labels[live.ArgoCDInstanceLabel])
	case labels[argoInstanceLabel] != "" && appliedByArgo(u, argoInstanceLabel):
		return fmt.Sprintf("Argo CD application %s", labels[argoInstanceLabel])
	default:
		return ""
	}
}

// HelmReleaseOf returns the Helm release in the annotations of an object; nil when there is none.
func HelmReleaseOf(u *unstructured.Unstructured) *stacks.Release {
	ann := u.GetAnnotations()
	if ann[live.HelmReleaseNameAnnotation] == "" {
		return nil
	}
	return &stacks.Release{Name: ann[live.HelmReleaseNameAnnotation], Namespace: ann["meta.helm.sh/release-namespace"]}
}
