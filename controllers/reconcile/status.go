package reconcile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// statusPatch is the merge patch that turns one status into another, bound to
// a resourceVersion; nil when they are equal. It carries nothing of the spec,
// which belongs to Git.
func statusPatch(before, after client.Object, resourceVersion string) ([]byte, error) {
	if reflect.DeepEqual(before, after) {
		return nil, nil // most often, and for less than to write down both
	}
	b, err := statusFields(before)
	if err != nil {
		return nil, err
	}
	a, err := statusFields(after)
	if err != nil {
		return nil, err
	}
	// Only fields that differ are looked into: an inventory may be long.
	for k, v := range b {
		if bytes.Equal(v, a[k]) {
			delete(a, k)
			delete(b, k)
		}
	}
	if len(a) == 0 && len(b) == 0 {
		return nil, nil
	}
	from, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	to, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.CreateMergePatch(from, to)
	if err != nil {
		return nil, fmt.Errorf("status patch: %w", err)
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": resourceVersion},
		"status":   json.RawMessage(patch),
	})
}

func statusFields(o client.Object) (map[string]json.RawMessage, error) {
	b, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("status of %s: %w", o.GetName(), err)
	}
	var doc struct {
		Status map[string]json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("status of %s: %w", o.GetName(), err)
	}
	if doc.Status == nil {
		doc.Status = map[string]json.RawMessage{}
	}
	return doc.Status, nil
}

// ConflictError says that somebody else wrote the status: what was planned on
// it must be planned again.
type ConflictError struct{ Err error }

func (e *ConflictError) Error() string {
	return "status was changed by another writer: " + e.Err.Error()
}

// Unwrap returns the API server's answer.
func (e *ConflictError) Unwrap() error { return e.Err }

// writeStatus sends what changed since before, as one patch, and returns the
// object as the API server has it then. wrote is false when there was nothing
// to send. A change of metadata or spec in between is no conflict; one of the
// status is.
func (r *Reconciler[T]) writeStatus(ctx context.Context, before, after T) (stored T, wrote bool, err error) {
	patch, err := statusPatch(before, after, before.GetResourceVersion())
	if err != nil || patch == nil {
		return after, false, err
	}
	stored, err = r.patchStatus(ctx, after, patch)
	if !apierrors.IsConflict(err) {
		return stored, true, err
	}
	conflict := err
	fresh := r.New()
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(after), fresh); err != nil {
		return after, true, err
	}
	if same, err := statusPatch(before, fresh, ""); err != nil || same != nil || fresh.GetUID() != before.GetUID() {
		return after, true, &ConflictError{Err: conflict}
	}
	if patch, err = statusPatch(before, after, fresh.GetResourceVersion()); err != nil {
		return after, true, err
	}
	stored, err = r.patchStatus(ctx, after, patch)
	if apierrors.IsConflict(err) {
		err = &ConflictError{Err: err}
	}
	return stored, true, err
}

// persist writes what must be on record before it is done, and returns the object as
// it is then. Nothing is written where there is nothing to record.
func (r *Reconciler[T]) persist(ctx context.Context, key types.NamespacedName, before, after T, doing string) (T, error) {
	if patch, err := statusPatch(before, after, ""); err != nil || patch == nil {
		return before, err
	}
	// Said with it, it needs no write of its own if what is done is ready soon.
	if doing != "" {
		setConditions(after.CommonStatus(), judge(Waiting{On: doing}), after.GetGeneration(), metav1.NewTime(r.Clock.Now()))
	}
	stored, wrote, err := r.writeStatus(ctx, before, after)
	if err != nil || !wrote {
		return before, err
	}
	// Not as it is stored, with a spec that may be another by now: this pass is of the one before.
	r.Metrics.Stands(r.Kind, after)
	after.SetResourceVersion(stored.GetResourceVersion())
	r.memory.keep(key, stored)
	r.memory.wrote(key, r.Clock.Now())
	return stored, nil
}

// patchStatus decodes the answer into a new object: decoding into a used one
// leaves fields behind.
func (r *Reconciler[T]) patchStatus(ctx context.Context, o T, patch []byte) (T, error) {
	stored := r.New()
	stored.SetNamespace(o.GetNamespace())
	stored.SetName(o.GetName())
	err := r.Client.Status().Patch(ctx, stored, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(r.FieldOwner))
	if err != nil {
		return o, err
	}
	return stored, nil
}
