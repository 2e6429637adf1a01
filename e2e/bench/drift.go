package main

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// driftInterval is the reconcile interval of both controllers. It bounds the time until a
// controller that does not watch objects detects drift.
const driftInterval = time.Minute

const editedValue = "edited by hand"

// drift edits an object of each install, and waits until each edit is reverted.
func drift(ctx context.Context, s *session) error {
	if err := ensureInstalled(ctx, s, driftInterval); err != nil {
		return err
	}
	objects, err := newObjectWatch(ctx, s.ControlPlane.Config(),
		schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, objectLabel)
	if err != nil {
		return err
	}
	defer objects.stop()
	return s.measure(ctx, "e", func(ctx context.Context) (timestamps, error) {
		keys := make([]types.NamespacedName, len(s.specs))
		for i, at := range s.specs {
			keys[i] = types.NamespacedName{Namespace: at.Namespace, Name: s.source[at.Folder].name}
		}
		w := objects.expect(keys, reverted())
		err := forEach(ctx, parallel, keys, func(ctx context.Context, key types.NamespacedName) error {
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
			patch := client.RawPatch(types.MergePatchType, []byte(`{"data":{"value":"`+editedValue+`"}}`))
			return s.ControlPlane.Client().Patch(ctx, o, patch, client.FieldOwner("kubectl-edit"))
		})
		if err != nil {
			return nil, err
		}
		return objects.await(ctx, w)
	})
}

// reverted matches ConfigMaps whose value was edited and then reverted.
func reverted() objectPredicate {
	seen := map[types.NamespacedName]bool{}
	return func(o *unstructured.Unstructured) bool {
		if o == nil {
			return false
		}
		key := client.ObjectKeyFromObject(o)
		value, _, _ := unstructured.NestedString(o.Object, "data", "value")
		if value == editedValue {
			seen[key] = true
		}
		return seen[key] && value != editedValue
	}
}

// removeAll deletes every install, and waits until the installs and their objects are gone. It
// returns the deletion times of the installs.
func (s *session) removeAll(ctx context.Context) (timestamps, error) {
	deletedAt, err := s.remove(ctx)
	if err != nil {
		return nil, err
	}
	lists := []client.ObjectList{&corev1.ConfigMapList{}, &corev1.ServiceAccountList{}, &corev1.ServiceList{},
		&appsv1.DeploymentList{}}
	return deletedAt, wait.PollUntilContextCancel(ctx, 50*
		time.Millisecond, true, func(ctx context.Context) (bool, error) {
		for _, list := range lists {
			if err := s.ControlPlane.Client().
				List(ctx, list, client.HasLabels{objectLabel}, client.Limit(1)); err != nil {
				return false, err
			}
			if apimeta.LenList(list) > 0 {
				return false, nil
			}
		}
		return true, nil
	})
}
