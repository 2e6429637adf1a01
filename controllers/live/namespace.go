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
	conditions, _, err := unstructured.NestedSlice(u.Object, "status", "conditions")
	if err != nil {
		return ""
	}
	messages := map[string]string{}
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["status"] == string(corev1.ConditionTrue) {
			kind, _ := c["type"].(string)
			messages[kind], _ = c["message"].(string)
		}
	}
	for _, kind := range []corev1.NamespaceConditionType{corev1.NamespaceFinalizersRemaining, corev1.NamespaceContentRemaining,
		corev1.NamespaceDeletionContentFailure, corev1.NamespaceDeletionDiscoveryFailure} {
		if m := messages[string(kind)]; m != "" {
			return m
		}
	}
	return ""
}
