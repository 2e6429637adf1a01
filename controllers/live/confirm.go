package live

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/ksctl/gitops/stacks"
)

// confirmWithin bounds a GET.
const confirmWithin = 30 * time.Second

func (ix *Index) newConfirms() workqueue.TypedRateLimitingInterface[stacks.Ref] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[stacks.Ref](ix.opts.MinBackoff, ix.opts.MaxBackoff),
		workqueue.TypedRateLimitingQueueConfig[stacks.Ref]{Clock: ix.opts.Clock})
}

func (ix *Index) confirmAll(ctx context.Context) {
	for {
		ref, shutdown := ix.confirms.Get()
		if shutdown {
			return
		}
		if err := ix.confirm(ctx, ref); err != nil && ctx.Err() == nil {
			ix.confirms.AddRateLimited(ref)
		} else {
			ix.confirms.Forget(ref)
		}
		ix.confirms.Done(ref)
	}
}

// confirm asks the API server whether a hinted object is gone. An error is to
// be retried.
func (ix *Index) confirm(ctx context.Context, ref stacks.Ref) error {
	w, uid := ix.hinted(ref)
	if w == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, confirmWithin)
	defer cancel()
	res := w.request(ref.Namespace, ref.Name).Do(ctx)
	raw, err := res.Raw()
	if err != nil {
		err = res.Error() // with the server's Status read
	}
	n := name{ref.Namespace, ref.Name}
	if err == nil {
		return ix.stillThere(w, ref, uid, raw)
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	g := ix.groups[ref.GroupKind()]
	if g == nil {
		return nil
	}
	e := g.objects[n]
	if e == nil || e.UID() != uid || !e.is(flagHinted) {
		return nil
	}
	// A kind that is not served says nothing of its objects: they may be served
	// in another version.
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

// stillThere takes in an object that a hint said was gone.
func (ix *Index) stillThere(w *watcher, ref stacks.Ref, uid types.UID, raw []byte) error {
	u, err := w.decode(raw)
	if err != nil {
		return err
	}
	n := name{ref.Namespace, ref.Name}
	if u.GetUID() == uid {
		o, version, err := project(u, ix.opts.SecretKey)
		if err != nil {
			return err
		}
		o.LabelLost = u.GetLabels()[OwnerLabel] != ix.opts.Owner
		e := pack(&o, &ix.interned)
		ix.mu.Lock()
		defer ix.mu.Unlock()
		// At once: nobody may find the kind synced and the object as it was before.
		ix.refute(ref, uid, revision(o.ResourceVersion))
		ix.putPacked(&o, e, version, nil)
		return nil
	}
	// Another object of that name. If it is ours, the watch tells of it.
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if g := ix.groups[ref.GroupKind()]; g != nil {
		if e := g.objects[n]; e != nil && e.UID() == uid {
			ix.drop(g, n, e)
		}
	}
	return nil
}

// refute takes back a hint, unless it is newer than what refutes it: then it is
// asked about again. The lock is held.
func (ix *Index) refute(ref stacks.Ref, uid types.UID, rv uint64) {
	g := ix.groups[ref.GroupKind()]
	if g == nil {
		return
	}
	n := name{ref.Namespace, ref.Name}
	if e := g.objects[n]; e != nil && e.UID() == uid && e.rv <= rv {
		e.set(flagHinted, false)
		ix.confirmed(g, n)
	}
}

// hinted returns a watch to ask about a hinted object with, and the object's
// uid; nil when there is nothing to ask.
func (ix *Index) hinted(ref stacks.Ref) (*watcher, types.UID) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	g := ix.groups[ref.GroupKind()]
	if g == nil {
		return nil, ""
	}
	e := g.objects[name{ref.Namespace, ref.Name}]
	if e == nil || !e.is(flagHinted) {
		return nil, ""
	}
	ix.stats.confirms++
	var other *watcher
	for key, w := range g.watches {
		if key.gvk.Version == e.version {
			return w, e.UID()
		}
		other = w
	}
	return other, e.UID()
}
