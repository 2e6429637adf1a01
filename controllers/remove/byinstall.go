package remove

import (
	"context"
	"fmt"
	"slices"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/controllers/remove/match"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/internal/sources/content"
)

// ByInstall reconciles KsctlRemoves with spec.installRef. It deletes nothing: it writes the objects
// to remove into the status (the rehearsal), waits until the controller of the install accepts
// them, and reports the progress. The install starts the removal only if the digest of the
// rehearsal equals that of its own inventory.
type ByInstall struct {
	// Client reads from the cache, Direct from the API server.
	Client, Direct client.Reader
	Engine         *engine.Engine
	Targets        *target.Resolver
	// Content finds the newest revision of the source of an install.
	Content *content.Loader
	// Installation is the value of the flag --owner-id.
	Installation          string
	DefaultServiceAccount string
	Clock                 clock.PassiveClock

	installTargets reconcile.ObjectCache[*installTarget]
}

var _ Form = (*ByInstall)(nil)

// Reconcile implements reconcile.Steps.
func (b *ByInstall) Reconcile(ctx context.Context, req *reconcile.Request[*appsv1.KsctlRemove]) reconcile.Outcome {
	rm := req.Object
	in, err := b.install(ctx, rm)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	if in == nil {
		return b.installNotFound(rm)
	}
	if in.Spec.ClusterSelector != nil {
		return reconcile.Stalled{Reason: appsv1.FormNotSupportedReason, Err: fmt.Errorf(
			"KsctlInstall %s is for many clusters: name the install of one of them, which its status.clusters has; "+
				"or change its clusterSelector, or delete it", in.Name)}
	}
	accepted := acceptedRemoval(in, rm)
	v, err := b.view(ctx, rm, in, accepted == nil)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	if accepted == nil { // an accepted removal keeps its components, even if the stack changes
		if out := b.checkComponents(ctx, rm, in, v.Entries.Entries()); out != nil {
			return out
		}
	}
	a := &installTarget{key: plan.OwnerKey{Cluster: plan.LocalCluster}, target: b.Targets.Local}
	if v.Entries.Len() > 0 { // an empty inventory needs no access to the cluster
		if a, err = b.findTarget(ctx, rm, in, req.Requested); err != nil {
			return target.Outcome(err, "")
		}
		// changes wake this KsctlRemove
		b.Engine.WatchKinds(ctx, a.target, &engine.ReadOnlyOwner{OwnerKey: a.key, Entries: v.Entries})
	}
	if accepted == nil {
		return b.orUnreachable(a, b.rehearse(ctx, rm, in, a, v))
	}
	left := b.Engine.RemovalProgress(a.target, v)
	if len(left) == 0 { // the cache may be stale: read the inventory from the API server
		if v, err = b.view(ctx, rm, in, true); err != nil {
			return reconcile.Retry{Err: err}
		}
		left = b.Engine.RemovalProgress(a.target, v)
	}
	reportProgress(&rm.Status, left, accepted.Kept)
	if len(left) == 0 {
		b.Forget(client.ObjectKeyFromObject(rm))
		return reconcile.Done{Message: doneMessage(rm, accepted.Kept)}
	}
	return b.orUnreachable(a, b.waitingOutcome(rm, in, progressMessage(rm, in, left)))
}

// orUnreachable returns out, or another outcome if the cluster does not respond.
func (b *ByInstall) orUnreachable(a *installTarget, out reconcile.Outcome) reconcile.Outcome {
	out, _ = b.Targets.OrUnreachable(a.target, out, "")
	return out
}

// checkComponents returns an outcome if spec.components has components that the install does not
// have. It reads the source from the API server: the cache may be older than the revision of the
// install, and no event would correct the result.
func (b *ByInstall) checkComponents(ctx context.Context, rm *appsv1.KsctlRemove, in *appsv1.KsctlInstall,
	entries []appsv1.InventoryEntry) reconcile.Outcome {
	var retryAt time.Time
	newestRevision := func() (string, error) {
		from, err := b.Content.UncachedArtifact(ctx, b.Direct, in.Spec.SourceRef, in.Namespace, in.Spec.Stack,
			in.Spec.StackVersion)
		if err != nil { // no event follows when the source becomes readable
			retryAt = b.Clock.Now().Add(reconcile.RetryInterval(&rm.Spec.Schedule))
		}
		return from.Revision, err
	}
	return reconcile.RequeueBy(componentsOutcome(rm, in, entries, newestRevision), retryAt)
}

// componentsOutcome returns the outcome if the install does not have all of spec.components, or has
// not reported its components yet; nil if it has all. newestRevision returns the revision of its
// source.
func componentsOutcome(rm *appsv1.KsctlRemove, in *appsv1.KsctlInstall, entries []appsv1.InventoryEntry,
	newestRevision func() (string, error)) reconcile.Outcome {
	if len(rm.Spec.Components) == 0 {
		return nil
	}
	final := in.DeletionTimestamp != nil ||
		slices.ContainsFunc(in.Status.Removals, func(r appsv1.InstallRemoval) bool { return len(r.Components) == 0 })
	if len(in.Status.Components) == 0 {
		if final {
			return nil // the install will not render any more
		}
		return waitForInstall(in, fmt.Sprintf("KsctlInstall %s has not reported its components yet", in.Name))
	}
	err := match.CheckComponents(&rm.Spec, "KsctlInstall "+in.Name, installComponents(in, entries))
	if err == nil {
		return nil
	}
	if final {
		return reconcile.OutcomeOf(err, "")
	}
	newest, sourceErr := newestRevision()
	switch {
	case sourceErr != nil:
		return waitForInstall(in,
			fmt.Sprintf("%v; reading the newest revision of its source failed: %v", err, sourceErr))
	case newest != in.Status.LastAttemptedRevision || !reportsCurrentComponents(in):
		return waitForInstall(in, fmt.Sprintf("%v; revision %s is not rendered yet", err, newest))
	}
	return reconcile.OutcomeOf(err, "")
}

// reportsCurrentComponents reports whether the components in the status of an install are those of
// its last attempted revision and its current spec. This is so as soon as these are rendered.
// Readiness does not matter, because the object to remove may be the reason why the install is not
// ready.
func reportsCurrentComponents(in *appsv1.KsctlInstall) bool {
	c := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition)
	return c != nil && c.Status != metav1.ConditionFalse && c.ObservedGeneration == in.Generation
}

// waitForInstall returns the outcome while the install has to report more.
func waitForInstall(in *appsv1.KsctlInstall, message string) reconcile.Outcome {
	if in.Spec.Suspend {
		message += fmt.Sprintf(". KsctlInstall %s is suspended: resume it", in.Name)
	} else if installErr := installMessage(in); installErr != "" {
		message += ". " + installErr
	}
	return reconcile.Waiting{On: message, For: waitForRemoval(in), Reason: fluxmeta.ProgressingReason}
}

// installComponents returns the components of an install: those of its stack, those that its spec
// disables, and those that left the stack, but still have objects.
func installComponents(in *appsv1.KsctlInstall, entries []appsv1.InventoryEntry) []string {
	var out []string
	for _, c := range in.Status.Components {
		out = append(out, c.Name)
	}
	for _, c := range in.Spec.Components {
		out = append(out, c.Name)
	}
	for _, e := range entries {
		if e.Component != "" {
			out = append(out, e.Component)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Finalize implements reconcile.Steps. The install creates the removed objects again.
func (b *ByInstall) Finalize(context.Context, *reconcile.Request[*appsv1.KsctlRemove]) reconcile.Outcome {
	return reconcile.Done{Message: "the install may create the removed objects again"}
}

// install returns the install of spec.installRef; nil if it does not exist.
func (b *ByInstall) install(ctx context.Context, rm *appsv1.KsctlRemove) (*appsv1.KsctlInstall, error) {
	key := types.NamespacedName{Namespace: rm.Namespace, Name: rm.Spec.InstallRef.Name}
	in := &appsv1.KsctlInstall{}
	err := b.Client.Get(ctx, key, in)
	if !apierrors.IsNotFound(err) {
		return in, err
	}
	if err = b.Direct.Get(ctx, key, in); apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("KsctlInstall %s exists, but is not in the cache of this controller: if it runs with "+
		"--watch-label-selector, both objects need matching labels", key)
}

// acceptedRemoval returns the record of the KsctlRemove in the status of an install that has
// accepted its rehearsal; nil if it has not.
func acceptedRemoval(in *appsv1.KsctlInstall, rm *appsv1.KsctlRemove) *appsv1.InstallRemoval {
	for i := range in.Status.Removals {
		r := &in.Status.Removals[i]
		if r.Name == rm.Name && r.UID == rm.UID && r.Generation == rm.Generation && r.Digest != "" &&
			rm.Status.Removal != nil && rm.Status.Removal.Generation == rm.Generation {
			return r
		}
	}
	return nil
}

// view returns the inventory of the install, with the policies of the removal. If exact is true, it
// reads chunks of the inventory from the API server instead of the cache.
func (b *ByInstall) view(ctx context.Context, rm *appsv1.KsctlRemove, in *appsv1.KsctlInstall,
	exact bool) (*engine.ReadOnlyOwner, error) {
	chunks := &engine.ChunkStore{Reader: b.Client, APIReader: b.Client}
	if exact {
		chunks.APIReader = b.Direct
	}
	key := plan.OwnerKey{Installation: b.Installation, Cluster: target.InstallCluster(in),
		Kind: appsv1.KsctlInstallKind, Namespace: in.Namespace, Name: in.Name}
	entries, err := chunks.LoadInventory(ctx, key, in.Status.Inventory)
	if err != nil {
		return nil, err
	}
	p := plan.DefaultPolicies
	p.RemovalRequest = removalRequests(rm, in)
	return &engine.ReadOnlyOwner{OwnerKey: key, Entries: entries, Policy: p}, nil
}

// installNotFound returns the outcome if the install does not exist, or not any more: only kept
// objects are left.
func (b *ByInstall) installNotFound(rm *appsv1.KsctlRemove) reconcile.Outcome {
	b.Forget(client.ObjectKeyFromObject(rm))
	name := rm.Namespace + "/" + rm.Spec.InstallRef.Name
	if rehearsal := rm.Status.Removal; rehearsal == nil || rehearsal.Generation != rm.Generation {
		rm.Status.Removal = &appsv1.Removal{Generation: rm.Generation, Digest: plan.Digest(nil),
			MadeAt: metav1.NewTime(b.Clock.Now())}
		rm.Status.Removed, rm.Status.Left, rm.Status.Remaining = ptr.To[int32](0), ptr.To[int32](0), nil
		return reconcile.Done{Message: fmt.Sprintf("KsctlInstall %s does not exist: there is nothing to remove; if "+
			"the install is created, it does not create the named objects", name)}
	}
	kept := rm.Status.Removal.Kept
	if rm.Status.Removed != nil && *rm.Status.Removed < rm.Status.Removal.Count-int32(len(kept)) {
		reportProgress(&rm.Status, nil, kept) // the deletion of the install removed the rest
	}
	return reconcile.Done{Message: doneMessage(rm, kept) + fmt.Sprintf("; KsctlInstall %s does not exist", name)}
}

// waitingOutcome returns the outcome of a removal in progress, and whether it exceeds the timeout.
func (b *ByInstall) waitingOutcome(rm *appsv1.KsctlRemove, in *appsv1.KsctlInstall, message string) reconcile.Outcome {
	out := reconcile.Waiting{On: message, For: waitForRemoval(in), Reason: appsv1.RemovingReason}
	if in.Spec.Suspend && in.DeletionTimestamp == nil {
		out.On = fmt.Sprintf("KsctlInstall %s is suspended: resume it to continue; %s", in.Name, message)
	}
	timeout := reconcile.Timeout(&rm.Spec.Schedule)
	if until := rm.Status.Removal.MadeAt.Add(timeout); b.Clock.Now().Before(until) {
		out.RequeueAt = until
	} else {
		out.TimedOut, out.Reason = true, appsv1.TimeoutReason
		out.On = fmt.Sprintf("not removed within %s, still in progress: %s", timeout.Round(time.Second), out.On)
	}
	return out
}

// waitForRemoval returns the wait for an install that removes its objects.
func waitForRemoval(in *appsv1.KsctlInstall) []appsv1.WaitReference {
	return []appsv1.WaitReference{{Type: appsv1.WaitRemoval, Kind: appsv1.KsctlInstallKind, Namespace: in.Namespace,
		Name: in.Name}}
}
