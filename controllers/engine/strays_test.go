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
	for name, c := range map[string]struct {
		change func(*unstructured.Unstructured)
		stray  bool
	}{
		"made by us":                  {func(*unstructured.Unstructured) {}, true},
		"made in the owner's second":  {func(u *unstructured.Unstructured) { u.SetCreationTimestamp(metav1.NewTime(since)) }, true},
		"older than the owner":        {func(u *unstructured.Unstructured) { u.SetCreationTimestamp(metav1.NewTime(since.Add(-time.Second))) }, false},
		"with the mark of another":    {annotate(live.MarkAnnotation, live.Mark{Owner: other.String(), ID: mark.ID}.String()), false},
		"a copy of another object":    {annotate(live.MarkAnnotation, live.Mark{Owner: mark.Owner, ID: ref("b").ID()}.String()), false},
		"with a mark nobody can read": {annotate(live.MarkAnnotation, "x"), false},
		"adopted":                     {annotate(live.AdoptedAnnotation, "true"), false},
		"being deleted":               {func(u *unstructured.Unstructured) { u.SetDeletionTimestamp(&metav1.Time{Time: since}) }, false},
		"made by kubectl":             {managed(metav1.ManagedFieldsEntry{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply}), false},
		"only updated by us":          {managed(metav1.ManagedFieldsEntry{Manager: live.FieldManager, Operation: metav1.ManagedFieldsOperationUpdate}), false},
		"of no manager":               {managed(), false},
	} {
		t.Run(name, func(t *testing.T) {
			u := &unstructured.Unstructured{Object: map[string]any{}}
			u.SetAnnotations(map[string]string{live.MarkAnnotation: mark.String()})
			u.SetCreationTimestamp(metav1.NewTime(since.Add(time.Hour)))
			u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: live.FieldManager, Operation: metav1.ManagedFieldsOperationApply}})
			c.change(u)
			if got := isStray(u, mark, since); got != c.stray {
				t.Errorf("got %v", got)
			}
		})
	}
}
