package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/account"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/internal/sources/content"
	"github.com/ksctl/gitops/internal/sources/publish"
)

// Kind of the objects that are reconciled here.
const Kind = "KsctlInstall"

// Steps reconcile a KsctlInstall.
type Steps struct {
	// Client reads from the cache.
	Client client.Reader
	// Content gets what stacks hold.
	Content *content.Loader
	// Engine acts on the cluster that an install is for, which Targets find.
	Engine  *engine.Engine
	Targets *target.Targets
	// Depends watches what installs depend on.
	Depends Watched
	// Plans remember what installs want.
	Plans *Plans
	// Publisher offers renders to Flux; nil: nothing can be published.
	Publisher *publish.Publisher
	// Chunks hold inventories that do not fit a status.
	Chunks *engine.ChunkStore
	// Installation is the controller's --owner-id.
	Installation string
	// DefaultServiceAccount is used where an install names none; empty: such an
	// install is refused.
	DefaultServiceAccount string
	// ConfigsSelected is true when Client knows only some ConfigMaps and Secrets:
	// others are read at each reconcile.
	ConfigsSelected bool
	// SecretKey keys hashes of Secrets.
	SecretKey []byte
	Clock     clock.PassiveClock
	// Corrected is told how many objects of an install were put right that others had
	// changed; nil: nobody is.
	Corrected func(install types.NamespacedName, objects int)

	owners reconcile.Kept[*owner]
}

var _ reconcile.Steps[*appsv1.KsctlInstall] = (*Steps)(nil)

// Reconcile implements reconcile.Steps: observe → plan → act → outcome.
func (s *Steps) Reconcile(ctx context.Context, req *reconcile.Request[*appsv1.KsctlInstall]) reconcile.Outcome {
	o, err := s.owner(ctx, req)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	defer o.rest()
	if req.Requested || req.Object.Generation != req.Object.Status.ObservedGeneration {
		s.Engine.Forgive(o.Key()) // asked for, or wanted otherwise than when it failed
	}
	if err := s.followed(ctx, o); err != nil {
		return reconcile.Retry{Err: err}
	}
	if req.Object.Spec.Publish == nil {
		if err := s.withdraw(ctx, o); err != nil {
			return reconcile.Retry{Err: err}
		}
	}
	if out := s.untold(ctx, req.Object); out != nil {
		return out
	}
	o.holdAll = false
	if o.removals.whole() {
		return s.removeAll(ctx, o)
	}
	out, planned := s.install(ctx, o)
	if !planned && len(o.removals) > 0 {
		// What is asked to go needs nothing of what is missing.
		s.findHeirs(o, "")
		rep, failed := s.removeAsked(ctx, o)
		if failed != nil {
			return failed
		}
		if rep != nil {
			out = reconcile.By(out, rep.RetryAt)
		}
	}
	return out
}

// install takes the next possible step towards what the stack says. Planned is
// false when it could not even be said what that is, and when nothing is to be installed.
func (s *Steps) install(ctx context.Context, o *owner) (out reconcile.Outcome, planned bool) {
	req := o.req
	spec := &req.Object.Spec
	offered, err := s.Content.Artifact(ctx, spec.SourceRef, req.Object.Namespace, spec.Stack, spec.StackVersion)
	if err != nil {
		return content.SourceOutcome(err), false
	}
	from, err := o.released(ctx, offered)
	if err != nil {
		return reconcile.Retry{Err: err, Revision: offered.Revision}, false
	}
	if from.Digest == "" {
		return o.waitsForTurn("what it took in last is not known"), false
	}
	revision := from.Revision
	req.Object.Status.LastAttemptedRevision = revision
	c, err := s.clientFor(ctx, req.Object)
	if err != nil {
		return account.Outcome(err, revision), false
	}
	if o.blocked, err = s.dependencies(ctx, o, c); err != nil {
		return dependencyOutcome(err, revision), false
	}
	if len(o.blocked) > 0 && o.inv.Len() == 0 {
		return blocked(o.blocked, revision), false // what a chart needs of the cluster may come with them
	}
	there, err := s.aim(ctx, o, c)
	if err != nil {
		return target.Outcome(err, revision), false
	}
	want, err := s.render(ctx, o, c, from)
	if out := o.unserved(err, s.Clock.Now().Add(reconcile.RetryInterval(&spec.Schedule))); out != nil {
		return out, false
	}
	if err != nil {
		return renderOutcome(err, revision, s.Clock.Now()), false
	}
	req.Object.Status.StackVersion, req.Object.Status.Warnings = want.stackVersion, want.warnings
	of := offer{want: want, origin: revision}
	if publishesOnly(req.Object) {
		of.components = engine.Prepare(ctx, want.rendered, o.Policies(), o.target.Discovery)
		s.Plans.put(req.Object, from.Digest, nil)
		return s.publishOnly(ctx, o, of), false
	}
	return s.apply(ctx, o, of, there, from.Digest)
}

// apply takes the next possible step towards what was rendered, as a client of the cluster.
func (s *Steps) apply(ctx context.Context, o *owner, of offer, there *engine.Client, digest string) (out reconcile.Outcome, planned bool) {
	req, want, revision := o.req, of.want, of.origin
	if len(want.rendered) == 0 && o.inv.Len() > 0 {
		return reconcile.Stalled{Reason: EmptyRenderReason, Revision: revision,
			Err: fmt.Errorf("stack %q renders no objects, but %d are installed: nothing is removed; delete the KsctlInstall if that is meant", req.Object.Spec.Stack, o.inv.Len())}, false
	}
	req.Object.Status.Components = announced(req.Object.Status.Components, want.rendered)
	components := engine.Prepare(ctx, o.wantedOf(want.rendered), o.Policies(), o.target.Discovery)
	for i := range components {
		components[i].Blocked = o.blocked
	}
	s.Plans.put(req.Object, digest, components)
	s.findHeirs(o, digest)
	going := o.going()
	rep, err := s.Engine.Reconcile(ctx, o.target, there, o, components, s.retry(req.Object))
	o.report(rep)
	if rep != nil && len(going) > 0 {
		o.noteKept(going, rep)
	}
	if err == nil {
		s.settled(o, rep)
		err = o.flush(ctx)
	}
	if err != nil {
		return s.unrecorded(o, err, revision), true
	}
	if out, lost := s.orLost(o, nil, revision, rep.Errors...); lost {
		return out, true
	}
	if out := o.unserved(errors.Join(rep.Errors...), rep.RetryAt); out != nil {
		s.Engine.Forgive(o.key) // its turn may bring what is served
		return out, true
	}
	of.components = components
	return s.publishReady(ctx, o, of, o.outcome(rep, revision, s.Clock.Now())), true
}

// unrecorded is the outcome of a pass that could not be finished. Where somebody
// else changed the inventory, it goes on from what is stored, as after a crash.
func (s *Steps) unrecorded(o *owner, err error, revision string) reconcile.Outcome {
	out := reconcile.Retry{Err: err, Revision: revision}
	var conflict *engine.ChunkConflictError
	if errors.As(err, &conflict) {
		s.Forget(client.ObjectKeyFromObject(o.req.Object))
		out.After = time.Second
		return out
	}
	var going *target.Error
	if errors.As(err, &going) {
		return target.Outcome(err, revision)
	}
	judged, _ := s.orLost(o, out, revision)
	return judged
}

// Forget implements reconcile.Steps.
func (s *Steps) Forget(key types.NamespacedName) {
	if o, kept := s.owners.Drop(key); kept {
		s.leave(o)
	}
	s.Depends.Use(key, nil)
	s.Plans.forget(key)
}

// owner returns what is kept in memory of an install, loading it the first time.
func (s *Steps) owner(ctx context.Context, req *reconcile.Request[*appsv1.KsctlInstall]) (*owner, error) {
	in := req.Object
	name := client.ObjectKeyFromObject(in)
	load := func() (*owner, error) {
		key := engine.OwnerKey{Installation: s.Installation, Cluster: target.OfInstall(in), Kind: Kind, Namespace: name.Namespace, Name: name.Name}
		inv, err := s.Chunks.Open(ctx, key, in.Status.Inventory)
		return &owner{chunks: s.Chunks, key: key, inv: inv, corrected: s.Corrected}, err
	}
	o, err := s.owners.Get(name, in.UID, load)
	if err == nil && o.inv.Len() == 0 && o.key.Cluster != target.OfInstall(in) {
		s.Forget(name) // it goes to another cluster, and has left nothing behind
		o, err = s.owners.Get(name, in.UID, load)
	}
	if err != nil {
		return nil, err
	}
	o.req, o.recorded = req, publishes(in)
	return o, nil
}

func (s *Steps) retry(in *appsv1.KsctlInstall) engine.Retry {
	return engine.Retry{Interval: reconcile.RetryInterval(&in.Spec.Schedule), Contested: reconcile.Interval(&in.Spec.Schedule)}
}
