package plan

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
)

// jobSuffix ends the ids of Jobs, see stacks.Ref.
const jobSuffix = "_batch_Job"

// planResults plans to record the results of the Jobs that have ended, desired or not. The
// annotation on the Job also records that its result was read, so that this is done once.
func planResults(in *Snapshot, p *Plan) {
	for id, e := range in.Inventory.All() {
		if !strings.HasSuffix(id, jobSuffix) || e.State == appsv1.EntryIntended || in.Collected[id] {
			continue
		}
		l := in.Objects[id]
		if l == nil || !l.Finished || l.ResultRecorded || l.Mark.Owner != in.Owner.String() || l.UID != e.UID ||
			in.isDeleting(id, l) || p.acts(id) || p.removes(id) {
			continue
		}
		p.Results = append(p.Results, Action{Verb: VerbCollect, Reason: ReasonFinished, Entry: e, Live: l})
	}
	slices.SortFunc(p.Results, func(a, b Action) int { return byID(a.Entry, b.Entry) })
}

// removes reports whether the plan removes an object.
func (p *Plan) removes(id string) bool {
	return slices.ContainsFunc(p.Removals, func(a Action) bool { return a.Entry.ID == id })
}

// maxFailureBytes bounds the message of a failed Job in that of its component.
const maxFailureBytes = 1 << 10

// describeFailure sets the message of a Job that failed to that of its result.
func describeFailure(in *Snapshot, a *Action, st *ComponentState) {
	l := a.Live
	if a.Verb != VerbSkip || l == nil || l.Readiness != live.Failed || a.Item.GroupKind() != jobKind ||
		a.Item.ignoresHealth() {
		return
	}
	message := l.ResultMessage()
	if message == "" {
		return
	}
	if in.Policies.Redact != nil {
		message = in.Policies.Redact(message) // before it is cut
	}
	if len(message) > maxFailureBytes {
		message = strings.ToValidUTF8(message[:maxFailureBytes-len("…")], "") + "…"
	}
	a.Message, st.JobFailed = fmt.Sprintf("%s failed: %s", a.Item.Ref, message), true
}
