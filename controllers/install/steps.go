package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/install/handover"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/internal/sources/content"
	"github.com/ksctl/gitops/internal/sources/publish"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
)

// Steps reconciles a KsctlInstall for one cluster, or an object of a served kind.
type Steps struct {
	// Client reads from the cache.
	Client client.Reader
	// Content fetches artifacts and renders stacks.
	Content *content.Loader
	// Engine changes the target cluster of an install. Targets resolves that cluster.
	Engine  *engine.Engine
	Targets *target.Resolver
	// Dependencies watches the objects that installs depend on.
	Dependencies DependencyWatcher
	// Plans has the objects that each install has planned.
	Plans *handover.Plans
	// Publisher publishes rendered stacks for Flux. It is nil if publishing is disabled.
	Publisher *publish.Publisher
	// Chunks stores inventories that do not fit into a status.
	Chunks *engine.ChunkStore
	// Installation is the controller's --owner-id.
	Installation string
	// Served is set for the objects of a served kind.
	Served *ServedKind
	// DefaultServiceAccount is used by installs without spec.serviceAccountName. If both are empty,
	// an install is rejected.
	DefaultServiceAccount string
	// ConfigsSelected is true if the cache of Client has only some of the ConfigMaps and Secrets.
	// The others are read in each reconcile.
	ConfigsSelected bool
	// SecretKey is the key of the keyed hashes of Secrets.
	SecretKey []byte
	Clock     clock.PassiveClock
	// RecordDriftCorrections is called with the number of objects of an install whose drift was
	// corrected.
	RecordDriftCorrections func(install types.NamespacedName, objects int)

	owners     reconcile.ObjectCache[*owner]
	denied     deniedInstalls
	waitCycles waitCycles
	factReads  factReads
}

var _ reconcile.Steps[*appsv1.KsctlInstall] = (*Steps)(nil)

// Reconcile implements reconcile.Steps: observe → plan → act → outcome.
func (s *Steps) Reconcile(ctx context.Context, req *reconcile.Request[*appsv1.KsctlInstall]) (out reconcile.Outcome) {
	o, err := s.owner(ctx, req)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	defer func() { out = s.endReconcile(o, out) }()
	s.retryDenied(o)
	if req.Requested || req.Object.Generation != req.Object.Status.ObservedGeneration {
		s.Engine.ResetBackoff(o.Key()) // a user requested a retry, or changed the spec since the failure
		s.Engine.ResetRecreations(o.Key())
	}
	if err := s.updateRemovalRequests(ctx, o); err != nil {
		return reconcile.Retry{Err: err}
	}
	if err := s.updateLineage(ctx, o); err != nil {
		return reconcile.Retry{Err: err}
	}
	if req.Object.Spec.Publish == nil {
		if err := s.withdraw(ctx, o); err != nil {
			return reconcile.Retry{Err: err}
		}
	}
	if out := s.deferOnStalePlan(ctx, req.Object); out != nil {
		return out
	}
	o.holdAll = false
	if o.removalRequests.coverInstall() {
		return s.removeAll(ctx, o)
	}
	input, out := s.prepare(ctx, o)
	planned := false
	if input != nil {
		out, planned = s.apply(ctx, o, input)
	}
	if !planned && len(o.removalRequests) > 0 {
		// Requested removals do not need a plan.
		o.handover = s.newHandover(o, "")
		rep, failed := s.removeRequested(ctx, o)
		if failed != nil {
			return failed
		}
		if rep != nil {
			out = reconcile.RequeueBy(out, rep.RetryAt)
		}
	}
	return out
}

// applyInput is a rendered stack to apply or publish.
type applyInput struct {
	stack *renderedStack
	// components are prepared for the target cluster. They are set by apply and publishOnly.
	components []plan.Component
	// client sends the requests to the target cluster.
	client *engine.Client
	// revision is the revision of the source, and digest the digest of its artifact.
	revision, digest string
}

// prepare renders the stack. It returns an outcome instead of an input if the objects of the stack
// cannot be determined, or if no objects are to be applied.
func (s *Steps) prepare(ctx context.Context, o *owner) (*applyInput, reconcile.Outcome) {
	req := o.req
	spec := &req.Object.Spec
	selected, out := s.selectArtifact(ctx, o)
	if out != nil {
		return nil, out
	}
	revision := selected.Revision
	req.Object.Status.LastAttemptedRevision = revision
	o.unmetDependencies = nil
	input, out := s.renderArtifact(ctx, o, selected)
	blocked := len(o.unmetDependencies) > 0 && o.inv.Len() == 0
	switch {
	case out != nil:
		if _, deferred := out.(reconcile.Deferred); !deferred && ctx.Err() == nil {
			_, definite := out.(reconcile.Stalled)
			s.recordFailure(o, selected.Digest, definite)
		}
		if blocked { // the dependencies may provide what the render needs
			out = reconcile.RequeueBy(blockedOutcome(o.unmetDependencies, revision), s.retryTime(out, &spec.Schedule))
		}
		return nil, out
	case publishesOnly(req.Object) && blocked:
		s.recordPlan(o, selected.Digest, nil, false) // it never has objects
		return nil, blockedOutcome(o.unmetDependencies, revision)
	case publishesOnly(req.Object):
		return nil, s.publishOnly(ctx, o, input)
	}
	return input, nil
}

// retryTime returns the time of the next attempt after an outcome; zero if an event triggers it.
func (s *Steps) retryTime(out reconcile.Outcome, schedule *appsv1.Schedule) time.Time {
	switch out := out.(type) {
	case reconcile.Retry:
		return s.Clock.Now().Add(cmp.Or(out.RequeueAfter, reconcile.RetryInterval(schedule)))
	case reconcile.Deferred:
		return out.RequeueAt
	case reconcile.Waiting:
		return out.RequeueAt
	}
	return time.Time{}
}

// renderArtifact finds the unmet dependencies, and renders the stack of an artifact. Rendering does
// not wait for dependencies: other installs wait for the plan. It returns the outcome of an error.
func (s *Steps) renderArtifact(ctx context.Context, o *owner, a artifact.Artifact) (*applyInput, reconcile.Outcome) {
	in, revision := o.req.Object, a.Revision
	c, err := s.clientFor(ctx, in)
	if err != nil {
		return nil, reconcile.OutcomeOf(err, revision)
	}
	s.recordAccount(ctx, o)
	if o.unmetDependencies, err = s.unmetDependencies(ctx, o, c); err != nil {
		return nil, dependencyOutcome(err, revision)
	}
	targetClient, err := s.resolveTarget(ctx, o, c)
	if err != nil {
		return nil, target.Outcome(err, revision)
	}
	keptBy := targetClient
	if publishesOnly(in) {
		keptBy = c // the generated values are kept beside the install
	}
	stack, err := s.render(ctx, o, c, keptBy, a)
	if out := o.artifactUnavailable(err, s.Clock.Now().Add(reconcile.RetryInterval(&in.Spec.Schedule))); out != nil {
		return nil, out
	}
	if err != nil {
		return nil, renderOutcome(err, revision, s.Clock.Now())
	}
	in.Status.StackVersion, in.Status.Warnings = stack.stackVersion,
		boundWarnings(slices.Concat(stack.warnings, o.expiringCertificates(s.Clock.Now())))
	return &applyInput{stack: stack, client: targetClient, revision: revision, digest: a.Digest}, nil
}

// apply performs the next possible step to apply the rendered objects to the target cluster.
// planned is false if no plan was made.
func (s *Steps) apply(ctx context.Context, o *owner, input *applyInput) (out reconcile.Outcome, planned bool) {
	req, stack, revision := o.req, input.stack, input.revision
	if len(stack.components) == 0 && o.inv.Len() > 0 {
		s.recordFailure(o, input.digest, true)
		return reconcile.Stalled{Reason: appsv1.EmptyRenderReason, Revision: revision,
			Err: fmt.Errorf("stack %q renders no objects, but %d objects are installed: no objects are removed; "+
				"delete the KsctlInstall to remove them", req.Object.Spec.Stack, o.inv.Len())}, false
	}
	req.Object.Status.Components = addRenderedComponents(req.Object.Status.Components, stack.components)
	wanted, unsaved := o.prepareReleases(o.withoutRequested(stack.components))
	components := slices.Concat(engine.Prepare(ctx, wanted, o.Policies(), o.target.Discovery), o.tests(ctx, wanted))
	o.refuseLineage(components)
	s.Served.refuseObjects(ctx, o.req.Object, components)
	for i := range components {
		components[i].BlockedOn = messagesOf(o.unmetDependencies)
	}
	// The dependencies may provide kinds that change what a chart renders.
	o.provisional = len(o.unmetDependencies) > 0 &&
		slices.ContainsFunc(stack.components, func(c stacks.RenderedComponent) bool { return c.ReadsCluster })
	s.recordPlan(o, input.digest, components, o.provisional)
	if len(o.unmetDependencies) > 0 && o.inv.Len() == 0 {
		return blockedOutcome(o.unmetDependencies, revision), true
	}
	o.handover = s.newHandover(o, input.digest)
	removable := o.removableObjects()
	pass, err := s.pass(ctx, o, input.client, components)
	if err != nil {
		return reconcile.Retry{Err: err, Revision: revision}, false
	}
	pass.Unsaved = unsaved
	rep, err := s.Engine.Reconcile(ctx, pass, components)
	if err == nil {
		st := &req.Object.Status
		st.SharedDefinitions = sharedDefinitions(st.SharedDefinitions, components, &rep.Plan, o.inv)
	}
	if out := s.recordPass(ctx, o, rep, err, removable, revision); out != nil {
		return out, true
	}
	if out, lost := s.orClusterLost(o, nil, revision, rep.Errors...); lost {
		return out, true
	}
	if out := o.artifactUnavailable(errors.Join(rep.Errors...), rep.RetryAt); out != nil {
		s.Engine.ResetBackoff(o.key) // the rollout may release an artifact that is available
		return out, true
	}
	o.recordTests(rep.Plan.Tests)
	o.recordReleases(rep.Plan.Components)
	input.components = slices.DeleteFunc(components, func(c plan.Component) bool { return c.Test }) // not published
	out = reconcile.RequeueBy(o.outcome(rep, revision, s.Clock.Now()), o.handover.RetryAt)
	if done, isDone := out.(reconcile.Done); isDone && !rep.DeleteAt.IsZero() {
		done.RequeueAt = rep.DeleteAt
		out = done
	}
	out = reconcile.RequeueBy(out, rep.DeleteAt)
	return s.publishWhenReady(ctx, o, input, out), true
}

// recordPass records the result of a pass of the engine. rep can be nil if err is not. removable
// are the objects that active requests remove, see removableObjects. It returns the outcome of an
// error, or nil.
func (s *Steps) recordPass(ctx context.Context, o *owner, rep *engine.Report, err error, removable map[string]string,
	revision string) reconcile.Outcome {
	if rep != nil {
		o.passErrors, o.passed = rep.Errors, true
		s.reportChanges(o, rep)
		o.recordKept(removable, rep)
		o.req.Object.Status.Warnings = boundWarnings(slices.Concat(o.req.Object.Status.Warnings, rep.Warnings))
	}
	if err == nil {
		s.endPlanWaits(o, rep)
		err = o.flush(ctx)
	}
	if err != nil {
		return s.interruptedOutcome(o, err, revision)
	}
	return nil
}

// interruptedOutcome is the outcome of a reconcile that an error interrupted. If another process
// changed the stored inventory, the next reconcile loads the stored inventory, as after a crash.
func (s *Steps) interruptedOutcome(o *owner, err error, revision string) reconcile.Outcome {
	out := reconcile.Retry{Err: err, Revision: revision}
	var conflict *engine.ChunkConflictError
	if errors.As(err, &conflict) {
		s.Forget(client.ObjectKeyFromObject(o.req.Object))
		out.RequeueAfter = time.Second
		return out
	}
	var targetErr *target.Error
	if errors.As(err, &targetErr) {
		return target.Outcome(err, revision)
	}
	orLost, _ := s.orClusterLost(o, out, revision)
	return orLost
}

// endReconcile records what an install lacked, and drops the state that only a running reconcile
// needs.
func (s *Steps) endReconcile(o *owner, out reconcile.Outcome) reconcile.Outcome {
	out = s.recordDenied(o, out)
	o.req, o.manifests, o.passErrors, o.provisional = nil, nil, nil, false
	o.former = nil
	return out
}

// Forget implements reconcile.Steps.
func (s *Steps) Forget(key types.NamespacedName) {
	s.denied.record(key, nil, 0)
	s.factReads.reset(key)
	s.waitCycles.record(key, "", time.Time{})
	if o, kept := s.owners.Drop(key); kept {
		s.forgetOwner(o)
	}
	s.Dependencies.SetDependencies(key, nil)
	s.Plans.DropPlan(key)
}

// owner returns the in-memory state of an install. It loads the inventory the first time.
func (s *Steps) owner(ctx context.Context, req *reconcile.Request[*appsv1.KsctlInstall]) (*owner, error) {
	in := req.Object
	name := client.ObjectKeyFromObject(in)
	load := func() (*owner, error) {
		key := plan.OwnerKey{Installation: s.Installation, Cluster: target.InstallCluster(in),
			Kind: s.kind(), Namespace: name.Namespace, Name: name.Name}
		inv, err := s.Chunks.LoadInventory(ctx, key, in.Status.Inventory)
		if err != nil {
			return nil, err
		}
		return &owner{chunks: s.Chunks, key: key, inv: inv, releases: loadReleases(in, inv)}, nil
	}
	o, err := s.owners.Get(name, in.UID, load)
	if err == nil && o.inv.Len() == 0 && o.key.Cluster != target.InstallCluster(in) {
		s.Forget(name) // the target cluster has changed, and no objects are left in the previous one
		o, err = s.owners.Get(name, in.UID, load)
	}
	if err != nil {
		return nil, err
	}
	o.req, o.publishRecorded = req, mayBePublished(in)
	if s.Served != nil {
		o.report = func(ref stacks.Ref) string { return s.Served.Report(req.Object, ref) }
	}
	return o, nil
}

// pass returns a pass of the engine over the objects of an install. desired are its components; nil
// for a removal.
func (s *Steps) pass(ctx context.Context, o *owner, c *engine.Client, desired []plan.Component) (engine.Pass, error) {
	hooks, err := o.removalHooks(ctx, c, desired)
	for i := range hooks {
		s.Served.refuseObjects(ctx, o.req.Object, []plan.Component{hooks[i].Pre, hooks[i].Post})
	}
	schedule := &o.req.Object.Spec.Schedule
	return engine.Pass{Owner: o, Target: o.target, Client: c, RemovalHooks: hooks,
		MayReceive: s.mayReceive(o), IsActive: s.isActive(o), ReportDifferent: o.reportDifferent,
		Retry: engine.RetryPolicy{Interval: reconcile.RetryInterval(schedule),
			ContestedInterval: reconcile.Interval(schedule)}}, err
}

// newHandover returns the handover of a reconcile, see handover.Plans.NewHandover.
func (s *Steps) newHandover(o *owner, artifact string) *handover.Handover {
	h := s.Plans.NewHandover(o.req.Object, o.key, artifact)
	h.Serves = func(id string) *stacks.ServedKind {
		ref, err := stacks.ParseID(id)
		if err != nil || o.target == nil {
			return nil
		}
		l, _ := o.target.Index.Get(ref)
		return l.Serves
	}
	return h
}
