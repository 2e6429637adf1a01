package harness

import (
	"context"

	workloads "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Running is what must be the same before and after a move: the uids of what runs, and what
// the Deployment says. Its generation counts annotations as well, of which our mark is one.
type Running struct {
	Settings, Web types.UID
	Spec          workloads.DeploymentSpec
	Pods          []types.UID
}

// Running looks at the ConfigMap settings, the Deployment web and the pods of a namespace.
func (h *Harness) Running(ctx context.Context, ns string) (Running, error) {
	settings, web, pods := &corev1.ConfigMap{}, &workloads.Deployment{}, &corev1.PodList{}
	if err := h.Plane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: "settings"}, settings); err != nil {
		return Running{}, err
	}
	if err := h.Plane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: "web"}, web); err != nil {
		return Running{}, err
	}
	if err := h.Plane.Client().List(ctx, pods, client.InNamespace(ns)); err != nil {
		return Running{}, err
	}
	r := Running{Settings: settings.UID, Web: web.UID, Spec: web.Spec}
	for i := range pods.Items {
		r.Pods = append(r.Pods, pods.Items[i].UID)
	}
	return r, nil
}
