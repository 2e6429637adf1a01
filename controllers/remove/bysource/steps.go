package bysource

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/internal/sources/content"
)

// Steps reconciles KsctlRemoves with spec.sourceRef.
type Steps struct {
	// Client reads from the cache, Direct from the API server.
	Client, Direct client.Reader
	// Content fetches and renders stacks.
	Content *content.Loader
	// Engine acts on the target cluster, which Targets provides.
	Engine  *engine.Engine
	Targets *target.Resolver
	// Chunks stores inventories that do not fit into the status.
	Chunks *engine.ChunkStore
	// Installation is the value of the flag --owner-id.
	Installation string
	// DefaultServiceAccount is used if the spec names no service account.
	DefaultServiceAccount string
	// SecretKey is the key of the hashes of Secrets.
	SecretKey []byte
	Clock     clock.PassiveClock

	owners reconcile.ObjectCache[*owner]
}

var _ reconcile.Steps[*appsv1.KsctlRemove] = (*Steps)(nil)

// Reconcile implements reconcile.Steps. It records the objects to remove, waits for the approval of
// exactly these objects, and removes them.
func (s *Steps) Reconcile(ctx context.Context, req *reconcile.Request[*appsv1.KsctlRemove]) reconcile.Outcome {
	o, err := s.owner(ctx, req)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	rm := req.Object
	specHash, err := fingerprint(&rm.Spec)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	if isRehearsed(rm, specHash) && (isApproved(rm) || !req.Requested) {
		return s.proceed(ctx, o)
	}
	c, err := s.clients(ctx, o)
	if err != nil {
		return target.Outcome(err, "")
	}
	if o.started() { // the spec has changed during the removal
		if out := s.release(ctx, o, c.target); out != nil {
			return out
		}
	}
	if out := s.rehearse(ctx, o, c, specHash); out != nil {
		return s.orUnreachable(o, out)
	}
	if err := o.flush(ctx); err != nil {
		return s.retryOutcome(o, err)
	}
	return s.proceed(ctx, o)
}

// isRehearsed reports whether the status has a rehearsal of the current spec.
func isRehearsed(rm *appsv1.KsctlRemove, specHash string) bool {
	return rm.Status.Removal != nil && strings.HasPrefix(rm.Status.Removal.Digest, specHash+"-")
}

func isApproved(rm *appsv1.KsctlRemove) bool {
	return rm.Status.Removal != nil && rm.Spec.ApprovedDigest == rm.Status.Removal.Digest
}

// proceed continues after the rehearsal.
func (s *Steps) proceed(ctx context.Context, o *owner) reconcile.Outcome {
	rm := o.req.Object
	switch {
	case o.inv.Len() == 0:
		if err := o.flush(ctx); err != nil {
			return s.retryOutcome(o, err)
		}
		return doneOutcome(rm)
	case !isApproved(rm):
		return o.approvalOutcome()
	}
	c, err := s.clients(ctx, o)
	if err != nil {
		return target.Outcome(err, rm.Status.LastAttemptedRevision)
	}
	if o.req.Requested {
		s.Engine.ResetBackoff(o.Key())
	}
	if rm.Status.Removed == nil {
		rm.Status.Removed = ptr.To[int32](0)
		// Record the start before the first object is changed.
		rm.Status.Removal.MadeAt = metav1.NewTime(s.Clock.Now().Truncate(time.Second)) // the timeout counts from here
		if err := o.Persist(ctx); err != nil {
			return s.retryOutcome(o, err)
		}
	}
	return s.remove(ctx, o, c.target)
}

// remove takes the next possible step of removing the approved objects.
func (s *Steps) remove(ctx context.Context, o *owner, c *engine.Client) reconcile.Outcome {
	left, errs, err := s.Engine.ClaimRecorded(ctx, s.pass(o, c), o.otherOwner)
	o.recordReleased(left)
	if err == nil && len(errs) > 0 {
		// Stop, because removing only a part would break the order.
		err = errors.Join(errs...)
	}
	var rep *engine.Report
	if err == nil {
		rep, err = s.Engine.Teardown(ctx, s.pass(o, c))
		if rep != nil {
			o.recordReleased(rep.Changes)
		}
	}
	o.updateProgress(rep)
	if ferr := o.flush(ctx); ferr != nil {
		return s.retryOutcome(o, ferr)
	}
	switch {
	case err != nil:
		return s.retryOutcome(o, err)
	case o.inv.Len() == 0:
		return doneOutcome(o.req.Object)
	}
	return s.orUnreachable(o, s.waitingOutcome(o, rep))
}

// release releases the marked objects, after the spec has changed during the removal or the
// KsctlRemove is deleted; nil when all are released.
func (s *Steps) release(ctx context.Context, o *owner, c *engine.Client) reconcile.Outcome {
	o.orphan = true
	rep, err := s.Engine.Teardown(ctx, s.pass(o, c))
	o.orphan = false
	if ferr := o.flush(ctx); err == nil {
		err = ferr
	}
	switch {
	case err != nil:
		return s.retryOutcome(o, err)
	case o.inv.Len() > 0:
		return s.orUnreachable(o, reconcile.Waiting{On: fmt.Sprintf("%d objects are left to release: %s", o.inv.Len(),
			waitMessage(rep)), For: engine.WaitReferences(o.key, rep), Reason: appsv1.RemovingReason,
			RequeueAt: rep.RetryAt})
	}
	return nil
}

// Finalize implements reconcile.Steps. It releases the objects that are not deleted yet.
func (s *Steps) Finalize(ctx context.Context, req *reconcile.Request[*appsv1.KsctlRemove]) reconcile.Outcome {
	o, err := s.owner(ctx, req)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	abandoned := reconcile.Abandoned(req.Object)
	if !o.started() || abandoned {
		if o.started() {
			s.abandon(ctx, o)
		}
		o.setEntries(nil) // no object is marked, or the marks are abandoned
		if err := o.flush(ctx); err != nil {
			return s.retryOutcome(o, err)
		}
		s.forgetOwner(o)
		return reconcile.Done{Message: "no object is released"}
	}
	if o.key.Cluster == plan.LocalCluster && reconcile.IsDeletedWithNamespace(ctx, s.Client, req.Object) {
		o.terminatingNamespace = req.Object.Namespace
	}
	c, err := s.clients(ctx, o)
	if err != nil {
		return target.Outcome(fmt.Errorf("%d objects are left to release: %w; to leave them marked, set the "+
			"annotation %s: %s",
			o.inv.Len(), err, appsv1.AbandonAnnotation, req.Object.UID), "")
	}
	if out := s.release(ctx, o, c.target); out != nil {
		return out
	}
	return reconcile.Done{Message: "the remaining objects are released"}
}

// Forget implements reconcile.Steps.
func (s *Steps) Forget(key types.NamespacedName) {
	if o, kept := s.owners.Drop(key); kept {
		s.forgetOwner(o)
	}
}

// owner returns the in-memory state of a KsctlRemove. It loads the state on the first call.
func (s *Steps) owner(ctx context.Context, req *reconcile.Request[*appsv1.KsctlRemove]) (*owner, error) {
	rm := req.Object
	name := client.ObjectKeyFromObject(rm)
	cluster := target.InstalledCluster(rm.Namespace, &rm.Spec.TargetCluster, rm.Status.Inventory, rm.Status.Cluster)
	load := func() (*owner, error) {
		key := plan.OwnerKey{Installation: s.Installation, Cluster: cluster, Kind: appsv1.KsctlRemoveKind,
			Namespace: name.Namespace, Name: name.Name}
		inv, err := s.Chunks.LoadInventory(ctx, key, rm.Status.Inventory)
		return &owner{chunks: s.Chunks, key: key, inv: inv}, err
	}
	o, err := s.owners.Get(name, rm.UID, load)
	if err != nil {
		return nil, err
	}
	o.req = req
	if wanted := target.ID(rm.Namespace, &rm.Spec.TargetCluster); o.key.Cluster != wanted && !o.started() {
		o.setEntries(nil) // the cluster in the spec has changed, and no object is marked
		if err := o.flush(ctx); err != nil {
			return nil, err
		}
		s.Forget(name)
		cluster = wanted
		if o, err = s.owners.Get(name, rm.UID, load); err != nil {
			return nil, err
		}
		o.req = req
	}
	return o, nil
}

// pass returns a pass of the engine over the objects of a KsctlRemove.
func (s *Steps) pass(o *owner, c *engine.Client) engine.Pass {
	schedule := &o.req.Object.Spec.Schedule
	return engine.Pass{Owner: o, Target: o.target, Client: c,
		Retry: engine.RetryPolicy{Interval: reconcile.RetryInterval(schedule),
			ContestedInterval: reconcile.Interval(schedule)}}
}

// retryOutcome returns the outcome of a failed reconcile. If another client has changed the
// inventory, the next reconcile reads it again.
func (s *Steps) retryOutcome(o *owner, err error) reconcile.Outcome {
	out := reconcile.Retry{Err: err, Revision: o.req.Object.Status.LastAttemptedRevision}
	var conflict *engine.ChunkConflictError
	if errors.As(err, &conflict) {
		s.Forget(client.ObjectKeyFromObject(o.req.Object))
		out.RequeueAfter = time.Second
		return out
	}
	return s.orUnreachable(o, out)
}
