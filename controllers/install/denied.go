package install

import (
	"context"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// deniedRetryDelay is the minimum time between two reconciles of an install because of permissions
// or namespaces that changed.
const deniedRetryDelay = time.Second

// deniedInstalls are the installs whose last reconcile lacked a permission or a namespace. A change
// of these enqueues them. The zero value is empty.
type deniedInstalls struct {
	mu sync.Mutex
	// namespaces are those of the objects that were denied; empty for cluster-scoped objects.
	namespaces map[types.NamespacedName][]string
	// changed are the installs that were enqueued and have not been reconciled since.
	changed map[types.NamespacedName]bool
	// enqueuedAt is the time of the last enqueued reconcile.
	enqueuedAt map[types.NamespacedName]time.Time
}

// record replaces the namespaces of an install.
func (d *deniedInstalls) record(install types.NamespacedName, namespaces []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(namespaces) == 0 {
		delete(d.namespaces, install)
		delete(d.enqueuedAt, install)
		return
	}
	if d.namespaces == nil {
		d.namespaces, d.changed, d.enqueuedAt = map[types.NamespacedName][]string{}, map[types.NamespacedName]bool{}, map[types.NamespacedName]time.Time{}
	}
	d.namespaces[install] = namespaces
}

// consumeChange reports whether a permission or a namespace of an install changed since its last
// reconcile.
func (d *deniedInstalls) consumeChange(install types.NamespacedName) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	changed := d.changed[install]
	delete(d.changed, install)
	return changed
}

// change returns the installs that a change in a namespace may concern, each with the delay until its
// reconcile. An empty namespace stands for the whole cluster.
func (d *deniedInstalls) change(namespace string, now time.Time) map[types.NamespacedName]time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[types.NamespacedName]time.Duration{}
	for install, namespaces := range d.namespaces {
		if d.changed[install] || namespace != "" && !slices.Contains(namespaces, namespace) {
			continue
		}
		at := d.enqueuedAt[install].Add(deniedRetryDelay)
		if at.Before(now) {
			at = now
		}
		d.changed[install], d.enqueuedAt[install] = true, at
		out[install] = at.Sub(now)
	}
	return out
}

// recordDenied records what the reconcile of an install lacked.
func (s *Steps) recordDenied(o *owner, out reconcile.Outcome) {
	namespaces := engine.DeniedNamespaces(o.passErrors)
	if failed, ok := out.(reconcile.Retry); ok && apierrors.IsForbidden(failed.Err) {
		namespaces = append(namespaces, "") // another request than one for an object of the stack
	}
	s.denied.record(client.ObjectKeyFromObject(o.req.Object), namespaces)
}

// retryDenied retries the requests of an install whose permissions or namespaces changed.
func (s *Steps) retryDenied(o *owner) {
	if s.denied.consumeChange(client.ObjectKeyFromObject(o.req.Object)) {
		s.Engine.RetryDenied(o.key)
	}
}

// permissionChanged enqueues the installs that a new namespace, or a change of a role or a binding of
// that kind, may concern, and those of a namespace that is being deleted. Which account a binding is for is not known: its metadata does not have it.
func (s *Setup) permissionChanged(kind string) handler.EventHandler {
	enqueue := func(o client.Object, q queue) {
		namespace := o.GetNamespace()
		if kind == "Namespace" {
			namespace = o.GetName()
		}
		for install, delay := range s.Steps.denied.change(namespace, s.Steps.Clock.Now()) {
			q.AddAfter(request(install), delay)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			if !e.IsInInitialList {
				enqueue(e.Object, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if e.ObjectOld.GetResourceVersion() != e.ObjectNew.GetResourceVersion() {
				enqueue(e.ObjectNew, q)
			}
			if kind == "Namespace" && e.ObjectOld.GetDeletionTimestamp() == nil && e.ObjectNew.GetDeletionTimestamp() != nil {
				for _, r := range s.Reconciler.Requests(ctx, client.InNamespace(e.ObjectNew.GetName())) {
					q.Add(r)
				}
			}
		},
	}
}
