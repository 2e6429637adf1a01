package bysource

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/internal/sources/content"
)

// Kind of the objects that are reconciled here.
const Kind = "KsctlRemove"

// Reasons of the conditions beside those of the skeleton and of package content.
const (
	// AwaitingApprovalReason: what would be removed waits for its digest in the spec.
	AwaitingApprovalReason = "AwaitingApproval"
	// RemovedReason: everything that was approved was seen to be gone.
	RemovedReason = "Removed"
)

// Steps reconcile a KsctlRemove with spec.sourceRef.
type Steps struct {
	// Client reads from the cache, Direct from the API server.
	Client, Direct client.Reader
	// Content gets what stacks hold.
	Content *content.Loader
	// Engine acts on the cluster that is named, which Targets find.
	Engine  *engine.Engine
	Targets *target.Targets
	// Chunks hold inventories that do not fit a status.
	Chunks *engine.ChunkStore
	// Installation is the controller's --owner-id.
	Installation string
	// DefaultServiceAccount is used where a KsctlRemove names none.
	DefaultServiceAccount string
	// SecretKey keys hashes of Secrets.
	SecretKey []byte
	Clock     clock.PassiveClock

	owners reconcile.Kept[*owner]
}

var _ reconcile.Steps[*appsv1.KsctlRemove] = (*Steps)(nil)

// Reconcile implements reconcile.Steps: look and freeze, then wait for the
// approval of exactly that, then remove it.
func (s *Steps) Reconcile(ctx context.Context, req *reconcile.Request[*appsv1.KsctlRemove]) reconcile.Outcome {
	o, err := s.owner(ctx, req)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	rm := req.Object
	asked, err := fingerprint(&rm.Spec)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	if frozen(rm, asked) && (approved(rm) || !req.Requested) {
		return s.proceed(ctx, o)
	}
	c, err := s.clients(ctx, o)
	if err != nil {
		return target.Outcome(err, "")
	}
	if o.begun() { // the spec asks for something else by now
		if out := s.letGo(ctx, o, c.there); out != nil {
			return out
		}
	}
	if out := s.freeze(ctx, o, c, asked); out != nil {
		return s.orLost(o, out)
	}
	if err := o.flush(ctx); err != nil {
		return s.unrecorded(o, err)
	}
	return s.proceed(ctx, o)
}

// frozen is true when the status holds what was found for what the spec asks for.
func frozen(rm *appsv1.KsctlRemove, asked string) bool {
	return rm.Status.Removal != nil && strings.HasPrefix(rm.Status.Removal.Digest, asked+"-")
}

func approved(rm *appsv1.KsctlRemove) bool {
	return rm.Status.Removal != nil && rm.Spec.ApprovedDigest == rm.Status.Removal.Digest
}

// proceed goes on with what is frozen.
func (s *Steps) proceed(ctx context.Context, o *owner) reconcile.Outcome {
	rm := o.req.Object
	switch {
	case o.inv.Len() == 0:
		if err := o.flush(ctx); err != nil {
			return s.unrecorded(o, err)
		}
		return done(rm)
	case !approved(rm):
		return o.unapproved()
	}
	c, err := s.clients(ctx, o)
	if err != nil {
		return target.Outcome(err, rm.Status.LastAttemptedRevision)
	}
	if o.req.Requested {
		s.Engine.Forgive(o.Key())
	}
	if rm.Status.Removed == nil {
		rm.Status.Removed = ptr.To[int32](0)
		// Recorded before anything is done to it.
		rm.Status.Removal.MadeAt = metav1.NewTime(s.Clock.Now().Truncate(time.Second)) // the timeout counts from here
		if err := o.Persist(ctx); err != nil {
			return s.unrecorded(o, err)
		}
	}
	return s.remove(ctx, o, c.there)
}

// remove takes the next possible step towards the absence of what was approved.
func (s *Steps) remove(ctx context.Context, o *owner, c *engine.Client) reconcile.Outcome {
	left, errs, err := s.Engine.Take(ctx, o.target, c, o, belongsTo(o.Key().String()))
	o.told(left)
	if err == nil && len(errs) > 0 {
		// In part it could not keep the order.
		err = errors.Join(errs...)
	}
	var rep *engine.Report
	if err == nil {
		rep, err = s.Engine.Teardown(ctx, o.target, c, o, s.retry(o.req.Object))
		if rep != nil {
			o.told(rep.Changes)
		}
	}
	o.count(rep)
	if ferr := o.flush(ctx); ferr != nil {
		return s.unrecorded(o, ferr)
	}
	switch {
	case err != nil:
		return s.unrecorded(o, err)
	case o.inv.Len() == 0:
		return done(o.req.Object)
	}
	return s.orLost(o, s.waiting(o, rep))
}

// letGo releases what was marked, where the spec changed while it was being removed;
// nil when nothing is left of it.
func (s *Steps) letGo(ctx context.Context, o *owner, c *engine.Client) reconcile.Outcome {
	o.orphan = true
	rep, err := s.Engine.Teardown(ctx, o.target, c, o, s.retry(o.req.Object))
	o.orphan = false
	if ferr := o.flush(ctx); err == nil {
		err = ferr
	}
	switch {
	case err != nil:
		return s.unrecorded(o, err)
	case o.inv.Len() > 0:
		return s.orLost(o, reconcile.Waiting{On: fmt.Sprintf("%d objects are left to release: %s", o.inv.Len(), on(rep)), Reason: reconcile.RemovingReason, Until: rep.RetryAt})
	}
	return nil
}

// Finalize implements reconcile.Steps: what was not deleted yet is released.
func (s *Steps) Finalize(ctx context.Context, req *reconcile.Request[*appsv1.KsctlRemove]) reconcile.Outcome {
	o, err := s.owner(ctx, req)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	abandoned := req.Object.Annotations[appsv1.AbandonAnnotation] == string(req.Object.UID)
	if !o.begun() || abandoned {
		if o.begun() {
			s.abandon(ctx, o)
		}
		o.replace(nil) // nothing of it was touched
		if err := o.flush(ctx); err != nil {
			return s.unrecorded(o, err)
		}
		s.leave(o)
		return reconcile.Done{Message: "nothing of it is marked"}
	}
	c, err := s.clients(ctx, o)
	if err != nil {
		return target.Outcome(fmt.Errorf("%d objects are left to release: %w; or leave them marked, with the annotation %s: %s",
			o.inv.Len(), err, appsv1.AbandonAnnotation, req.Object.UID), "")
	}
	if out := s.letGo(ctx, o, c.there); out != nil {
		return out
	}
	return reconcile.Done{Message: "what was left was released"}
}

// Forget implements reconcile.Steps.
func (s *Steps) Forget(key types.NamespacedName) {
	if o, kept := s.owners.Drop(key); kept {
		s.leave(o)
	}
}

// owner returns what is kept in memory of a KsctlRemove, loading it the first time.
func (s *Steps) owner(ctx context.Context, req *reconcile.Request[*appsv1.KsctlRemove]) (*owner, error) {
	rm := req.Object
	name := client.ObjectKeyFromObject(rm)
	cluster := target.Installed(rm.Namespace, &rm.Spec.TargetCluster, rm.Status.Inventory, rm.Status.Cluster)
	load := func() (*owner, error) {
		key := engine.OwnerKey{Installation: s.Installation, Cluster: cluster, Kind: Kind, Namespace: name.Namespace, Name: name.Name}
		inv, err := s.Chunks.Open(ctx, key, rm.Status.Inventory)
		return &owner{chunks: s.Chunks, key: key, inv: inv}, err
	}
	o, err := s.owners.Get(name, rm.UID, load)
	if err != nil {
		return nil, err
	}
	o.req = req
	if named := target.ID(rm.Namespace, &rm.Spec.TargetCluster); o.key.Cluster != named && !o.begun() {
		o.replace(nil) // it is to look at another cluster, and has touched nothing
		if err := o.flush(ctx); err != nil {
			return nil, err
		}
		s.Forget(name)
		cluster = named
		if o, err = s.owners.Get(name, rm.UID, load); err != nil {
			return nil, err
		}
		o.req = req
	}
	return o, nil
}

func (s *Steps) retry(rm *appsv1.KsctlRemove) engine.Retry {
	return engine.Retry{Interval: reconcile.RetryInterval(&rm.Spec.Schedule), Contested: reconcile.Interval(&rm.Spec.Schedule)}
}

// unrecorded is the outcome of a pass that could not be finished. Where somebody
// else changed the inventory, it goes on from what is stored.
func (s *Steps) unrecorded(o *owner, err error) reconcile.Outcome {
	out := reconcile.Retry{Err: err, Revision: o.req.Object.Status.LastAttemptedRevision}
	var conflict *engine.ChunkConflictError
	if errors.As(err, &conflict) {
		s.Forget(client.ObjectKeyFromObject(o.req.Object))
		out.After = time.Second
		return out
	}
	return s.orLost(o, out)
}
