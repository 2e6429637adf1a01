package bysource

import (
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
)

func TestUnapproved(t *testing.T) {
	for name, tc := range map[string]struct {
		approved string
		removed  *int32
		want     string
	}{
		"not begun":               {want: "3 objects would be removed (status.removal), and nothing is deleted yet: look at them, then commit spec.approvedDigest: digest"},
		"another one":             {approved: "other", want: "spec.approvedDigest other is that of another set; 3 objects would be removed"},
		"taken back":              {removed: ptr.To[int32](2), want: "the removal was begun: 2 of 3 objects are gone, 1 more would be removed, and wait for the approval: to go on, commit spec.approvedDigest: digest"},
		"changed while it ran":    {approved: "other", removed: ptr.To[int32](2), want: "spec.approvedDigest other is that of another set; the removal was begun: 2 of 3"},
		"taken back at the start": {removed: ptr.To[int32](0), want: "the removal was begun: 0 of 3 objects are gone"},
	} {
		t.Run(name, func(t *testing.T) {
			rm := &appsv1.KsctlRemove{Spec: appsv1.KsctlRemoveSpec{ApprovedDigest: tc.approved},
				Status: appsv1.KsctlRemoveStatus{Removal: &appsv1.Removal{Count: 3, Digest: "digest"}, Removed: tc.removed}}
			o := &owner{inv: engine.NewInventory(nil, nil), req: &reconcile.Request[*appsv1.KsctlRemove]{Object: rm}}
			o.replace([]appsv1.InventoryEntry{{ID: "ns_a__ConfigMap"}})
			out, ok := o.unapproved().(reconcile.Stalled)
			if !ok || out.Reason != AwaitingApprovalReason || !strings.HasPrefix(out.Err.Error(), tc.want) {
				t.Errorf("%+v", out)
			}
			if said := strings.Contains(out.Err.Error(), "nothing is deleted yet"); said != (tc.removed == nil) {
				t.Errorf("%v", out.Err)
			}
		})
	}
}
