package kind

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// rolloutObject is what a rollout knows about an object.
type rolloutObject struct {
	uid types.UID
	key types.NamespacedName
	// taken is the revision that was released to the object; nil for a new object.
	taken *appsv1.TakenArtifact
	// ready is the status of the condition Ready for the current generation.
	ready metav1.ConditionStatus
	// applied and attempted are revisions of the status.
	applied, attempted string
	// released is true if the rollout has released its revision to the object. The status of the
	// object may not have it yet.
	released bool
	// excluded is true for an object that is suspended or being deleted.
	excluded bool
}

// rolloutOptions are the settings of a rollout. digest is that of the revision that is rolled out.
type rolloutOptions struct {
	digest        string
	maxConcurrent int
	stopOnFailure bool
	timeout       time.Duration
	now           time.Time
}

// rolloutPlan is the next step of a rollout.
type rolloutPlan struct {
	// release are the objects that get the revision now.
	release []*rolloutObject
	// updating, waiting and failed are the objects in these states after this step, as
	// namespace/name. excluded is the number of excluded objects.
	updating, waiting, failed []string
	excluded                  int
	// next is the time at which the next timeout of an object ends; zero if there is none.
	next time.Time
}

// complete reports whether the rollout has reached every object.
func (r *rolloutPlan) complete() bool { return len(r.updating)+len(r.waiting) == 0 }

// updateState is the state of the last revision that was released to an object.
type updateState int

const (
	settled updateState = iota
	updating
	failed
)

// updateState returns the state of the revision in taken. An object that was not Ready before does
// not fail, and one that has applied the revision cannot fail any more: its later failures may have
// other causes.
func (o *rolloutObject) updateState(opts rolloutOptions) updateState {
	t := o.taken
	if t == nil || t.Since == nil || o.applied == t.Revision {
		return settled
	}
	isFailing := o.ready == metav1.ConditionFalse && o.attempted == t.Revision
	switch {
	case !isFailing && opts.now.Before(t.Since.Add(opts.timeout)):
		return updating
	case t.WasReady:
		return failed
	}
	return settled
}

// planRollout plans the next step of a rollout. It is a pure function.
func planRollout(objects []rolloutObject, opts rolloutOptions) (r rolloutPlan) {
	var first, others []*rolloutObject
	busy := 0
	for i := range objects {
		o := &objects[i]
		isCurrent := o.taken != nil && o.taken.Digest == opts.digest
		state := o.updateState(opts)
		if state == updating && !o.excluded {
			if end := o.taken.Since.Add(opts.timeout); r.next.IsZero() || end.Before(r.next) {
				r.next = end
			}
		}
		switch {
		case o.excluded:
			r.excluded++
		case o.released && !isCurrent:
			busy++
			r.updating = append(r.updating, o.key.String())
		case o.taken == nil: // it gets the last complete revision first
		case isCurrent && state == updating:
			busy++
			r.updating = append(r.updating, o.key.String())
		case isCurrent && state == failed:
			r.failed = append(r.failed, o.key.String())
		case isCurrent:
		case state == failed: // the revision may correct the failure
			first = append(first, o)
		default:
			if state == updating { // the previous revision
				busy++
			}
			others = append(others, o)
		}
	}
	byName := func(a, b *rolloutObject) int { return cmp.Compare(a.key.String(), b.key.String()) }
	slices.SortFunc(first, byName)
	slices.SortFunc(others, byName)
	free := opts.maxConcurrent - busy
	if opts.stopOnFailure && len(r.failed) > 0 {
		free = 0
	}
	for _, o := range append(first, others...) {
		if free <= 0 {
			r.waiting = append(r.waiting, o.key.String())
			continue
		}
		free--
		r.release = append(r.release, o)
		r.updating = append(r.updating, o.key.String())
	}
	return r
}

// summary returns a message about a rollout.
func (r *rolloutPlan) summary(total int) string {
	pending := len(r.updating) + len(r.waiting) + len(r.failed) + r.excluded
	out := fmt.Sprintf("%d of %d objects are updated", total-pending, total)
	for _, s := range []struct {
		words string
		names []string
	}{{"failed", r.failed}, {"updating", r.updating}, {"waiting", r.waiting}} {
		if len(s.names) > 0 {
			out += fmt.Sprintf("; %d %s: %s", len(s.names), s.words, reconcile.JoinNames(s.names))
		}
	}
	if r.excluded > 0 {
		out += fmt.Sprintf("; %d suspended or being deleted", r.excluded)
	}
	return out
}

// releases are the objects to which this process released the revision of the rollout, and the
// suspended objects. The zero value is empty.
type releases struct {
	mu        sync.Mutex
	digest    string
	released  map[types.UID]bool
	suspended map[types.UID]bool
}

// start begins the rollout of a revision, unless it runs already.
func (r *releases) start(digest string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.digest != digest {
		r.digest, r.released, r.suspended = digest, map[types.UID]bool{}, map[types.UID]bool{}
	}
}

func (r *releases) release(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.released[uid] = true
}

// isReleased reports whether a revision was released to an object.
func (r *releases) isReleased(digest string, uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.digest == digest && r.released[uid]
}

// setSuspended records whether an object is suspended, and reports whether that has changed. A
// suspended object has to be released again. Without a rollout it does nothing.
func (r *releases) setSuspended(uid types.UID, suspended bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.suspended == nil || r.suspended[uid] == suspended {
		return false
	}
	if !suspended {
		delete(r.suspended, uid)
		return true
	}
	r.suspended[uid] = true
	delete(r.released, uid)
	return true
}

// rolloutObjects returns what the rollout knows about objects. It forgets other objects.
func (r *releases) rolloutObjects(objects []Object) []rolloutObject {
	r.mu.Lock()
	defer r.mu.Unlock()
	released, suspended := map[types.UID]bool{}, map[types.UID]bool{}
	out := make([]rolloutObject, 0, len(objects))
	for i := range objects {
		o := &objects[i]
		if r.released[o.UID] {
			released[o.UID] = true
		}
		if r.suspended[o.UID] {
			suspended[o.UID] = true
		}
		out = append(out, rolloutObject{uid: o.UID, key: client.ObjectKeyFromObject(o), taken: o.Status.Artifact,
			ready: readyStatus(o), applied: o.Status.LastAppliedRevision, attempted: o.Status.LastAttemptedRevision,
			released: r.released[o.UID], excluded: o.DeletionTimestamp != nil || r.suspended[o.UID]})
	}
	r.released, r.suspended = released, suspended
	return out
}
