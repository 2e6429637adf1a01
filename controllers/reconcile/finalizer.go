package reconcile

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// setFinalizers writes the finalizers by a patch of the metadata alone: the
// spec is not sent, and so not written anew.
func (r *Reconciler[T]) setFinalizers(ctx context.Context, o T, finalizers []string) (T, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": o.GetResourceVersion(),
		"finalizers":      finalizers,
	}})
	if err != nil {
		return o, err
	}
	stored := r.New()
	stored.SetNamespace(o.GetNamespace())
	stored.SetName(o.GetName())
	if err := r.Client.Patch(ctx, stored, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(r.FieldOwner)); err != nil {
		return o, fmt.Errorf("writing the finalizers: %w", err)
	}
	return stored, nil
}

// release lets an object go that owns nothing any more.
func (r *Reconciler[T]) release(ctx context.Context, key types.NamespacedName, o T) (ctrl.Result, error) {
	var rest []string
	for _, f := range o.GetFinalizers() {
		if f != appsv1.Finalizer {
			rest = append(rest, f)
		}
	}
	if _, err := r.setFinalizers(ctx, o, rest); err != nil {
		r.memory.drop(key) // read it again
		return requeue(err)
	}
	r.forget(key)
	r.memory.end(key, o.GetUID())
	return ctrl.Result{}, nil
}
