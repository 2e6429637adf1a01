package engine

import (
	"slices"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
)

func TestWaitReferences(t *testing.T) {
	self := appsv1.WaitReference{Type: appsv1.WaitResponse, Kind: me.Kind, Namespace: me.Namespace, Name: me.Name}
	toOther := func(wait appsv1.WaitType) appsv1.WaitReference {
		return appsv1.WaitReference{Type: wait, Kind: other.Kind, Namespace: other.Namespace, Name: other.Name,
			Object: ref("a").String()}
	}
	object := func(wait appsv1.WaitType) appsv1.WaitReference {
		return appsv1.WaitReference{Type: wait, Kind: "ConfigMap", Namespace: "ns", Name: "a"}
	}
	for name, tc := range map[string]struct {
		wait plan.Action
		want appsv1.WaitReference
	}{
		"a plan": {plan.Action{Reason: plan.ReasonHandoverPending, HandoverTo: &other},
			toOther(appsv1.WaitPruning)},
		"a successor": {plan.Action{Reason: plan.ReasonSuccessorPending, HandoverTo: &other},
			toOther(appsv1.WaitTakeOver)},
		"a deletion":     {plan.Action{Reason: plan.ReasonBeingDeleted}, object(appsv1.WaitDeletion)},
		"an approval":    {plan.Action{Reason: plan.ReasonApprovalRequired}, object(appsv1.WaitApproval)},
		"a former owner": {plan.Action{Reason: plan.ReasonAwaitsFormerOwner}, object(appsv1.WaitResponse)},
		"a workload":     {plan.Action{Reason: plan.ReasonAwaitsWorkloads}, object(appsv1.WaitOrder)},
		"anything else":  {plan.Action{Reason: plan.ReasonIndexNotSynced}, object(appsv1.WaitResponse)},
		"a namespace": {plan.Action{Reason: plan.ReasonNamespaceDeleted},
			appsv1.WaitReference{Type: appsv1.WaitDeletion, Kind: "Namespace", Name: "ns"}},
		"what is not sent": {plan.Action{Reason: plan.ReasonBlocked},
			appsv1.WaitReference{Type: appsv1.WaitNotApplied, Kind: me.Kind, Namespace: me.Namespace, Name: me.Name}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.wait.Entry.ID = ref("a").ID()
			// Twice, to see that no reference is repeated.
			rep := &Report{Plan: plan.Plan{Waits: []plan.Action{tc.wait, tc.wait}}}
			if got := WaitReferences(me, rep); !slices.Equal(got, []appsv1.WaitReference{tc.want}) {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
	if got := WaitReferences(me, &Report{}); !slices.Equal(got, []appsv1.WaitReference{self}) {
		t.Errorf("for an event: %+v", got)
	}
}
