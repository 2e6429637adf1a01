package bysource

import (
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
)

func TestApprovalOutcome(t *testing.T) {
	for name, tc := range map[string]struct {
		approved string
		removed  *int32
		want     string
	}{
		"not started": {want: "3 objects would be removed (status.removal); " +
			"nothing is deleted yet: review the objects, then set spec.approvedDigest: digest"},
		"other digest": {approved: "other",
			want: "spec.approvedDigest other does not match the objects that were found; 3 objects would be removed"},
		"withdrawn": {removed: ptr.To[int32](2),
			want: "the removal was interrupted: 2 of 3 objects were removed, 1 more would be removed: to continue, " +
				"set spec.approvedDigest: digest"},
		"changed during removal": {approved: "other", removed: ptr.To[int32](2),
			want: "spec.approvedDigest other does not match the objects that were found; " +
				"the removal was interrupted: 2 of 3"},
		"withdrawn at the start": {removed: ptr.To[int32](0),
			want: "the removal was interrupted: 0 of 3 objects were removed"},
	} {
		t.Run(name, func(t *testing.T) {
			rm := &appsv1.KsctlRemove{Spec: appsv1.KsctlRemoveSpec{ApprovedDigest: tc.approved},
				Status: appsv1.KsctlRemoveStatus{Removal: &appsv1.Removal{Count: 3, Digest: "digest"},
					Removed: tc.removed}}
			o := &owner{inv: plan.NewInventory(nil, nil), req: &reconcile.Request[*appsv1.KsctlRemove]{Object: rm}}
			o.setEntries([]appsv1.InventoryEntry{{ID: "ns_a__ConfigMap"}})
			out, ok := o.approvalOutcome().(reconcile.Stalled)
			if !ok || out.Reason != appsv1.AwaitingApprovalReason || !strings.HasPrefix(out.Err.Error(), tc.want) {
				t.Errorf("%+v", out)
			}
			if pending := strings.Contains(out.Err.Error(), "nothing is deleted yet"); pending != (tc.removed == nil) {
				t.Errorf("%v", out.Err)
			}
		})
	}
}
