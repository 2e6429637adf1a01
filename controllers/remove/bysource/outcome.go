package bysource

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
)

// UnapprovedError says what waits for approval.
type UnapprovedError struct {
	Removal *appsv1.Removal
	// Approved is what the spec approves instead.
	Approved string
	// Left is how many objects stay.
	Left int
	// Begun is true when an approval was there and was taken back: Removed objects are
	// gone, Rest are not.
	Begun         bool
	Removed, Rest int
}

func (e *UnapprovedError) Error() string {
	left := ""
	if e.Left > 0 {
		left = fmt.Sprintf(", %d are left (status.remaining)", e.Left)
	}
	was := ""
	if e.Approved != "" {
		was = fmt.Sprintf("spec.approvedDigest %s is that of another set; ", e.Approved)
	}
	if e.Begun {
		return fmt.Sprintf("%sthe removal was begun: %d of %d objects are gone, %d more would be removed%s, and wait for the approval: to go on, commit spec.approvedDigest: %s",
			was, e.Removed, e.Removal.Count, e.Rest, left, e.Removal.Digest)
	}
	return fmt.Sprintf("%s%d objects would be removed (status.removal)%s, and nothing is deleted yet: look at them, then commit spec.approvedDigest: %s",
		was, e.Removal.Count, left, e.Removal.Digest)
}

// unapproved is the outcome while what is frozen is not, or no longer, approved.
func (o *owner) unapproved() reconcile.Outcome {
	rm := o.req.Object
	return reconcile.Stalled{Reason: AwaitingApprovalReason, Revision: rm.Status.LastAttemptedRevision,
		Err: &UnapprovedError{Removal: rm.Status.Removal, Approved: rm.Spec.ApprovedDigest, Left: len(rm.Status.Remaining),
			Begun: o.begun(), Removed: int(ptr.Deref(rm.Status.Removed, 0)), Rest: o.inv.Len()}}
}

// done says that nothing of what was found is there any more.
func done(rm *appsv1.KsctlRemove) reconcile.Outcome {
	st := &rm.Status
	message := "nothing that counts was found of the stack " + rm.Spec.Stack
	if st.Removal.Count > 0 {
		message = fmt.Sprintf("%d objects of the stack %s were removed and seen to be gone", ptr.Deref(st.Removed, 0), rm.Spec.Stack)
	}
	if n := len(st.Remaining); n > 0 {
		message += fmt.Sprintf("; %d are left (status.remaining)", n)
	}
	return reconcile.Done{Message: message, Reason: RemovedReason, Revision: st.LastAttemptedRevision}
}

// waiting says what a removal waits for, and since when too long.
func (s *Steps) waiting(o *owner, rep *engine.Report) reconcile.Outcome {
	rm := o.req.Object
	out := reconcile.Waiting{Reason: reconcile.RemovingReason, Until: rep.RetryAt, Revision: rm.Status.LastAttemptedRevision,
		On: fmt.Sprintf("%d of %d objects are left to remove", o.inv.Len(), rm.Status.Removal.Count)}
	if what := on(rep); what != "" {
		out.On += ": " + what
	}
	timeout := reconcile.Timeout(&rm.Spec.Schedule)
	late := rm.Status.Removal.MadeAt.Add(timeout)
	switch {
	case !s.Clock.Now().Before(late):
		out.Late, out.Reason = true, reconcile.TimeoutReason
		out.On = fmt.Sprintf("not gone within %s: %s", timeout, out.On)
	case out.Until.IsZero() || late.Before(out.Until):
		out.Until = late
	}
	return out
}

// on is what holds a removal, in words.
func on(rep *engine.Report) string {
	var on []string
	for _, w := range rep.Plan.Waits {
		if w.Message != "" {
			on = append(on, w.Message)
		}
	}
	for _, err := range rep.Errors {
		if m := err.Error(); !slices.Contains(on, m) {
			on = append(on, m)
		}
	}
	return list(on)
}

// told writes down what was left after all, and says it in an event.
func (o *owner) told(changes []engine.Change) {
	st := &o.req.Object.Status
	var named []string
	for _, c := range changes {
		if c.Verb != engine.Drop && c.Verb != engine.Release {
			continue
		}
		named = append(named, c.Ref.String()+" ("+c.Note+")")
		id := c.Ref.ID()
		st.Remaining = slices.DeleteFunc(st.Remaining, func(x appsv1.RemovalObject) bool { return x.ID == id })
		// Ahead of the others: they are counted.
		st.Remaining = slices.Insert(st.Remaining, 0, shown([]appsv1.RemovalObject{{ID: id, Reason: leftAlone, Message: c.Note}})...)
		st.Remaining = st.Remaining[:min(maxShown, len(st.Remaining))]
	}
	if len(named) > 0 {
		o.req.Event(corev1.EventTypeWarning, "Left", list(named))
	}
}

// count brings how far the removal came into the status.
func (o *owner) count(rep *engine.Report) {
	st := &o.req.Object.Status
	stayed := 0
	for _, x := range st.Remaining {
		if x.Reason == leftAlone {
			stayed++
		}
	}
	st.Removed = ptr.To(max(0, st.Removal.Count-int32(o.inv.Len()+stayed)))
	st.Left = ptr.To(int32(o.inv.Len() + len(st.Remaining)))
	if rep == nil {
		return
	}
	st.Removal.Blockers = nil
	var held []appsv1.RemovalObject
	for i := range rep.Plan.Waits {
		if w := &rep.Plan.Waits[i]; w.Message != "" {
			held = append(held, appsv1.RemovalObject{ID: w.Entry.ID, Reason: waits, Message: w.Message})
		}
	}
	st.Removal.Blockers = shown(held)
}

// abandon lets everything go that was marked, as the annotation says, and records it.
func (s *Steps) abandon(ctx context.Context, o *owner) {
	var left []string
	for _, e := range o.inv.Entries() {
		name := e.ID
		if ref, err := stacks.ParseID(e.ID); err == nil {
			name = ref.String()
		}
		left = append(left, name)
	}
	log.FromContext(ctx).Info("abandoned: left behind as they are", "objects", left)
	o.req.Event(corev1.EventTypeWarning, "Abandoned", fmt.Sprintf("%d objects are left behind as they are: %s", len(left), list(left)))
}

// maxNamed is how many objects a message names before it counts.
const maxNamed = 5

func list(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:maxNamed], ", ") + fmt.Sprintf(" and %d more", len(names)-maxNamed)
}
