package engine

import (
	"fmt"
	"sync"
	"time"

	"github.com/ksctl/gitops/stacks"
)

// maxCorrections of one object within correctionWindow are made before it is left alone.
const (
	maxCorrections   = 3
	correctionWindow = time.Minute
)

// corrections remembers, per owner, when the drift of which object was corrected.
type corrections struct {
	mu      sync.Mutex
	byOwner map[string]map[string][]time.Time
}

func newCorrections() *corrections { return &corrections{byOwner: map[string]map[string][]time.Time{}} }

func (c *corrections) record(owner, id string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byOwner[owner] == nil {
		c.byOwner[owner] = map[string][]time.Time{}
	}
	c.byOwner[owner][id] = append(recent(c.byOwner[owner][id], now), now)
}

// tooMany is true when an object was corrected maxCorrections times within correctionWindow.
func (c *corrections) tooMany(owner, id string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(recent(c.byOwner[owner][id], now)) >= maxCorrections
}

func recent(corrections []time.Time, now time.Time) []time.Time {
	for len(corrections) > 0 && (now.Sub(corrections[0]) >= correctionWindow || setBack(now, corrections[0])) {
		corrections = corrections[1:]
	}
	return corrections
}

func (c *corrections) reset(owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byOwner, owner)
}

// ContestedError says that another writer keeps changing an object.
type ContestedError struct {
	Ref stacks.Ref
	By  string
	// Again is when the next correction is tried.
	Again time.Time
}

func (e *ContestedError) Error() string {
	by := e.By
	if by == "" {
		by = "another writer"
	}
	return fmt.Sprintf("%s keeps being changed by %s: corrected %d times in a minute, left alone until %s (or let it have the fields with spec.drift.ignore)",
		e.Ref, by, maxCorrections, e.Again.UTC().Format(time.TimeOnly))
}

// corrects is true for an action that puts right what another writer did.
func corrects(act *Action) bool { return act.Reason == Drifted || act.Reason == Missing }

// contest takes corrections out of a plan that were made too often of late. It
// reports whether there were any.
func (e *Engine) contest(o Owner, retry Retry, p *Plan, rep *Report) bool {
	found := false
	now := e.clock.Now()
	for i := range p.Actions {
		act := &p.Actions[i]
		if !corrects(act) || !e.corrections.tooMany(o.Key().String(), act.Entry.ID, now) {
			continue
		}
		found = true
		err := &ContestedError{Ref: act.Item.Ref, Again: now.Add(max(retry.Contested, correctionWindow))}
		if act.Live != nil {
			err.By = act.Live.OtherManager
		}
		e.backoffs.record(o.Key().String(), act.Entry.ID, backoff{start: now, retryAt: err.Again, want: act.Item.Want, err: err})
		rep.Contested = append(rep.Contested, Change{Verb: Update, Reason: Drifted, Ref: act.Item.Ref, Note: err.Error()})
	}
	return found
}
