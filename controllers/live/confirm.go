package live

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/ksctl/gitops/stacks"
)

// confirmTimeout bounds a GET that confirms a hint.
const confirmTimeout = 30 * time.Second

func (ix *Index) newConfirmQueue() workqueue.TypedRateLimitingInterface[stacks.Ref] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[stacks.Ref](ix.opts.MinBackoff, ix.opts.MaxBackoff),
		workqueue.TypedRateLimitingQueueConfig[stacks.Ref]{Clock: ix.opts.Clock})
}

func (ix *Index) runConfirmWorker(ctx context.Context) {
	for {
		ref, shutdown := ix.confirmQueue.Get()
		if shutdown {
			return
		}
		if err := ix.confirm(ctx, ref); err != nil && ctx.Err() == nil {
			ix.confirmQueue.AddRateLimited(ref)
		} else {
			ix.confirmQueue.Forget(ref)
		}
		ix.confirmQueue.Done(ref)
	}
}

// confirm gets a hinted object from the API server and removes it from the index if it is gone. The
// caller retries after an error.
func (ix *Index) confirm(ctx context.Context, ref stacks.Ref) error {
	w, uid := ix.watcherForHint(ref)
	if w == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	res := w.request(ref.Namespace, ref.Name).Do(ctx)
	raw, err := res.Raw()
	if err != nil {
		err = res.Error() // contains the decoded Status of the API server
	}
	if err == nil {
		return ix.storeConfirmed(w, ref, uid, raw)
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	g, n, e := ix.find(ref)
	if !e.hasUID(uid) || !e.is(flagHinted) {
		return nil
	}
	// If the kind is not served, its objects may still exist: another version may serve them.
	if apierrors.IsNotFound(err) && !isNotServed(err) {
		ix.drop(g, n, e)
		return nil
	}
	first := len(g.unconfirmed) == 0
	g.unconfirmed[n] = err
	if first {
		ix.notify.mark(g.users()...)
	}
	return err
}

// storeConfirmed stores the response to the GET of a hinted object.
func (ix *Index) storeConfirmed(w *watcher, ref stacks.Ref, uid types.UID, raw []byte) error {
	u, err := w.decode(raw)
	if err != nil {
		return err
	}
	if u.GetUID() == uid {
		o, version, err := project(u, ix.opts.SecretKey)
		if err != nil {
			return err
		}
		o.LabelLost = u.GetLabels()[OwnerLabel] != ix.opts.OwnerID
		e := pack(&o, &ix.interned)
		ix.mu.Lock()
		defer ix.mu.Unlock()
		// Under one lock: otherwise a reader could find the kind synced and the object
		// outdated.
		ix.clearHint(ref, uid, parseResourceVersion(o.ResourceVersion))
		ix.putPacked(&o, e, version, nil)
		return nil
	}
	// Another object with that name. If it has our label, the watch delivers it.
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if g, n, e := ix.find(ref); e.hasUID(uid) {
		ix.drop(g, n, e)
	}
	return nil
}

// clearHint removes the hint of an object unless the hint is newer than rv. A newer hint is
// confirmed by another GET. The caller holds the lock.
func (ix *Index) clearHint(ref stacks.Ref, uid types.UID, rv uint64) {
	if g, n, e := ix.find(ref); e.hasUID(uid) && e.resourceVersion <= rv {
		e.set(flagHinted, false)
		ix.clearUnconfirmed(g, n)
	}
}

// watcherForHint returns the watcher whose version is used for the GET of a hinted object, and the
// uid of the object; nil if there is no hint to confirm.
func (ix *Index) watcherForHint(ref stacks.Ref) (*watcher, types.UID) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	g, _, e := ix.find(ref)
	if e == nil || !e.is(flagHinted) {
		return nil, ""
	}
	ix.stats.Confirms++
	var anyWatcher *watcher
	for key, w := range g.watches {
		if key.gvk.Version == e.version {
			return w, e.UID()
		}
		anyWatcher = w
	}
	return anyWatcher, e.UID()
}
