package harness

import (
	"context"

	workloads "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WorkloadState is the part of a workload that a migration must not change: the UIDs of its objects
// and pods, and the Deployment's spec. It excludes the Deployment's generation, which annotations
// such as our ownership mark also increase.
type WorkloadState struct {
	ConfigMapUID, DeploymentUID types.UID
	Spec                        workloads.DeploymentSpec
	PodUIDs                     []types.UID
}

// WorkloadState reads the ConfigMap settings, the Deployment web and the pods of a namespace.
func (h *Harness) WorkloadState(ctx context.Context, ns string) (WorkloadState, error) {
	settings, web, pods := &corev1.ConfigMap{}, &workloads.Deployment{}, &corev1.PodList{}
	if err := h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: "settings"},
		settings); err != nil {
		return WorkloadState{}, err
	}
	if err := h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: "web"}, web); err != nil {
		return WorkloadState{}, err
	}
	if err := h.ControlPlane.Client().List(ctx, pods, client.InNamespace(ns)); err != nil {
		return WorkloadState{}, err
	}
	r := WorkloadState{ConfigMapUID: settings.UID, DeploymentUID: web.UID, Spec: web.Spec}
	for i := range pods.Items {
		r.PodUIDs = append(r.PodUIDs, pods.Items[i].UID)
	}
	return r, nil
}
