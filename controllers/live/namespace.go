package live

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// NamespaceDeletionMessage returns the condition message of a namespace that is being deleted: the
// content or finalizers that remain in it, or why the deletion of its content fails. It is empty
// if there is no such condition, or if the object is no namespace. The finalizers of a namespace
// do not show why it remains: they are in its spec and are always the same.
func NamespaceDeletionMessage(u *unstructured.Unstructured) string {
	if u.GetAPIVersion() != "v1" || u.GetKind() != "Namespace" {
		return ""
	}
	for _, kind := range []corev1.NamespaceConditionType{corev1.NamespaceFinalizersRemaining, corev1.NamespaceContentRemaining,
		corev1.NamespaceDeletionContentFailure, corev1.NamespaceDeletionDiscoveryFailure} {
		c := condition(u.Object, string(kind))
		if m := stringField(c, "message"); m != "" && c["status"] == "True" {
			return m
		}
	}
	return ""
}
