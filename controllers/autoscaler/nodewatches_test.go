package autoscaler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ksctl/gitops/internal/scaling/nodegroup"
)

func TestTemplateHasNoAddressOfItsNode(t *testing.T) {
	size := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"),
		corev1.ResourceMemory: resource.MustParse("4Gi")}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "demo-vm-wp-0-abcde",
		Labels: map[string]string{"team": "web", "address": "10.0.0.4"}},
		Status: corev1.NodeStatus{Capacity: size, Allocatable: size,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.4"}}}}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(node)
	if err != nil {
		t.Fatal(err)
	}
	trimmed, err := trimNode(&unstructured.Unstructured{Object: object})
	if err != nil {
		t.Fatal(err)
	}
	template, _ := nodegroup.Template(&testPools[0], trimmed.(*corev1.Node))
	if template.Labels["team"] != "web" || template.Labels["address"] != "" {
		t.Errorf("labels of the template: %v", template.Labels)
	}
}
