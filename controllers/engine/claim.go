package engine

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// instanceLabel is by what Argo CD tracks where it does so by label, unless it is told
// another one. Charts set it as well.
const instanceLabel = "app.kubernetes.io/instance"

// claim says whether an object that exists may be managed by an owner, and the
// state that it gets in the inventory. It is a pure function.
func claim(owner OwnerKey, ref stacks.Ref, recorded *appsv1.InventoryEntry, adopt appsv1.AdoptMode, u *unstructured.Unstructured) (appsv1.EntryState, error) {
	if m, err := live.ParseMark(u.GetAnnotations()[live.MarkAnnotation]); err == nil && m.ID == ref.ID() {
		if m.Owner == owner.String() {
			if u.GetAnnotations()[live.AdoptedAnnotation] != "" {
				return appsv1.EntryAdopted, nil
			}
			return appsv1.EntryApplied, nil
		}
		return "", &OwnedError{Ref: ref, By: OwnerName(m.Owner), Hint: "remove it from one of the two"}
	}
	if recorded.UID != "" && recorded.UID == u.GetUID() { // ours, with its mark taken off
		if recorded.State == appsv1.EntryAdopted {
			return appsv1.EntryAdopted, nil
		}
		return appsv1.EntryApplied, nil
	}
	by := Manager(u)
	switch adopt {
	case appsv1.AdoptAlways:
		return appsv1.EntryApplied, nil
	case appsv1.AdoptNever:
		if by == "" {
			by = "nobody that says so"
		}
		return "", &OwnedError{Ref: ref, By: by, Hint: "set spec.adopt to take it over, or delete it"}
	default:
		if by != "" {
			return "", &OwnedError{Ref: ref, By: by, Hint: "set spec.adopt to Always to take it over"}
		}
		return appsv1.EntryAdopted, nil
	}
}

// Manager names the tool or controller that an object says it belongs to;
// empty when it says nothing.
func Manager(u *unstructured.Unstructured) string {
	if by := Controller(u); by != "" {
		return by
	}
	if r := ReleaseOf(u); r != nil {
		return fmt.Sprintf("Helm release %s/%s", r.Namespace, r.Name)
	}
	return ""
}

// Controller is Manager of what keeps an object as it is, which Helm does not.
func Controller(u *unstructured.Unstructured) string {
	labels, ann := u.GetLabels(), u.GetAnnotations()
	if c := metav1.GetControllerOf(u); c != nil {
		return fmt.Sprintf("%s %s, which created it", c.Kind, c.Name)
	}
	switch {
	case labels[live.KustomizationLabel] != "":
		return fmt.Sprintf("Flux Kustomization %s/%s", labels["kustomize.toolkit.fluxcd.io/namespace"], labels[live.KustomizationLabel])
	case labels[live.HelmReleaseLabel] != "":
		return fmt.Sprintf("Flux HelmRelease %s/%s", labels["helm.toolkit.fluxcd.io/namespace"], labels[live.HelmReleaseLabel])
	case ann[live.ArgoTracking] != "":
		return fmt.Sprintf("Argo CD (%s)", ann[live.ArgoTracking])
	case labels[live.ArgoLabel] != "":
		return fmt.Sprintf("Argo CD application %s", labels[live.ArgoLabel])
	case labels[instanceLabel] != "" && appliedByArgo(u, instanceLabel):
		return fmt.Sprintf("Argo CD application %s", labels[instanceLabel])
	default:
		return ""
	}
}

// ReleaseOf is the Helm release that an object says it belongs to; nil when none.
func ReleaseOf(u *unstructured.Unstructured) *stacks.Release {
	ann := u.GetAnnotations()
	if ann[live.ReleaseName] == "" {
		return nil
	}
	return &stacks.Release{Name: ann[live.ReleaseName], Namespace: ann["meta.helm.sh/release-namespace"]}
}
