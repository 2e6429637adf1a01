package live

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// longLived is how long a watch lasts that ended in the normal course: a
// failure after it is the first of its kind.
const longLived = 2 * time.Second

// watchKey is one way in which the API server serves a kind.
type watchKey struct {
	gvk schema.GroupVersionKind
	gvr schema.GroupVersionResource
}

// watcher lists and watches one kind in one version.
type watcher struct {
	ix  *Index
	key watchKey
	// wake has room for one: more would say the same.
	wake   chan struct{}
	cancel context.CancelFunc

	// What follows is guarded by Index.mu.

	users     map[string]struct{}
	idleSince time.Time
	// round counts lists.
	round uint32
	// listed is true once a list was finished, and until the kind was not served.
	listed bool
	// reason and err say what is wrong; brokenSince when the watch broke.
	reason      SyncReason
	err         error
	brokenSince time.Time
	// told is the reason that users were last told of.
	told SyncReason
}

func newWatcher(ix *Index, key watchKey) *watcher {
	return &watcher{ix: ix, key: key, wake: make(chan struct{}, 1), users: map[string]struct{}{}, told: Syncing}
}

// end stops the watch. The lock is held.
func (w *watcher) end() {
	if w.cancel != nil {
		w.cancel()
	}
}

func (w *watcher) synced(now time.Time, staleAfter time.Duration) error {
	e := &SyncError{GroupKind: w.key.gvk.GroupKind(), Reason: w.state(now, staleAfter), Err: w.err}
	if e.Reason == "" {
		return nil
	}
	return e
}

// state is "" when the index can vouch for what the watch told.
func (w *watcher) state(now time.Time, staleAfter time.Duration) SyncReason {
	switch {
	case w.reason != "":
		return w.reason
	case !w.listed:
		return Syncing
	case !w.brokenSince.IsZero() && now.Sub(w.brokenSince) > staleAfter:
		return Stale
	default:
		return ""
	}
}

// tell tells the users when the state changed. The lock is held.
func (w *watcher) tell() {
	state := w.state(w.ix.opts.Clock.Now(), w.ix.opts.StaleAfter)
	if state == w.told {
		return
	}
	w.told = state
	if state != "" && w.err != nil {
		w.ix.opts.Log.Info("the index can't vouch for a kind", "kind", w.key.gvk.String(), "reason", string(state), "error", w.err.Error())
	}
	for u := range w.users {
		w.ix.notify.mark(u)
	}
}

// run lists and watches until ctx ends.
func (w *watcher) run(ctx context.Context) {
	b := backoff{min: w.ix.opts.MinBackoff, max: w.ix.opts.MaxBackoff}
	rv := ""
	// again is true after a watch that ended in good order was begun again at
	// once: if it ends soon, that is no order.
	again := false
	for ctx.Err() == nil {
		began := w.ix.opts.Clock.Now()
		var err error
		if rv == "" {
			rv, err = w.list(ctx)
		}
		if err == nil {
			rv, err = w.watch(ctx, rv)
		}
		if ctx.Err() != nil {
			return
		}
		if w.ix.opts.Clock.Since(began) >= longLived {
			b.reset()
			again = false
		}
		if err == nil && !again {
			again = true
			w.broken(nil)
			continue
		}
		if isExpired(err) || isNotServed(err) {
			rv = ""
		}
		w.broken(err)
		if w.wait(ctx, max(b.next(), suggestedDelay(err))) {
			b.reset() // how often it failed says nothing of what is served now
		}
	}
}

// broken notes that the watch ended, and how.
func (w *watcher) broken(err error) {
	w.ix.mu.Lock()
	defer w.ix.mu.Unlock()
	w.err = err
	w.reason = ""
	switch {
	case apierrors.IsForbidden(err):
		w.reason = Forbidden
	case isNotServed(err):
		w.reason = NotServed
		w.listed = false
	}
	if w.brokenSince.IsZero() {
		w.brokenSince = w.ix.opts.Clock.Now()
	}
	if err != nil && !isExpired(err) {
		w.ix.opts.Log.V(1).Info("watch ended", "kind", w.key.gvk.String(), "error", err.Error())
	}
	w.tell()
}

// connected notes that the API server took the watch.
func (w *watcher) connected() {
	w.ix.mu.Lock()
	defer w.ix.mu.Unlock()
	w.reason, w.err, w.brokenSince = "", nil, time.Time{}
	w.tell()
}

// wait is true when it was ended by Wake.
func (w *watcher) wait(ctx context.Context, d time.Duration) bool {
	t := w.ix.opts.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C():
	case <-w.wake:
		return true
	}
	return false
}

// isExpired is true when a list or watch can't go on from where it was.
func isExpired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}

// isNotServed is true for a 404 that is not about an object but about the path.
func isNotServed(err error) bool {
	return apierrors.IsNotFound(err) && (apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) || detailName(err) == "")
}

func detailName(err error) string {
	var s apierrors.APIStatus
	if errors.As(err, &s) && s.Status().Details != nil {
		return s.Status().Details.Name
	}
	return ""
}

func suggestedDelay(err error) time.Duration {
	seconds, ok := apierrors.SuggestsClientDelay(err)
	if !ok {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// backoff doubles from min to max, each spread by half to either side.
type backoff struct {
	min, max, last time.Duration
}

func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, b.min), b.max)
	return b.last/2 + rand.N(b.last)
}

func (b *backoff) reset() { b.last = 0 }
