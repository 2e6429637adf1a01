package main

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var groupVersion = schema.GroupVersion{Group: "charts.samutup.com", Version: "v1alpha1"}

// Minimart is an object of the kind that the stack minimart serves. Its types have only the fields
// that this program uses: it writes with patches, so that all other fields stay.
type Minimart struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   MinimartSpec   `json:"spec,omitempty"`
	Status MinimartStatus `json:"status,omitempty"`
}

// MinimartSpec are the values of the chart.
type MinimartSpec struct {
	ReplicaCount *int32               `json:"replicaCount,omitempty"`
	Autoscaling  *MinimartAutoscaling `json:"autoscaling,omitempty"`
}

// MinimartAutoscaling configures the HorizontalPodAutoscaler.
type MinimartAutoscaling struct {
	Enabled     *bool  `json:"enabled,omitempty"`
	MinReplicas *int32 `json:"minReplicas,omitempty"`
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`
}

// MinimartStatus has the outcome.
type MinimartStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	URL                string             `json:"url,omitempty"`
}

// DeepCopyObject implements runtime.Object; a generator such as controller-gen can write it.
func (m *Minimart) DeepCopyObject() runtime.Object {
	out := *m
	m.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.ReplicaCount = copyOf(m.Spec.ReplicaCount)
	if out.Spec.Autoscaling = copyOf(m.Spec.Autoscaling); out.Spec.Autoscaling != nil {
		from := m.Spec.Autoscaling
		*out.Spec.Autoscaling = MinimartAutoscaling{copyOf(from.Enabled), copyOf(from.MinReplicas),
			copyOf(from.MaxReplicas)}
	}
	out.Status.Conditions = slices.Clone(m.Status.Conditions)
	return &out
}

func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
