package engine

import (
	"cmp"
	"slices"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/stacks"
)

// waitTypes has the type of a wait by the reason of the planned action; WaitResponse for others.
var waitTypes = map[plan.Reason]appsv1.WaitType{
	plan.ReasonNotServed: appsv1.WaitKindNotServed, plan.ReasonBlocked: appsv1.WaitOrder,
	plan.ReasonBeingDeleted: appsv1.WaitDeletion, plan.ReasonAwaitsWorkloads: appsv1.WaitOrder,
	plan.ReasonPreRemove: appsv1.WaitOrder, plan.ReasonProtected: appsv1.WaitApproval,
	plan.ReasonApprovalRequired: appsv1.WaitApproval,
	plan.ReasonOwnedByOther:     appsv1.WaitApproval, plan.ReasonInvalid: appsv1.WaitApproval,
	plan.ReasonHandoverPending: appsv1.WaitPruning, plan.ReasonSuccessorPending: appsv1.WaitTakeOver,
	plan.ReasonInUse: appsv1.WaitPruning, plan.ReasonAbsent: appsv1.WaitDependsOn,
}

// maxWaits is the maximum number of waits for own objects that WaitReferences returns.
const maxWaits = 10

// WaitReferences returns what an owner waits for after a pass, without duplicates: first the other
// owners, of which each is there once, and at least the owner itself.
func WaitReferences(owner plan.OwnerKey, rep *Report) []appsv1.WaitReference {
	var out []appsv1.WaitReference
	self := appsv1.WaitReference{Kind: owner.Kind, Namespace: owner.Namespace, Name: owner.Name}
	others := map[plan.OwnerKey]bool{}
	for i := range rep.Plan.Waits {
		w := &rep.Plan.Waits[i]
		if to := w.HandoverTo; w.AwaitsOwner() && to != nil && !others[*to] {
			others[*to] = true
			out = append(out, appsv1.WaitReference{Type: waitTypes[w.Reason], Kind: to.Kind, Namespace: to.Namespace,
				Name: to.Name, Object: w.Ref().String()})
		}
	}
	add := func(w appsv1.WaitReference) {
		if len(out) < maxWaits && !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	for i := range rep.Plan.Components {
		for _, ref := range rep.Plan.Components[i].NotReady {
			add(objectWait(appsv1.WaitReadiness, ref))
		}
	}
	for i := range rep.Plan.Waits {
		if len(out) >= maxWaits {
			break
		}
		w := &rep.Plan.Waits[i]
		switch ref := w.Ref(); {
		case w.AwaitsOwner():
		case w.Reason == plan.ReasonBlocked && w.Item == nil:
			notApplied := self
			notApplied.Type = appsv1.WaitNotApplied
			add(notApplied)
		case w.Reason == plan.ReasonNotServed:
			add(appsv1.WaitReference{Type: appsv1.WaitKindNotServed, Kind: "CustomResourceDefinition",
				Name: ref.GroupKind().String(), Object: ref.String()})
		case w.Reason == plan.ReasonNamespaceDeleted:
			add(appsv1.WaitReference{Type: appsv1.WaitDeletion, Kind: "Namespace", Name: ref.Namespace})
		default:
			add(objectWait(cmp.Or(waitTypes[w.Reason], appsv1.WaitResponse), ref))
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
