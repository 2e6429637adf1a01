package engine

import (
	"cmp"
	"fmt"
	"time"

	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/stacks"
)

// An object is corrected at most maxCorrections times within correctionWindow.
const (
	maxCorrections   = 3
	correctionWindow = time.Minute
)

// corrections has the times at which the drift of an object was corrected.
type corrections struct{ ownerMap[[]time.Time] }

// add records a correction.
func (c *corrections) add(owner, id string, now time.Time) {
	c.record(owner, id, append(recent(c.get(owner, id), now), now))
}

// tooMany is true when an object was corrected maxCorrections times within correctionWindow.
func (c *corrections) tooMany(owner, id string, now time.Time) bool {
	return len(recent(c.get(owner, id), now)) >= maxCorrections
}

// recent returns the corrections within correctionWindow.
func recent(corrections []time.Time, now time.Time) []time.Time {
	for len(corrections) > 0 && (now.Sub(corrections[0]) >= correctionWindow || clockSetBack(now, corrections[0])) {
		corrections = corrections[1:]
	}
	return corrections
}

// ContestedError is the error of an object that another writer keeps changing.
type ContestedError struct {
	Ref stacks.Ref
	// By is the field manager of the other writer; empty when it is unknown.
	By string
	// RetryAt is the time of the next correction.
	RetryAt time.Time
}

func (e *ContestedError) Error() string {
	return fmt.Sprintf("%s keeps being changed by %s: corrected %d times in a minute, left alone until %s; to accept these changes, list the fields in spec.drift.ignore",
		e.Ref, cmp.Or(e.By, "another writer"), maxCorrections, e.RetryAt.UTC().Format(time.TimeOnly))
}

// isCorrection is true for an action that reverts a change of another writer.
func isCorrection(act *plan.Action) bool {
	return act.Reason == plan.ReasonDrifted || act.Reason == plan.ReasonMissing
}

// backOffContested backs off the objects of a plan that were corrected too often recently. It
// returns true if there are any: the plan has to be made again.
func (a *executor) backOffContested(p *plan.Plan) bool {
	e, now, found := a.engine, a.engine.clock.Now(), false
	for i := range p.Actions {
		act := &p.Actions[i]
		if !isCorrection(act) || !e.corrections.tooMany(a.ownerKey, act.Entry.ID, now) {
			continue
		}
		found = true
		err := &ContestedError{Ref: act.Item.Ref, RetryAt: now.Add(max(a.retry.ContestedInterval, correctionWindow))}
		if act.Live != nil {
			err.By = act.Live.OtherManager
		}
		e.backoffs.record(a.ownerKey, act.Entry.ID, backoff{start: now, retryAt: err.RetryAt, contentHash: act.Item.ContentHash, err: err})
		a.report.Contested = append(a.report.Contested, Change{Verb: plan.VerbUpdate, Reason: plan.ReasonDrifted, Ref: act.Item.Ref, Message: err.Error()})
	}
	return found
}
