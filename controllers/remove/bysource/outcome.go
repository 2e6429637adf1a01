package bysource

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
)

// approvalOutcome returns the outcome while the rehearsal is not approved, or no longer approved.
func (o *owner) approvalOutcome() reconcile.Outcome {
	rm := o.req.Object
	removal, left, prefix := rm.Status.Removal, "", ""
	if n := len(rm.Status.Remaining); n > 0 {
		left = fmt.Sprintf(", %d are left (status.remaining)", n)
	}
	if approved := rm.Spec.ApprovedDigest; approved != "" {
		prefix = fmt.Sprintf("spec.approvedDigest %s does not match the objects that were found; ", approved)
	}
	err := fmt.Errorf("%s%d objects would be removed (status.removal)%s; nothing is deleted yet: review the objects, "+
		"then set spec.approvedDigest: %s",
		prefix, removal.Count, left, removal.Digest)
	if o.started() { // the approval was withdrawn
		err = fmt.Errorf("%sthe removal was interrupted: %d of %d objects were removed, %d more would be removed%s: "+
			"to continue, set spec.approvedDigest: %s",
			prefix, ptr.Deref(rm.Status.Removed, 0), removal.Count, o.inv.Len(), left, removal.Digest)
	}
	return reconcile.Stalled{Reason: appsv1.AwaitingApprovalReason, Revision: rm.Status.LastAttemptedRevision, Err: err}
}

// doneOutcome returns the outcome when all objects of the rehearsal are removed.
func doneOutcome(rm *appsv1.KsctlRemove) reconcile.Outcome {
	st := &rm.Status
	message := "no matching objects of the stack " + rm.Spec.Stack + " were found"
	if st.Removal.Count > 0 {
		message = fmt.Sprintf("%d objects of the stack %s were removed", ptr.Deref(st.Removed, 0), rm.Spec.Stack)
	}
	if n := len(st.Remaining); n > 0 {
		message += fmt.Sprintf("; %d are left (status.remaining)", n)
	}
	return reconcile.Done{Message: message, Reason: appsv1.RemovedReason, Revision: st.LastAttemptedRevision}
}

// waitingOutcome returns the outcome of a removal in progress, and whether it exceeds the timeout.
func (s *Steps) waitingOutcome(o *owner, rep *engine.Report) reconcile.Outcome {
	rm := o.req.Object
	out := reconcile.Waiting{Reason: appsv1.RemovingReason, For: engine.WaitReferences(o.key, rep),
		RequeueAt: rep.RetryAt, Revision: rm.Status.LastAttemptedRevision,
		On: fmt.Sprintf("%d of %d objects are left to remove", o.inv.Len(), rm.Status.Removal.Count)}
	if message := waitMessage(rep); message != "" {
		out.On += ": " + message
	}
	timeout := reconcile.Timeout(&rm.Spec.Schedule)
	deadline := rm.Status.Removal.MadeAt.Add(timeout)
	if s.Clock.Now().Before(deadline) {
		return reconcile.RequeueBy(out, deadline)
	}
	out.TimedOut, out.Reason = true, appsv1.TimeoutReason
	out.On = fmt.Sprintf("not removed within %s: %s", timeout, out.On)
	return out
}

// waitMessage returns a message about everything that the removal waits for.
func waitMessage(rep *engine.Report) string {
	var messages []string
	for _, w := range rep.Plan.Waits {
		if w.Message != "" {
			messages = append(messages, w.Message)
		}
	}
	for _, err := range rep.Errors {
		if m := err.Error(); !slices.Contains(messages, m) {
			messages = append(messages, m)
		}
	}
	return reconcile.JoinNames(messages)
}

// recordReleased adds objects that were released instead of removed to the status, and emits an
// event.
func (o *owner) recordReleased(changes []engine.Change) {
	st := &o.req.Object.Status
	var names []string
	for _, c := range changes {
		if c.Verb != plan.VerbDrop && c.Verb != plan.VerbRelease {
			continue
		}
		names = append(names, c.Ref.String()+" ("+c.Message+")")
		id := c.Ref.ID()
		st.Remaining = slices.DeleteFunc(st.Remaining, func(x appsv1.RemovalObject) bool { return x.ID == id })
		// Insert first, so that the limit of the list does not cut off objects that updateProgress
		// counts.
		st.Remaining = slices.Insert(st.Remaining, 0,
			firstObjects([]appsv1.RemovalObject{{ID: id, Reason: reasonReleased, Message: c.Message}})...)
		st.Remaining = st.Remaining[:min(maxListed, len(st.Remaining))]
	}
	if len(names) > 0 {
		o.req.Event(corev1.EventTypeWarning, "Released", reconcile.JoinNames(names))
	}
}

// updateProgress sets the progress of the removal in the status.
func (o *owner) updateProgress(rep *engine.Report) {
	st := &o.req.Object.Status
	released := 0
	for _, x := range st.Remaining {
		if x.Reason == reasonReleased {
			released++
		}
	}
	st.Removed = ptr.To(max(0, st.Removal.Count-int32(o.inv.Len()+released)))
	st.Left = ptr.To(int32(o.inv.Len() + len(st.Remaining)))
	if rep == nil {
		return
	}
	var blockers []appsv1.RemovalObject
	for _, w := range rep.Plan.Waits {
		if w.Message != "" {
			blockers = append(blockers, appsv1.RemovalObject{ID: w.Entry.ID, Reason: reasonWaiting, Message: w.Message})
		}
	}
	st.Removal.Blockers = firstObjects(blockers)
}

// abandon emits an event and a log message about the marked objects that stay because of the
// annotation.
func (s *Steps) abandon(ctx context.Context, o *owner) {
	var names []string
	for _, e := range o.inv.Entries() {
		name := e.ID
		if ref, err := stacks.ParseID(e.ID); err == nil {
			name = ref.String()
		}
		names = append(names, name)
	}
	log.FromContext(ctx).Info("abandoned objects are not changed", "objects", names)
	o.req.Event(corev1.EventTypeWarning, "Abandoned",
		fmt.Sprintf("%d objects are not changed: %s", len(names), reconcile.JoinNames(names)))
}
