package engine

import (
	"fmt"
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
)

// Verb is what an action does to an object.
type Verb string

// Verbs of actions.
const (
	Create  Verb = "create"
	Update  Verb = "update"
	Skip    Verb = "skip"
	Delete  Verb = "delete"
	Release Verb = "release"
	Drop    Verb = "drop"
	// HandOver gives an object to the owner that wants it now.
	HandOver Verb = "hand over"
	Wait     Verb = "wait"
	Refuse   Verb = "refuse"
	// Run lets a Job go that was suspended until now.
	Run Verb = "run"
	// Record writes down what was seen, without a request.
	Record Verb = "record"
)

// Reason is why an action is planned.
type Reason string

// Reasons of actions.
const (
	NewObject Reason = "New"
	Changed   Reason = "Changed"
	Taken     Reason = "Taken"
	Missing   Reason = "Missing"
	Drifted   Reason = "Drifted"
	Unchanged Reason = "Unchanged"
	Finished  Reason = "Finished"
	NotServed Reason = "NotServed"
	Invalid   Reason = "Invalid"
	Owned     Reason = "Owned"
	Held      Reason = "Held"
	Gone      Reason = "Gone"
	Gated     Reason = "Gated"
	Leaving   Reason = "Leaving"
	Removed   Reason = "Removed"
	Unsure    Reason = "Unsure"
	Unsynced  Reason = "Unsynced"
	Moved     Reason = "Moved"
	Kept      Reason = "Kept"
	Protected Reason = "Protected"
	Guarded   Reason = "Guarded"
	Claimable Reason = "Claimable"
	// PreRemove is the reason of what runs before a removal; Spent that of a Job
	// that ran for one which did not happen.
	PreRemove Reason = "PreRemove"
	Spent     Reason = "Spent"
)

// Action is one step for one object.
type Action struct {
	Verb   Verb
	Reason Reason
	// Item is what is wanted; nil when the object is to go.
	Item *Item
	// Entry of the inventory; its ID is always set.
	Entry appsv1.InventoryEntry
	// Live is what the index knows, nil when it knows nothing.
	Live *live.Object
	// Message for people: what is waited for, or who refuses.
	Message string
	// Err is the typed reason of a refusal.
	Err error
	// Heir is whom an object is handed over to.
	Heir *OwnerKey
}

// ComponentState is how one component stands.
type ComponentState struct {
	Name, Version string
	Wave          int32
	Objects       int
	// Sent is true when every object was applied as it is wanted now.
	Sent bool
	// Ready is true when it was sent and every object is ready.
	Ready bool
	// Failed is true when an object of it can't go on without a change or a retry.
	Failed bool
	// Blocked is true when something is not sent because of what is outside the stack.
	Blocked bool
	// Unhealthy is true when an object that was sent says that it has failed.
	Unhealthy bool
	Message   string
	// Drifted are objects that differ and are left so by the drift mode.
	Drifted []string
}

// Plan is the next possible step of an owner.
type Plan struct {
	// Intents are entries to record before the actions start.
	Intents []appsv1.InventoryEntry
	// Actions that can be done now, in order.
	Actions []Action
	// Removals that can be done now. They come after the actions.
	Removals []Action
	// Waits are the actions that can't be done yet, with why.
	Waits []Action
	// Components in their order.
	Components []ComponentState
	// Settled is true when everything was sent and all that leaves may go: the next
	// change is measured by what there is now.
	Settled bool
}

// Idle is true when there is nothing to do now.
func (p *Plan) Idle() bool {
	return len(p.Intents) == 0 && len(p.Actions) == 0 && len(p.Removals) == 0
}

// Ready is true when every component is and nothing is left to remove.
func (p *Plan) Ready() bool {
	for i := range p.Components {
		if !p.Components[i].Ready {
			return false
		}
	}
	return len(p.Removals) == 0 && len(p.Waits) == 0
}

// MakePlan computes the next possible step. It is a pure function.
func MakePlan(in *Input) Plan {
	var p Plan
	wanted := make(map[string]bool, in.Inventory.Len())
	ready := map[string]bool{}
	sent := true
	for i := range in.Components {
		c := &in.Components[i]
		for j := range c.Items {
			wanted[c.Items[j].ID] = true
		}
		st := planComponent(in, c, blockers(c, ready), &p)
		ready[c.Name] = st.Ready
		sent = sent && st.Sent
		p.Components = append(p.Components, st)
	}
	goes, leaving := asked(&in.Policies, leftover(in.Inventory, wanted))
	if len(goes) > 0 {
		q := planAsked(atOnce(in), goes)
		p.Removals, p.Waits = append(p.Removals, q.Removals...), append(p.Waits, q.Waits...)
	}
	switch {
	case sent:
		may := approved(in, inherited(in, leaving, &p), wanted, &p)
		p.Settled = len(may) == len(leaving)
		if len(may) > 0 {
			planLeaving(in, may, &p)
		}
	case len(leaving) > 0:
		p.Waits = append(p.Waits, Action{Verb: Wait, Reason: Gated, Entry: leaving[0],
			Message: fmt.Sprintf("%d objects are removed when everything else is applied", len(leaving))})
	}
	return p
}

// blockers names the dependencies of a component that are not ready.
func blockers(c *Component, ready map[string]bool) []string {
	var out []string
	for _, d := range c.DependsOn {
		if !ready[d] {
			out = append(out, d)
		}
	}
	return out
}

// planComponent decides for each object of one component. A step starts when
// the steps before it are ready.
func planComponent(in *Input, c *Component, blockedOn []string, p *Plan) ComponentState {
	st := ComponentState{Name: c.Name, Version: c.Version, Wave: c.Wave, Objects: len(c.Items), Sent: true, Ready: true}
	var notes notes
	if len(blockedOn) > 0 {
		notes.wait("waits for component " + strings.Join(blockedOn, ", "))
	}
	blocked := len(c.Blocked) > 0
	open, step := len(blockedOn) == 0, 0
	for j := range c.Items {
		it := &c.Items[j]
		if it.Step != step {
			open, step = open && st.Ready, it.Step
		}
		if e, known := intent(in, it); !known {
			p.Intents = append(p.Intents, e)
		}
		a, ready := decide(in, it)
		if (!open || blocked) && (a.Verb == Create || a.Verb == Update) && !restores(&a) {
			st.Blocked = st.Blocked || blocked
			a = Action{Verb: Wait, Reason: Gated, Item: it, Entry: a.Entry, Live: a.Live}
		}
		collect(p, &st, &notes, a, ready)
	}
	if st.Ready {
		planExpiry(in, c, p)
	}
	if st.Blocked {
		notes.wait("waits for " + strings.Join(c.Blocked, ", "))
	}
	st.Message = notes.String()
	return st
}

// intent returns the entry of an item, or the one to record before it is
// created; known is false then.
func intent(in *Input, it *Item) (appsv1.InventoryEntry, bool) {
	e, ok := in.Inventory.Get(it.ID)
	if ok || it.Unserved != nil {
		return e, true
	}
	state := appsv1.EntryIntended
	if it.Shared {
		state = appsv1.EntryShared
	}
	return appsv1.InventoryEntry{ID: it.ID, Version: it.Version, Component: it.Component, Wave: it.Wave, PreRemove: it.PreRemove, State: state}, false
}

// restores is true for actions that bring back what was applied before: they
// need not wait for their wave.
func restores(a *Action) bool {
	return a.Entry.Hash == a.Item.Want && (a.Entry.State == appsv1.EntryApplied || a.Entry.State == appsv1.EntryAdopted)
}

func collect(p *Plan, st *ComponentState, notes *notes, a Action, ready bool) {
	switch a.Verb {
	case Skip:
		if a.Reason == Drifted || a.Reason == Missing {
			st.Drifted = append(st.Drifted, a.Item.Ref.String())
		}
		if !ready {
			notes.wait(a.Message)
		}
	case Record, Create, Update:
		p.Actions = append(p.Actions, a)
		if a.Verb != Record {
			st.Sent, ready = false, false
		}
	case Refuse:
		st.Sent, st.Failed, ready = false, true, false
		notes.fail(a.Message)
		p.Waits = append(p.Waits, a)
	default:
		st.Sent, ready = false, false
		if a.Message != "" {
			notes.wait(a.Message)
		}
		p.Waits = append(p.Waits, a)
	}
	st.Ready = st.Ready && ready
	if (a.Verb == Skip || a.Verb == Record) && a.Live != nil && a.Live.Ready == live.Failed {
		st.Unhealthy = true
	}
}

// notes keeps a component's message short: failures first, then what it waits for.
type notes struct {
	failed, waiting []string
}

func (n *notes) fail(m string) { n.failed = note(n.failed, m) }
func (n *notes) wait(m string) { n.waiting = note(n.waiting, m) }

// note adds what the one before does not say already.
func note(notes []string, m string) []string {
	if len(notes) > 0 && notes[len(notes)-1] == m {
		return notes
	}
	return append(notes, m)
}

// maxNotes is how many objects a message names before it counts.
const maxNotes = 3

func (n *notes) String() string {
	all := append(append([]string(nil), n.failed...), n.waiting...)
	if len(all) > maxNotes {
		return strings.Join(all[:maxNotes], "; ") + fmt.Sprintf("; and %d more", len(all)-maxNotes)
	}
	return strings.Join(all, "; ")
}
