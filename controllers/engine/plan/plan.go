package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// Verb is the operation of an action.
type Verb string

// Verbs of actions. A skip does nothing, a drop removes only the inventory entry, a release removes
// our label and marks from the object, too. A wait and a refusal do nothing now.
const (
	VerbCreate  Verb = "create"
	VerbUpdate  Verb = "update"
	VerbSkip    Verb = "skip"
	VerbDelete  Verb = "delete"
	VerbRelease Verb = "release"
	VerbDrop    Verb = "drop"
	// VerbHandOver gives an object to the owner that desires it now.
	VerbHandOver Verb = "hand over"
	VerbWait     Verb = "wait"
	VerbRefuse   Verb = "refuse"
	// VerbWithdraw takes a contribution back from the object of another owner.
	VerbWithdraw Verb = "withdraw"
	// VerbRun resumes a suspended Job.
	VerbRun Verb = "run"
	// VerbRecord records an observation in the inventory, without a request.
	VerbRecord Verb = "record"
	// VerbCollect records the result of a Job in its annotation.
	VerbCollect Verb = "collect"
)

// Reason is the reason of an action. Its values are stored in the status of removals.
type Reason string

// Reasons of actions.
const (
	// ReasonNew: the object has not been created yet.
	ReasonNew Reason = "New"
	// ReasonChanged: the desired content differs from the applied content.
	ReasonChanged Reason = "Changed"
	// ReasonReclaimed: the object has the owner's mark, but the inventory does not list it, or has
	// another uid.
	ReasonReclaimed Reason = "Taken"
	// ReasonMissing: an applied object does not exist.
	ReasonMissing Reason = "Missing"
	// ReasonDrifted: the fields of an applied object were changed.
	ReasonDrifted   Reason = "Drifted"
	ReasonUnchanged Reason = "Unchanged"
	// ReasonFinished: a hook or a Job is complete.
	ReasonFinished Reason = "Finished"
	// ReasonNotServed: the cluster does not serve the kind yet.
	ReasonNotServed Reason = "NotServed"
	// ReasonInvalid: the manifest or the id of the entry is invalid.
	ReasonInvalid Reason = "Invalid"
	// ReasonOwnedByOther: another owner or tool manages the object.
	ReasonOwnedByOther Reason = "Owned"
	// ReasonShared: another owner has the CustomResourceDefinition, and it serves what is desired.
	ReasonShared Reason = "Shared"
	// ReasonExisted: the object is only created when it is missing, and existed before.
	ReasonExisted Reason = "Existed"
	// ReasonAwaitsFormerOwner: the CustomResourceDefinition of another owner was deleted, and that
	// owner creates it again.
	ReasonAwaitsFormerOwner Reason = "AwaitsFormerOwner"
	// ReasonInUse: another owner uses the CustomResourceDefinition, and cannot receive it.
	ReasonInUse Reason = "InUse"
	// ReasonBackingOff: an earlier write failed, and its retry is not due.
	ReasonBackingOff Reason = "Held"
	// ReasonBlocked: an earlier step, a component or a dependency is not ready.
	ReasonBlocked Reason = "Gated"
	// ReasonAwaitsWorkloads: a workload that answers a new webhook configuration is not ready.
	ReasonAwaitsWorkloads Reason = "AwaitsWorkloads"
	// ReasonBeingDeleted: the deletion of the object is in progress.
	ReasonBeingDeleted Reason = "Leaving"
	// ReasonNamespaceDeleted: the object is deleted with its namespace.
	ReasonNamespaceDeleted Reason = "NamespaceDeleted"
	// ReasonRemoved: the object is no longer desired.
	ReasonRemoved Reason = "Removed"
	// ReasonReplaced: the object left a component with Retain, and another one replaces it.
	ReasonReplaced Reason = "Replaced"
	// ReasonUnconfirmed: the index cannot tell the state of the object; a GET has to confirm it.
	ReasonUnconfirmed Reason = "Unsure"
	// ReasonIndexNotSynced: the index may not know all objects of the kind.
	ReasonIndexNotSynced Reason = "Unsynced"
	// ReasonMoved: the object belongs to another component, wave or owner now.
	ReasonMoved Reason = "Moved"
	// ReasonKept: a policy or a request keeps the object.
	ReasonKept Reason = "Kept"
	// ReasonProtected: an annotation forbids the deletion of the object.
	ReasonProtected Reason = "Protected"
	// ReasonApprovalRequired: more objects would be deleted than are allowed at once.
	ReasonApprovalRequired Reason = "Guarded"
	// ReasonHandoverPending: it is not known yet if another owner desires the object.
	ReasonHandoverPending Reason = "Claimable"
	// ReasonSuccessorPending: as ReasonHandoverPending, for an owner that takes over from this one.
	ReasonSuccessorPending Reason = "SuccessorPending"
	// ReasonPreRemove: a Job has to run before a removal.
	ReasonPreRemove Reason = "PreRemove"
	// ReasonRunsAgain: a hook that has succeeded has to run with other content, or at another time.
	ReasonRunsAgain Reason = "RunsAgain"
	// ReasonAbsent: the object that the owner contributes to does not exist.
	ReasonAbsent Reason = "Absent"
	// ReasonRemovalCanceled: a Job ran before a removal that was then canceled.
	ReasonRemovalCanceled Reason = "Spent"
)

// Action is an operation on one object.
type Action struct {
	Verb   Verb
	Reason Reason
	// Item is the desired object; nil for the removal of an object.
	Item *Item
	// Entry is the entry of the inventory; its ID is always set.
	Entry appsv1.InventoryEntry
	// Live is the object as the index knows it; nil when the index does not know it.
	Live *live.Object
	// Message is for users: the reason of a wait, a refusal or a release.
	Message string
	// Err is the typed reason of a wait or a refusal.
	Err error
	// HandoverTo is the new owner of an object that is handed over, or the possible one of an
	// object that waits for it.
	HandoverTo *OwnerKey
}

// AwaitsOwner reports whether it is not known yet if another owner desires the object.
func (a *Action) AwaitsOwner() bool {
	return a.Reason == ReasonHandoverPending || a.Reason == ReasonSuccessorPending || a.Reason == ReasonInUse
}

// Ref returns the object of the action.
func (a *Action) Ref() stacks.Ref {
	if a.Item != nil {
		return a.Item.Ref
	}
	ref, err := stacks.ParseID(a.Entry.ID)
	if err != nil {
		return stacks.Ref{Name: a.Entry.ID}
	}
	return ref
}

// ComponentState is the state of one component.
type ComponentState struct {
	Name, Version string
	Wave          int32
	Objects       int
	// Applied is true when the desired content of every object has been applied, except for webhook
	// configurations that wait for their workloads: these may become ready only after a removal.
	Applied bool
	// AwaitsWorkloads is true when such a webhook configuration is there.
	AwaitsWorkloads bool
	// Ready is true when the component is applied and every object is ready.
	Ready bool
	// Failed is true when an object cannot be applied without a change or a retry.
	Failed bool
	// Blocked is true when an object is not sent because of a dependency outside the stack.
	Blocked bool
	// Unhealthy is true when the status of an applied object reports a failure.
	Unhealthy bool
	// JobFailed is true when a Job failed, and its result has a message. Unhealthy is true, too.
	JobFailed bool
	// Released is true when everything is applied, and all hooks are done.
	Released bool
	Message  string
	// NotReady are the first objects that are applied and not ready.
	NotReady []stacks.Ref
	// Drifted are objects that have drifted and that the drift mode does not correct.
	Drifted []string
}

// Plan lists the actions of an owner that are possible now, and those that have to wait.
type Plan struct {
	// Intents are inventory entries to persist before the first action.
	Intents []appsv1.InventoryEntry
	// Actions are possible now. They are executed in this order.
	Actions []Action
	// Removals are possible now. They are executed after the actions.
	Removals []Action
	// Waits are the actions that are not possible yet, with the reason.
	Waits []Action
	// Results are the Jobs that have ended, and whose result is to be recorded.
	Results []Action
	// Left are the objects that stay although they are not desired, see HandoverDecision.Leave.
	Left []Action
	// Shared are the CustomResourceDefinitions of other owners that the components use.
	Shared []Action
	// Components are the states of the components, in their order.
	Components []ComponentState
	// Tests are the states of the components that are tests.
	Tests []ComponentState
	// DeleteAfter is the time after which a hook has to be deleted; 0: there is none.
	DeleteAfter time.Duration
	// Settled is true when everything is applied, and no removal waits for an approval or a
	// handover decision: the current objects are then the base for the delete limits of the next
	// change.
	Settled bool
}

// Idle is true when no action is possible now.
func (p *Plan) Idle() bool {
	return len(p.Intents) == 0 && len(p.Actions) == 0 && len(p.Removals) == 0 && len(p.Results) == 0
}

// Ready is true when every component is ready and nothing is left to remove.
func (p *Plan) Ready() bool {
	return len(p.Removals) == 0 && len(p.Waits) == 0 &&
		!slices.ContainsFunc(p.Components, func(c ComponentState) bool { return !c.Ready })
}

// Reconcile plans the actions that are possible now to reach the desired state. It is a pure
// function.
func Reconcile(in *Snapshot) Plan {
	var p Plan
	desired := desiredIDs(in)
	released, undesired := splitReleased(&in.Policies, undesiredEntries(in.Inventory, desired))
	requested, undesired := splitRequested(&in.Policies, undesired)
	retained := planRetained(in, undesired)
	undesired = retained.others
	applied, awaitsWorkloads := planComponents(in, retained.stopping, &p)
	planOrderedRemovals(in, released, &p)
	q := planRequested(withoutHandoverWait(in), requested)
	p.Removals, p.Waits = append(p.Removals, q.Removals...), append(p.Waits, q.Waits...)
	// Objects are handed over at once: the components may wait for an object of the new owner.
	remaining := planHandovers(in, undesired, &p)
	switch {
	case applied:
		removable := approvedRemovals(in, remaining, desired, &p)
		p.Settled = len(removable) == len(undesired) && !awaitsWorkloads
		if in.Policies.Prune {
			planRemovals(in, removable, &p)
		} else {
			planReleases(in, removable, notPruned, &p)
		}
	case len(remaining) > 0:
		p.Waits = append(p.Waits, Action{Verb: VerbWait, Reason: ReasonBlocked, Entry: remaining[0],
			Message: removedLater(len(remaining))})
	}
	p.Intents = append(p.Intents, retained.plan.Intents...)
	p.Removals, p.Waits = append(p.Removals, retained.plan.Removals...), append(p.Waits, retained.plan.Waits...)
	p.Left = append(p.Left, retained.plan.Left...)
	planResults(in, &p)
	return p
}

func desiredIDs(in *Snapshot) map[string]bool {
	desired := make(map[string]bool, in.Inventory.Len())
	for i := range in.Components {
		for j := range in.Components[i].Items {
			if id := in.Components[i].Items[j].ID; in.Policies.Released[id] == "" {
				desired[id] = true
			}
		}
	}
	return desired
}

// planComponents plans all components. stopping has the Job that has to be gone before another one
// of the same component starts, by component. It returns true if everything is applied, and if a
// new webhook configuration waits.
func planComponents(in *Snapshot, stopping map[string]string, p *Plan) (applied, awaitsWorkloads bool) {
	ready := map[string]bool{}
	applied = true
	for i := range in.Components {
		c := &in.Components[i]
		unready := slices.DeleteFunc(slices.Clone(c.DependsOn), func(d string) bool { return ready[d] })
		if c.Test {
			planTest(in, c, unready, p)
			continue
		}
		st := planComponent(in, c, blockers{components: unready, job: stopping[c.Name]}, p)
		ready[c.Name] = st.Ready
		applied = applied && st.Applied
		awaitsWorkloads = awaitsWorkloads || st.AwaitsWorkloads
		p.Components = append(p.Components, st)
	}
	return applied, awaitsWorkloads
}

// blockers is what a component waits for.
type blockers struct {
	// components are the dependencies in the stack that are not ready.
	components []string
	// job is the Job that has to be gone before one of the component starts; empty if none.
	job string
}

// planTest plans a component that is a test. Its waits are only in its state.
func planTest(in *Snapshot, c *Component, unready []string, p *Plan) {
	var q Plan
	p.Tests = append(p.Tests, planComponent(in, c, blockers{components: unready}, &q))
	p.Intents, p.Actions = append(p.Intents, q.Intents...), append(p.Actions, q.Actions...)
	if q.DeleteAfter > 0 {
		p.deleteAfter(q.DeleteAfter)
	}
}

func removedLater(objects int) string {
	if objects == 1 {
		return "1 object is removed after everything else is applied"
	}
	return fmt.Sprintf("%d objects are removed after everything else is applied", objects)
}

// planComponent plans the actions for the objects of one component. A step starts when the steps
// before it are ready.
func planComponent(in *Snapshot, c *Component, on blockers, p *Plan) ComponentState {
	st := ComponentState{Name: c.Name, Version: c.Version, Wave: c.Wave, Applied: true, Ready: true, Released: true}
	items := c.visits()
	open := openPhasesOf(in, items)
	var message componentMessage
	if len(on.components) > 0 {
		message.addWait("waits for component " + strings.Join(on.components, ", "))
	}
	blocked := len(c.BlockedOn) > 0
	mayApply, step := len(on.components) == 0, 0
	for i := range c.Items {
		if h := c.Items[i].Hook; h == nil || h.Phase != stacks.HookInactive {
			st.Objects++
		}
	}
	for _, it := range items {
		if it.Step != step {
			mayApply, step = mayApply && st.Ready, it.Step
		}
		if it.Settled || open.releases(it) {
			planSettled(in, it, p)
			continue
		}
		planEntry(in, it, p)
		a, ready := decideItem(in, it)
		if a.Verb == VerbSkip && a.Entry.RetainedAt != nil {
			a.Verb, a.Reason = VerbRecord, ReasonMoved // it is desired again
		}
		if (!mayApply || blocked) && (a.Verb == VerbCreate || a.Verb == VerbUpdate) && !restoresApplied(&a) {
			st.Blocked = st.Blocked || blocked
			a = Action{Verb: VerbWait, Reason: ReasonBlocked, Item: it, Entry: a.Entry, Live: a.Live}
		}
		describeFailure(in, &a, &st)
		on.stopJob(&a)
		planRun(&a, &st, p)
		if why := awaitsWorkloads(in, c, &a); why != "" {
			message.webhooks = append(message.webhooks, why)
			a = Action{Verb: VerbWait, Reason: ReasonAwaitsWorkloads, Item: it, Entry: a.Entry}
		}
		collectAction(p, &st, &message, a, ready)
	}
	st.Released = st.Released && st.Applied && !st.AwaitsWorkloads
	planHookDeletions(in, items, open, p)
	if st.Blocked {
		message.addWait(strings.Join(c.BlockedOn, ", "))
	}
	st.Message = message.String()
	return st
}

// entryFor returns the inventory entry of an item and true. For an item without one it returns the
// entry to persist before the object is created, and false.
func entryFor(in *Snapshot, it *Item) (appsv1.InventoryEntry, bool) {
	e, ok := in.Inventory.Get(it.ID)
	neverCreated := ok && it.Contribute && Uncreated(&e) // it was to be created before
	if ok && !neverCreated || it.ResolveErr != nil {
		return e, true
	}
	state := appsv1.EntryIntended
	switch {
	case it.Shared:
		state = appsv1.EntryShared
	case it.Contribute:
		state = appsv1.EntryContributed
	}
	return appsv1.InventoryEntry{ID: it.ID, Version: it.Version, Component: it.Component, Wave: it.Wave,
		PreRemove: it.PreRemove, State: state}, false
}

// restoresApplied is true for an action that restores content which was applied before. It need not
// wait for its wave.
func restoresApplied(a *Action) bool {
	return a.Entry.Hash == a.Item.ContentHash && (a.Entry.State == appsv1.EntryApplied ||
		a.Entry.State == appsv1.EntryAdopted || a.Entry.State == appsv1.EntryContributed)
}

// collectAction adds an action to the plan, and its result to the state of the component.
func collectAction(p *Plan, st *ComponentState, message *componentMessage, a Action, ready bool) {
	switch a.Verb {
	case VerbSkip:
		if a.Reason == ReasonDrifted || a.Reason == ReasonMissing {
			st.Drifted = append(st.Drifted, a.Item.Ref.String())
		}
		if a.Reason == ReasonShared {
			p.Shared = append(p.Shared, a)
		}
		if !ready {
			message.addWait(a.Message)
			if len(st.NotReady) < maxNotReady {
				st.NotReady = append(st.NotReady, a.Item.Ref)
			}
		}
	case VerbRecord, VerbCreate, VerbUpdate, VerbWithdraw:
		p.Actions = append(p.Actions, a)
		if a.Verb != VerbRecord {
			st.Applied, ready = false, false
		}
	case VerbRefuse:
		st.Applied, st.Failed, ready = false, true, false
		message.failed = appendDistinct(message.failed, a.Message)
		p.Waits = append(p.Waits, a)
	default:
		awaits := a.Reason == ReasonAwaitsWorkloads
		st.Applied, st.AwaitsWorkloads, ready = st.Applied && awaits, st.AwaitsWorkloads || awaits, false
		if a.Message != "" {
			message.addWait(a.Message)
		}
		p.Waits = append(p.Waits, a)
	}
	st.Ready = st.Ready && ready
	if (a.Verb == VerbSkip || a.Verb == VerbRecord) && a.Live != nil && a.Live.Readiness == live.Failed &&
		!a.Item.ignoresHealth() {
		st.Unhealthy = true
	}
}

// maxNotReady is the maximum number of objects in ComponentState.NotReady.
const maxNotReady = 10

// componentMessage collects the message of a component: failures first, then webhooks that wait for
// workloads, then other waits.
type componentMessage struct {
	failed, webhooks, waiting []string
}

func (n *componentMessage) addWait(m string) { n.waiting = appendDistinct(n.waiting, m) }

// appendDistinct appends a message unless it equals the last one.
func appendDistinct(notes []string, m string) []string {
	if len(notes) > 0 && notes[len(notes)-1] == m {
		return notes
	}
	return append(notes, m)
}

// maxNotes is the maximum number of parts in a message. Further parts are only counted.
const maxNotes = 3

func (n *componentMessage) String() string {
	all := slices.Concat(n.failed, n.webhooks, n.waiting)
	if len(all) > maxNotes {
		return strings.Join(all[:maxNotes], "; ") + fmt.Sprintf("; and %d more", len(all)-maxNotes)
	}
	return strings.Join(all, "; ")
}

// Reasons of removals, in addition to those of actions.
const (
	// ReasonFinalizers: a controller has to remove its finalizers.
	ReasonFinalizers Reason = "Finalizers"
	// ReasonAdopted: the object existed before, and is released.
	ReasonAdopted Reason = "Adopted"
	// ReasonPending: the object will be deleted after the steps before it.
	ReasonPending Reason = "Pending"
)
