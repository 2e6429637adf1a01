package live

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Remains is what a namespace that is being deleted says is left in it, or why that
// can't be found out; empty when it says nothing. What holds a namespace stands
// nowhere else: its finalizers are in its spec, and are always the same.
func Remains(u *unstructured.Unstructured) string {
	if u.GetAPIVersion() != "v1" || u.GetKind() != "Namespace" {
		return ""
	}
	conditions, _, err := unstructured.NestedSlice(u.Object, "status", "conditions")
	if err != nil {
		return ""
	}
	said := map[string]string{}
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["status"] == string(corev1.ConditionTrue) {
			kind, _ := c["type"].(string)
			said[kind], _ = c["message"].(string)
		}
	}
	for _, kind := range []corev1.NamespaceConditionType{corev1.NamespaceFinalizersRemaining, corev1.NamespaceContentRemaining,
		corev1.NamespaceDeletionContentFailure, corev1.NamespaceDeletionDiscoveryFailure} {
		if m := said[string(kind)]; m != "" {
			return m
		}
	}
	return ""
}
