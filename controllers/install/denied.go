package install

import (
	"context"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
)

const (
	// deniedRetryDelay is the minimum time between two reconciles of an install because of
	// permissions or namespaces that changed.
	deniedRetryDelay = time.Second
	// authorizerDelay is the time that the API server gets to observe a change of permissions
	// itself.
	authorizerDelay = 250 * time.Millisecond
	// anyNamespace stands for the namespaces of forbidden requests that were not for an object of
	// the stack.
	anyNamespace = "*"
)

// deniedInstalls are the installs whose last reconcile sent a request that was forbidden, or whose
// namespace was missing. A change of permissions or namespaces enqueues them. The zero value is
// empty.
type deniedInstalls struct {
	mu sync.Mutex
	// namespaces are those of the objects that were denied; empty for cluster-scoped objects.
	namespaces map[types.NamespacedName][]string
	// changed are the installs that were enqueued and have not been reconciled since.
	changed map[types.NamespacedName]bool
	// enqueuedAt is the time of the last enqueued reconcile.
	enqueuedAt map[types.NamespacedName]time.Time
	// changes is the number of changes that were observed.
	changes int
}

// count returns the number of changes that were observed. It is read at the start of a reconcile.
func (d *deniedInstalls) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changes
}

// record replaces the namespaces of an install. It returns true if there was a change since count
// returned began: the reconcile may have been too early for it.
func (d *deniedInstalls) record(install types.NamespacedName, namespaces []string, began int) (again bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(namespaces) == 0 {
		delete(d.namespaces, install)
		delete(d.changed, install)
		delete(d.enqueuedAt, install)
		return false
	}
	if d.namespaces == nil {
		d.namespaces, d.changed, d.enqueuedAt = map[types.NamespacedName][]string{}, map[types.NamespacedName]bool{},
			map[types.NamespacedName]time.Time{}
	}
	if d.namespaces[install] = namespaces; d.changes != began {
		d.changed[install] = true
		return true
	}
	return false
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

// change returns the installs that a change in a namespace may concern, each with the delay until
// its reconcile. An empty namespace stands for the whole cluster.
func (d *deniedInstalls) change(namespace string, now time.Time) map[types.NamespacedName]time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changes++
	out := map[types.NamespacedName]time.Duration{}
	for install, namespaces := range d.namespaces {
		concerns := namespace == "" || slices.Contains(namespaces, namespace) ||
			slices.Contains(namespaces, anyNamespace)
		if d.changed[install] || !concerns {
			continue
		}
		at := now.Add(authorizerDelay)
		if earliest := d.enqueuedAt[install].Add(deniedRetryDelay); at.Before(earliest) {
			at = earliest
		}
		d.changed[install], d.enqueuedAt[install] = true, at
		out[install] = at.Sub(now)
	}
	return out
}

// recordDenied records which requests of a reconcile were forbidden. It returns the outcome, with
// an early retry if permissions changed meanwhile.
func (s *Steps) recordDenied(o *owner, out reconcile.Outcome) reconcile.Outcome {
	failed, isRetry := out.(reconcile.Retry)
	forbidden := isRetry && apierrors.IsForbidden(failed.Err)
	if o.key.Cluster != plan.LocalCluster || !o.passed && !forbidden {
		return out // permissions in other clusters are not watched; without a pass, nothing is known
	}
	namespaces := engine.DeniedNamespaces(o.passErrors)
	if forbidden {
		namespaces = append(namespaces, anyNamespace)
	}
	if s.denied.record(client.ObjectKeyFromObject(o.req.Object), namespaces, o.deniedCount) {
		return reconcile.RequeueBy(out, s.Clock.Now().Add(deniedRetryDelay))
	}
	return out
}

// retryDenied retries the requests of an install whose permissions or namespaces changed.
func (s *Steps) retryDenied(o *owner) {
	o.deniedCount, o.passed = s.denied.count(), false
	if s.denied.consumeChange(client.ObjectKeyFromObject(o.req.Object)) {
		s.Engine.RetryDenied(o.key)
	}
}

// PermissionsChanged returns the installs that a change of a role, a binding or a namespace may
// concern, each with the delay until its reconcile. An empty namespace stands for the whole
// cluster.
func (s *Steps) PermissionsChanged(namespace string) map[types.NamespacedName]time.Duration {
	return s.denied.change(namespace, s.Clock.Now())
}

// permissionEvents enqueue the installs that a change of permissions or namespaces may concern, and
// those of a namespace that is being deleted.
func (s *Setup) permissionEvents() reconcile.PermissionEvents {
	return reconcile.PermissionEvents{
		Changed: func(namespace string, q queue) {
			for install, delay := range s.Steps.PermissionsChanged(namespace) {
				q.AddAfter(request(install), delay)
			}
		},
		Terminating: func(ctx context.Context, namespace string, q queue) {
			for _, r := range s.Reconciler.Requests(ctx, client.InNamespace(namespace)) {
				q.Add(r)
			}
		},
	}
}
