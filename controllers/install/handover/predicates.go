package handover

import (
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// IsFleet reports whether an install is for many clusters. After a change of spec.clusterSelector,
// an install stays what it was until its objects, or its member installs, are removed.
func IsFleet(in *appsv1.KsctlInstall) bool {
	return in.Spec.ClusterSelector != nil && in.Status.Inventory == nil || len(in.Status.Clusters) > 0
}

// IsReady reports whether the Ready condition is True for the current generation.
func IsReady(in *appsv1.KsctlInstall) bool {
	c := ReadyCondition(in)
	return c.Status == metav1.ConditionTrue && c.ObservedGeneration == in.Generation
}

// FleetName returns the name of the install that a member install belongs to. It is empty for an
// object that is not a member install.
func FleetName(o client.Object) string {
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != appsv1.KsctlInstallKind ||
		!strings.HasPrefix(owner.APIVersion, appsv1.GroupVersion.Group+"/") {
		return ""
	}
	return owner.Name
}

// ReadyCondition returns the Ready condition. It is zero if there is none.
func ReadyCondition(in *appsv1.KsctlInstall) metav1.Condition {
	return ptr.Deref(apimeta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition), metav1.Condition{})
}

// NotReadyMessage returns the message of the Ready condition if it is False.
func NotReadyMessage(in *appsv1.KsctlInstall) string {
	if c := ReadyCondition(in); c.Status == metav1.ConditionFalse {
		return reconcile.QuotedMessage(in.Status.Conditions)
	}
	return ""
}

// IsFullyRemoved reports whether all objects of an install are removed because of a KsctlRemove.
func IsFullyRemoved(in *appsv1.KsctlInstall) bool {
	return ReadyCondition(in).Reason == appsv1.RemovedByRequestReason && in.Status.Inventory == nil &&
		fullRemovalRequested(in)
}

// fullRemovalRequested reports whether a KsctlRemove removes an install as a whole. Such an install
// claims no objects.
func fullRemovalRequested(in *appsv1.KsctlInstall) bool {
	return slices.ContainsFunc(in.Status.Removals, func(r appsv1.InstallRemoval) bool { return len(r.Components) == 0 })
}
