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

// statusPatch returns the merge patch from one status to another, with a resourceVersion as
// precondition; nil if they are equal. It contains no part of the spec, which belongs to Git.
func statusPatch(before, after client.Object, resourceVersion string) ([]byte, error) {
	if reflect.DeepEqual(before, after) {
		return nil, nil // the usual case, and cheaper than encoding both
	}
	b, err := statusFields(before)
	if err != nil {
		return nil, err
	}
	a, err := statusFields(after)
	if err != nil {
		return nil, err
	}
	// Compare only the fields that differ: an inventory may be long.
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
		return nil, fmt.Errorf("creating the status patch: %w", err)
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": resourceVersion},
		"status":   json.RawMessage(patch),
	})
}

func statusFields(o client.Object) (map[string]json.RawMessage, error) {
	b, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encoding the status of %s: %w", o.GetName(), err)
	}
	var doc struct {
		Status map[string]json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("decoding the status of %s: %w", o.GetName(), err)
	}
	if doc.Status == nil {
		doc.Status = map[string]json.RawMessage{}
	}
	return doc.Status, nil
}

// ConflictError reports that another writer changed the status: the steps must run again on the new
// status.
type ConflictError struct{ Err error }

func (e *ConflictError) Error() string {
	return "another writer changed the status: " + e.Err.Error()
}

// Unwrap returns the error of the API server.
func (e *ConflictError) Unwrap() error { return e.Err }

// writeStatus sends the difference between before and after as one patch and returns the object
// from the response. wrote is false if there is no difference. A concurrent change of the metadata
// or the spec is no conflict; a change of the status is one.
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
	if diff, err := statusPatch(before, fresh, ""); err != nil || diff != nil || fresh.GetUID() != before.GetUID() {
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

// persist implements Request.Persist. It returns the object from the response; it writes nothing if
// the status did not change.
func (r *Reconciler[T]) persist(ctx context.Context, key types.NamespacedName, before, after T,
	doing string) (T, error) {
	if patch, err := statusPatch(before, after, ""); err != nil || patch == nil {
		return before, err
	}
	// With the message in this write, a step that becomes ready soon needs no other write for
	// it.
	if doing != "" {
		setConditions(after.CommonStatus(), effectsOf(Waiting{On: doing}), after.GetGeneration(),
			metav1.NewTime(r.Clock.Now()))
	}
	stored, wrote, err := r.writeStatus(ctx, before, after)
	if err != nil || !wrote {
		return before, err
	}
	// Not stored: its spec may be newer than the spec of this reconcile.
	r.Metrics.RecordStatus(r.Kind, after)
	after.SetResourceVersion(stored.GetResourceVersion())
	r.recent.recordWrite(key, stored, r.Clock.Now())
	return stored, nil
}

// patchStatus patches the status and decodes the response into a new object: decoding into a used
// object would keep its old fields.
func (r *Reconciler[T]) patchStatus(ctx context.Context, o T, patch []byte) (T, error) {
	stored := r.New()
	stored.SetNamespace(o.GetNamespace())
	stored.SetName(o.GetName())
	err := r.Client.Status().Patch(ctx, stored, client.RawPatch(types.MergePatchType, patch),
		client.FieldOwner(r.FieldOwner))
	if err != nil {
		return o, err
	}
	return stored, nil
}
