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

// minHealthyWatch is the minimum duration of a healthy watch. A failure after that long resets the
// backoff.
const minHealthyWatch = 2 * time.Second

// watchKey identifies a kind in one served version.
type watchKey struct {
	gvk schema.GroupVersionKind
	gvr schema.GroupVersionResource
}

// watcher lists and watches one kind in one version.
type watcher struct {
	ix  *Index
	key watchKey
	// wake has a capacity of one: further signals would be redundant.
	wake   chan struct{}
	cancel context.CancelFunc

	// Index.mu guards the fields below.

	users     map[string]struct{}
	idleSince time.Time
	// listRound counts the lists.
	listRound uint32
	// listed is true after a finished list. It becomes false when the kind is not served.
	listed bool
	// reason and err describe the last failure; brokenSince is the time when the watch broke.
	reason      SyncReason
	err         error
	brokenSince time.Time
	// notifiedReason is the reason of the last notification of the users.
	notifiedReason SyncReason
}

func newWatcher(ix *Index, key watchKey) *watcher {
	return &watcher{ix: ix, key: key, wake: make(chan struct{}, 1), users: map[string]struct{}{},
		notifiedReason: Syncing}
}

// stop ends the watch. The caller holds the lock.
func (w *watcher) stop() {
	if w.cancel != nil {
		w.cancel()
	}
}

func (w *watcher) synced(now time.Time, staleAfter time.Duration) error {
	e := &SyncError{GroupKind: w.key.gvk.GroupKind(), Reason: w.syncReason(now, staleAfter), Err: w.err}
	if e.Reason == "" {
		return nil
	}
	return e
}

// syncReason returns why the watch is not synced; "" if it is.
func (w *watcher) syncReason(now time.Time, staleAfter time.Duration) SyncReason {
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

// notifyUsers notifies the users if the sync reason changed. The caller holds the lock.
func (w *watcher) notifyUsers() {
	current := w.syncReason(w.ix.opts.Clock.Now(), w.ix.opts.StaleAfter)
	if current == w.notifiedReason {
		return
	}
	w.notifiedReason = current
	if current != "" && w.err != nil {
		w.ix.opts.Log.Info("kind is not synced", "kind", w.key.gvk.String(), "reason", string(current), "error",
			w.err.Error())
	}
	for u := range w.users {
		w.ix.notify.mark(u)
	}
}

// run lists and watches until ctx ends.
func (w *watcher) run(ctx context.Context) {
	b := backoff{min: w.ix.opts.MinBackoff, max: w.ix.opts.MaxBackoff}
	rv := ""
	// restarted is true after a watch that ended regularly was restarted without a wait. If
	// the next one also ends early, it counts as a failure.
	restarted := false
	for ctx.Err() == nil {
		started := w.ix.opts.Clock.Now()
		var err error
		if rv == "" {
			rv, err = w.list(ctx)
		}
		if err == nil {
			rv, err = w.watch(ctx, rv)
		}
		// A watch also ends regularly when its kind is deleted.
		if gone := err == nil || isNotServed(err); ctx.Err() != nil || gone && w.endIfUnused() {
			return
		}
		if w.ix.opts.Clock.Since(started) >= minHealthyWatch {
			b.reset()
			restarted = false
		}
		if err == nil && !restarted {
			restarted = true
			w.recordFailure(nil)
			continue
		}
		if isExpired(err) || isNotServed(err) {
			rv = ""
		}
		w.recordFailure(err)
		seconds, _ := apierrors.SuggestsClientDelay(err)
		if w.wait(ctx, max(b.next(), time.Duration(seconds)*time.Second)) {
			b.reset() // earlier failures are no longer relevant after a wake
		}
	}
}

// endIfUnused removes a watch that ended from the index if it has no users, so that a kind that is
// gone causes no more requests. It returns true if it did.
func (w *watcher) endIfUnused() bool {
	w.ix.mu.Lock()
	defer w.ix.mu.Unlock()
	g := w.ix.groups[w.key.gvk.GroupKind()]
	if len(w.users) > 0 || g == nil || g.watches[w.key] != w {
		return false
	}
	w.ix.endUnusedWatches(g, func(other *watcher) bool { return other == w })
	return true
}

// recordFailure records the end of the watch and its error.
func (w *watcher) recordFailure(err error) {
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
	w.notifyUsers()
}

// recordConnected records that the API server accepted the watch.
func (w *watcher) recordConnected() {
	w.ix.mu.Lock()
	defer w.ix.mu.Unlock()
	w.reason, w.err, w.brokenSince = "", nil, time.Time{}
	w.notifyUsers()
}

// wait waits for d, ctx or Wake. It returns true if Wake ended the wait.
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

// isExpired reports whether a list or a watch can't continue from its resource version.
func isExpired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}

// isNotServed reports whether a 404 is about the path of the kind, not about an object.
func isNotServed(err error) bool {
	return apierrors.IsNotFound(err) &&
		(apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) || detailName(err) == "")
}

func detailName(err error) string {
	var s apierrors.APIStatus
	if errors.As(err, &s) && s.Status().Details != nil {
		return s.Status().Details.Name
	}
	return ""
}

// backoff is a wait that doubles from min to max, with a jitter of ±50 %.
type backoff struct {
	min, max, last time.Duration
}

func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, b.min), b.max)
	return b.last/2 + rand.N(b.last)
}

func (b *backoff) reset() { b.last = 0 }
