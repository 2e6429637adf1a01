package engine

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Corrections of one object that are made within the window before it is left
// alone for a while.
const (
	maxCorrections   = 3
	correctionWindow = time.Minute
)

// hold is why an object is left alone for a while.
type hold struct {
	// since and until it is left alone. By a clock that was set back, until may be
	// years away.
	since, until time.Time
	err          error
	// want is the content that failed: another one is tried at once.
	want string
}

func (x hold) over(now time.Time) bool { return !now.Before(x.until) || setBack(now, x.since) }

// setBack is true when a clock shows a time long before one that it showed
// already. A pass looks at the clock once, so a little before is usual.
func setBack(now, earlier time.Time) bool { return now.Before(earlier.Add(-correctionWindow)) }

// holds remembers, per owner and object, what is waited out. Losing it costs a
// request, never correctness.
type holds struct {
	mu          sync.Mutex
	held        map[string]map[string]hold
	corrections map[string]map[string][]time.Time
	// deletions are the objects that we asked to delete.
	deletions map[string]map[string]types.UID
	// terminating are the namespaces that were seen to be.
	terminating map[string]map[string]bool
}

func newHolds() *holds {
	return &holds{held: map[string]map[string]hold{}, corrections: map[string]map[string][]time.Time{},
		deletions: map[string]map[string]types.UID{}, terminating: map[string]map[string]bool{}}
}

func (h *holds) put(owner, id string, x hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held[owner] == nil {
		h.held[owner] = map[string]hold{}
	}
	h.held[owner][id] = x
}

// why returns the reason to leave an object alone; empty when there is none.
func (h *holds) why(owner, id, want string, now time.Time) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	x, ok := h.held[owner][id]
	if !ok {
		return ""
	}
	if x.over(now) || x.want != want {
		delete(h.held[owner], id)
		return ""
	}
	return x.err.Error()
}

// standing is when the first hold of an owner ends (zero when there is none),
// and the errors that are waited out, in the order of their objects.
func (h *holds) standing(owner string, now time.Time) (time.Time, []error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var first time.Time
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(h.held[owner])) {
		x := h.held[owner][id]
		if x.over(now) {
			continue
		}
		if first.IsZero() || x.until.Before(first) {
			first = x.until
		}
		errs = append(errs, x.err)
	}
	return first, errs
}

// corrected notes that a correction was made.
func (h *holds) corrected(owner, id string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.corrections[owner] == nil {
		h.corrections[owner] = map[string][]time.Time{}
	}
	h.corrections[owner][id] = append(recent(h.corrections[owner][id], now), now)
}

// tooMany is true when an object was corrected too often of late.
func (h *holds) tooMany(owner, id string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(recent(h.corrections[owner][id], now)) >= maxCorrections
}

func recent(corrections []time.Time, now time.Time) []time.Time {
	for len(corrections) > 0 && (now.Sub(corrections[0]) >= correctionWindow || setBack(now, corrections[0])) {
		corrections = corrections[1:]
	}
	return corrections
}

// drop forgets the hold of one object.
func (h *holds) drop(owner, id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.held[owner], id)
}

// forgive drops every hold of an owner, and what would make a new one at once:
// a person asked for another try.
func (h *holds) forgive(owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.held, owner)
	delete(h.corrections, owner)
}

func (h *holds) forget(owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.held, owner)
	delete(h.corrections, owner)
	delete(h.deletions, owner)
	delete(h.terminating, owner)
}

// deleted notes that the API server took our delete of an object.
func (h *holds) deleted(owner, id string, uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.deletions[owner] == nil {
		h.deletions[owner] = map[string]types.UID{}
	}
	h.deletions[owner][id] = uid
}

func (h *holds) wasDeleted(owner, id string) types.UID {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.deletions[owner][id]
}

func (h *holds) undelete(owner, id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.deletions[owner], id)
}
