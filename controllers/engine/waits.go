package engine

import (
	"slices"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/stacks"
)

// waitTypes has the type of a wait by the reason of the planned action. Actions that wait for their
// own object are not there.
var waitTypes = map[plan.Reason]appsv1.WaitType{
	plan.ReasonNotServed: appsv1.WaitKindNotServed, plan.ReasonBlocked: appsv1.WaitOrder, plan.ReasonBeingDeleted: appsv1.WaitDeletion,
	plan.ReasonPreRemove: appsv1.WaitOrder, plan.ReasonProtected: appsv1.WaitApproval, plan.ReasonApprovalRequired: appsv1.WaitApproval,
	plan.ReasonIndexNotSynced: appsv1.WaitResponse, plan.ReasonUnconfirmed: appsv1.WaitResponse, plan.ReasonBackingOff: appsv1.WaitResponse,
	plan.ReasonOwnedByOther: appsv1.WaitApproval, plan.ReasonInvalid: appsv1.WaitApproval,
}

// WaitReferences returns what an owner waits for after a pass, without duplicates: at least the owner
// itself.
func WaitReferences(owner plan.OwnerKey, rep *Report) []appsv1.WaitReference {
	var out []appsv1.WaitReference
	add := func(w appsv1.WaitReference) {
		if !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	self := appsv1.WaitReference{Kind: owner.Kind, Namespace: owner.Namespace, Name: owner.Name}
	for i := range rep.Plan.Waits {
		w := &rep.Plan.Waits[i]
		ref := w.Ref()
		switch {
		case w.Reason == plan.ReasonHandoverPending && w.HandoverTo != nil:
			add(appsv1.WaitReference{Type: appsv1.WaitPruning, Kind: w.HandoverTo.Kind, Namespace: w.HandoverTo.Namespace, Name: w.HandoverTo.Name, Object: ref.String()})
		case w.Reason == plan.ReasonBlocked && w.Item == nil:
			notApplied := self
			notApplied.Type = appsv1.WaitNotApplied
			add(notApplied)
		case w.Reason == plan.ReasonNotServed:
			add(appsv1.WaitReference{Type: appsv1.WaitKindNotServed, Kind: "CustomResourceDefinition", Name: ref.GroupKind().String(), Object: ref.String()})
		default:
			add(objectWait(waitTypes[w.Reason], ref))
		}
	}
	for i := range rep.Plan.Components {
		for _, ref := range rep.Plan.Components[i].NotReady {
			add(objectWait(appsv1.WaitReadiness, ref))
		}
	}
	if len(out) == 0 {
		self.Type = appsv1.WaitResponse // for an event of what it applied or deleted
		add(self)
	}
	return out
}

func objectWait(t appsv1.WaitType, ref stacks.Ref) appsv1.WaitReference {
	return appsv1.WaitReference{Type: t, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
}
