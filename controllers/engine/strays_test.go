package engine

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ksctl/gitops/controllers/live"
)

func TestIsStray(t *testing.T) {
	since := time.Date(2025, 1, 1, 12, 0, 0, 0, time.UTC)
	mark := live.Mark{Owner: me.String(), ID: ref("a").ID()}
	annotate := func(key, value string) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			a := u.GetAnnotations()
			a[key] = value
			u.SetAnnotations(a)
		}
	}
	managed := func(entries ...metav1.ManagedFieldsEntry) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) { u.SetManagedFields(entries) }
	}
	// handedOver makes an object that is older than the owner, with an annotation that was set
	// later.
	handedOver := func(annotation, manager string, at time.Time) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			u.SetCreationTimestamp(metav1.NewTime(since.Add(-time.Hour)))
			u.SetManagedFields(append(u.GetManagedFields(), metav1.ManagedFieldsEntry{Manager: manager,
				Operation: metav1.ManagedFieldsOperationUpdate, Time: &metav1.Time{Time: at},
				FieldsType: "FieldsV1",
				FieldsV1:   metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:` + annotation + `":{}}}}`)}))
		}
	}
	for name, c := range map[string]struct {
		change func(*unstructured.Unstructured)
		stray  bool
	}{
		"applied by us": {func(*unstructured.Unstructured) {}, true},
		"as old as the owner": {func(u *unstructured.Unstructured) {
			u.SetCreationTimestamp(metav1.NewTime(since))
		}, true},
		"older than the owner": {func(u *unstructured.Unstructured) {
			u.SetCreationTimestamp(metav1.NewTime(since.Add(-time.Second)))
		}, false},
		"handed over since":     {handedOver("ksctl.com/mark", live.FieldManager, since), true},
		"handed over before":    {handedOver("ksctl.com/mark", live.FieldManager, since.Add(-time.Second)), false},
		"another field updated": {handedOver("ksctl.com/other", live.FieldManager, since), false},
		"marked by another":     {handedOver("ksctl.com/mark", "restore", since), false},
		"mark of another owner": {annotate(live.MarkAnnotation,
			live.Mark{Owner: other.String(), ID: mark.ID}.String()), false},
		"mark of another object": {annotate(live.MarkAnnotation,
			live.Mark{Owner: mark.Owner, ID: ref("b").ID()}.String()), false},
		"invalid mark": {annotate(live.MarkAnnotation, "x"), false},
		"adopted":      {annotate(live.AdoptedAnnotation, "true"), false},
		"being deleted": {func(u *unstructured.Unstructured) {
			u.SetDeletionTimestamp(&metav1.Time{Time: since})
		}, false},
		"applied by kubectl": {managed(metav1.ManagedFieldsEntry{Manager: "kubectl",
			Operation: metav1.ManagedFieldsOperationApply}), false},
		"only updated by us": {managed(metav1.ManagedFieldsEntry{Manager: live.FieldManager,
			Operation: metav1.ManagedFieldsOperationUpdate}), false},
		"no managed fields": {managed(), false},
	} {
		t.Run(name, func(t *testing.T) {
			u := &unstructured.Unstructured{Object: map[string]any{}}
			u.SetAnnotations(map[string]string{live.MarkAnnotation: mark.String()})
			u.SetCreationTimestamp(metav1.NewTime(since.Add(time.Hour)))
			u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: live.FieldManager,
				Operation: metav1.ManagedFieldsOperationApply}})
			c.change(u)
			if got := isStray(u, mark, since); got != c.stray {
				t.Errorf("got %v", got)
			}
		})
	}
}
