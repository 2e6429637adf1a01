package main

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// driftInterval is what both look at everything again after: it is what bounds
// the time of those who do not watch.
const driftInterval = time.Minute

const edited = "edited by hand"

// drift edits an object of each install, and waits until each is as it was.
func drift(ctx context.Context, s *session) error {
	if err := inPlace(ctx, s, driftInterval); err != nil {
		return err
	}
	objects, err := newBoard(ctx, s.Plane.Config(), schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, marked)
	if err != nil {
		return err
	}
	defer objects.stop()
	return s.measure(ctx, "e", func(ctx context.Context) (moments, error) {
		keys := make([]types.NamespacedName, len(s.sites))
		for i, at := range s.sites {
			keys[i] = types.NamespacedName{Namespace: at.Namespace, Name: s.source[at.Folder].name}
		}
		w := objects.expect(keys, corrected())
		g, edits := errgroup.WithContext(ctx)
		g.SetLimit(parallel)
		for _, key := range keys {
			g.Go(func() error {
				o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
				patch := client.RawPatch(types.MergePatchType, []byte(`{"data":{"value":"`+edited+`"}}`))
				return s.Plane.Client().Patch(edits, o, patch, client.FieldOwner("kubectl-edit"))
			})
		}
		if err := g.Wait(); err != nil {
			return nil, err
		}
		return objects.await(ctx, w)
	})
}

// corrected is met by ConfigMaps whose value was edited and is no more.
func corrected() check {
	seen := map[types.NamespacedName]bool{}
	return func(key types.NamespacedName, o *unstructured.Unstructured) bool {
		if o == nil {
			return false
		}
		value, _, _ := unstructured.NestedString(o.Object, "data", "value")
		if value == edited {
			seen[key] = true
		}
		return seen[key] && value != edited
	}
}

// removeAll deletes every wish, and waits until neither they nor what they
// installed is left. The times are those of the wishes.
func (s *session) removeAll(ctx context.Context) (moments, error) {
	went, err := s.remove(ctx)
	if err != nil {
		return nil, err
	}
	lists := []client.ObjectList{&corev1.ConfigMapList{}, &corev1.ServiceAccountList{}, &corev1.ServiceList{}, &appsv1.DeploymentList{}}
	return went, poll(ctx, func() (bool, error) {
		for _, list := range lists {
			if err := s.Plane.Client().List(ctx, list, client.HasLabels{marked}, client.Limit(1)); err != nil {
				return false, err
			}
			if apimeta.LenList(list) > 0 {
				return false, nil
			}
		}
		return true, nil
	})
}
