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

// setFinalizers writes the finalizers with a patch of the metadata only, so that the spec stays
// exactly as it was written.
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
	if err := r.Client.Patch(ctx, stored, client.RawPatch(types.MergePatchType, patch),
		client.FieldOwner(r.FieldOwner)); err != nil {
		return o, fmt.Errorf("writing the finalizers: %w", err)
	}
	return stored, nil
}

// removeFinalizer removes our finalizer after the teardown of an object.
func (r *Reconciler[T]) removeFinalizer(ctx context.Context, key types.NamespacedName, o T) (ctrl.Result, error) {
	var remaining []string
	for _, f := range o.GetFinalizers() {
		if f != appsv1.Finalizer {
			remaining = append(remaining, f)
		}
	}
	if _, err := r.setFinalizers(ctx, o, remaining); err != nil {
		r.recent.drop(key) // the next reconcile reads the object again
		return resultForError(err)
	}
	r.forget(key)
	r.recent.markFinalized(key, o.GetUID())
	return ctrl.Result{}, nil
}

// Abandoned is true for an object whose user gives up what it manages: its abandon annotation has
// its uid. Its teardown then removes nothing that it cannot reach.
func Abandoned(o client.Object) bool {
	return o.GetUID() != "" && o.GetAnnotations()[appsv1.AbandonAnnotation] == string(o.GetUID())
}

// WithAbandonHint adds to the error of a teardown how to end the teardown and keep something, such
// as "the Secret".
func WithAbandonHint(err error, keep string, o client.Object) error {
	return fmt.Errorf("%w; to keep %s, set the annotation %s: %s", err, keep, appsv1.AbandonAnnotation, o.GetUID())
}
