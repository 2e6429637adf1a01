package engine

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
)

// Only the installation that created a shared namespace deletes it, and only if nobody else uses
// it.
func TestNamespaceKeepReason(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        string
		protected   bool
	}{
		"created by nobody known": {nil, "not created by this installation", false},
		"created by another installation": {map[string]string{createdByAnnotation: "y"},
			"not created by this installation", false},
		"used by another owner": {map[string]string{createdByAnnotation: "x",
			usedByAnnotation(other): other.String()}, "KsctlInstall ns/other uses it", false},
		"protected": {map[string]string{createdByAnnotation: "x",
			usedByAnnotation(me): me.String(), live.PreventDeletionAnnotation: "true"}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			u := &unstructured.Unstructured{}
			u.SetName("apps")
			u.SetAnnotations(tc.annotations)
			a := &executor{owner: &ReadOnlyOwner{OwnerKey: me}}
			got, err := a.namespaceKeepReason(t.Context(), u)
			var protected *plan.ProtectedError
			if !strings.Contains(got, tc.want) || errors.As(err, &protected) != tc.protected {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}
