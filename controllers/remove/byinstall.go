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
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/controllers/remove/match"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/internal/sources/content"
)

// InstallKind is the kind whose objects are removed by spec.installRef.
const InstallKind = "KsctlInstall"

// ByInstall is the form with spec.installRef. It deletes nothing: it writes down what
// will go, which the install's controller takes up, and then how far that came. The
// digest of the rehearsal ties the two: the install begins when it is that of what it
// has itself.
type ByInstall struct {
	// Client reads from the cache, Direct from the API server.
	Client, Direct client.Reader
	Engine         *engine.Engine
	Targets        *target.Targets
	// Content finds what the source of an install offers.
	Content *content.Loader
	// Installation is the controller's --owner-id.
	Installation          string
	DefaultServiceAccount string
	Clock                 clock.PassiveClock

	aims reconcile.Kept[*aimed]
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
		return b.absent(rm)
	}
	if in.Spec.ClusterSelector != nil {
		return reconcile.Stalled{Reason: FormNotSupportedReason, Err: fmt.Errorf(
			"KsctlInstall %s is for many clusters: name the install of one of them, which its status.clusters has; or change its clusterSelector, or delete it", in.Name)}
	}
	took := follows(in, rm)
	v, err := b.view(ctx, rm, in, took == nil)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	if took == nil { // what it took up stays named, whatever becomes of the stack
		if out := b.unknown(ctx, rm, in, v.Entries.Entries()); out != nil {
			return out
		}
	}
	a := &aimed{key: engine.OwnerKey{Cluster: engine.LocalCluster}, target: b.Targets.Local}
	if v.Entries.Len() > 0 { // else there is nothing to look for
		if a, err = b.aim(ctx, rm, in, req.Requested); err != nil {
			return target.Outcome(err, "")
		}
		b.Engine.Watch(ctx, a.target, a.key, v)
	}
	if took == nil {
		return b.orLost(a, b.rehearse(ctx, rm, in, a, v))
	}
	left := b.Engine.Standing(a.target, v)
	if len(left) == 0 { // a cache may be behind: ask who knows
		if v, err = b.view(ctx, rm, in, true); err != nil {
			return reconcile.Retry{Err: err}
		}
		left = b.Engine.Standing(a.target, v)
	}
	progress(&rm.Status, left, took.Kept)
	if len(left) == 0 {
		b.forget(client.ObjectKeyFromObject(rm))
		return reconcile.Done{Message: done(rm, took.Kept)}
	}
	return b.orLost(a, b.waiting(rm, in, going(rm, in, left)))
}

// orLost is an outcome, or that of the cluster having ceased to answer.
func (b *ByInstall) orLost(a *aimed, out reconcile.Outcome) reconcile.Outcome {
	out, _ = b.Targets.OrLost(a.target, out, "")
	return out
}

// unknown finds out whether components are named that the install has not, with the
// source as it is now: a cache may be behind what the install went by, and then what is
// said of it would stay.
func (b *ByInstall) unknown(ctx context.Context, rm *appsv1.KsctlRemove, in *appsv1.KsctlInstall, entries []appsv1.InventoryEntry) reconcile.Outcome {
	var again time.Time
	offered := func() (string, error) {
		from, err := b.Content.Newest(ctx, b.Direct, in.Spec.SourceRef, in.Namespace, in.Spec.Stack, in.Spec.StackVersion)
		if err != nil { // no event tells when it can be read
			again = b.Clock.Now().Add(reconcile.RetryInterval(&rm.Spec.Schedule))
		}
		return from.Revision, err
	}
	return reconcile.By(unknown(rm, in, entries, offered), again)
}

// unknown is the outcome where components are named that the install has not, or not
// said yet that it has; nil: it has all. offered is the revision that its source has.
func unknown(rm *appsv1.KsctlRemove, in *appsv1.KsctlInstall, entries []appsv1.InventoryEntry, offered func() (string, error)) reconcile.Outcome {
	if len(rm.Spec.Components) == 0 {
		return nil
	}
	final := in.DeletionTimestamp != nil ||
		slices.ContainsFunc(in.Status.Removals, func(r appsv1.InstallRemoval) bool { return len(r.Components) == 0 })
	if len(in.Status.Components) == 0 {
		if final {
			return nil // it will never say
		}
		return awaits(in, fmt.Sprintf("KsctlInstall %s has not said yet which components it has", in.Name))
	}
	err := match.Components(&rm.Spec, "KsctlInstall "+in.Name, has(in, entries))
	if err == nil {
		return nil
	}
	if final {
		return reconcile.Stalled{Err: err, Reason: match.NoSuchComponentReason}
	}
	newest, failed := offered()
	switch {
	case failed != nil:
		return awaits(in, fmt.Sprintf("%v; whether its source has it by now is not known: %v", err, failed))
	case newest != in.Status.LastAttemptedRevision || !hasSaid(in):
		return awaits(in, fmt.Sprintf("%v, so far: it is not done with revision %s", err, newest))
	}
	return reconcile.Stalled{Err: err, Reason: match.NoSuchComponentReason}
}

// hasSaid is true when an install names the components of the revision that it tried
// last and of its spec: it does once that is rendered. Whether it is ready does not
// count, what is asked to go may be why it is not.
func hasSaid(in *appsv1.KsctlInstall) bool {
	c := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition)
	return c != nil && c.Status != metav1.ConditionFalse && c.ObservedGeneration == in.Generation
}

// awaits is the outcome while an install is to say more than it has.
func awaits(in *appsv1.KsctlInstall, on string) reconcile.Outcome {
	if in.Spec.Suspend {
		on += fmt.Sprintf(". KsctlInstall %s is suspended: resume it", in.Name)
	} else if why := says(in); why != "" {
		on += ". " + why
	}
	return reconcile.Waiting{On: on, Reason: fluxmeta.ProgressingReason}
}

// has are the components of an install: those of its stack, those that it chose not to
// have, and those that left the stack and are not gone.
func has(in *appsv1.KsctlInstall, entries []appsv1.InventoryEntry) []string {
	var out []string
	for i := range in.Status.Components {
		out = append(out, in.Status.Components[i].Name)
	}
	for i := range in.Spec.Components {
		out = append(out, in.Spec.Components[i].Name)
	}
	for i := range entries {
		if name := entries[i].Component; name != "" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Finalize implements reconcile.Steps: what was removed comes back by itself.
func (b *ByInstall) Finalize(context.Context, *reconcile.Request[*appsv1.KsctlRemove]) reconcile.Outcome {
	return reconcile.Done{Message: "nothing is kept away any more"}
}

// Forget implements reconcile.Steps.
func (b *ByInstall) Forget(key types.NamespacedName) {
	b.forget(key)
}

// install reads the install that is named; nil: there is none.
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
	return nil, fmt.Errorf("KsctlInstall %s exists and is not seen by this controller: when it runs with --watch-label-selector, give both objects the labels that it selects", key)
}

// follows is how an install follows a KsctlRemove, once it took up its rehearsal.
func follows(in *appsv1.KsctlInstall, rm *appsv1.KsctlRemove) *appsv1.InstallRemoval {
	for i := range in.Status.Removals {
		r := &in.Status.Removals[i]
		if r.Name == rm.Name && r.UID == rm.UID && r.Generation == rm.Generation && r.Digest != "" &&
			rm.Status.Removal != nil && rm.Status.Removal.Generation == rm.Generation {
			return r
		}
	}
	return nil
}

// view is what the install has, and how what is named is to go. Exact asks the API
// server for what is not in the install itself.
func (b *ByInstall) view(ctx context.Context, rm *appsv1.KsctlRemove, in *appsv1.KsctlInstall, exact bool) (*engine.View, error) {
	chunks := &engine.ChunkStore{Reader: b.Client, Direct: b.Client}
	if exact {
		chunks.Direct = b.Direct
	}
	key := engine.OwnerKey{Installation: b.Installation, Cluster: target.OfInstall(in), Kind: InstallKind, Namespace: in.Namespace, Name: in.Name}
	entries, err := chunks.Open(ctx, key, in.Status.Inventory)
	if err != nil {
		return nil, err
	}
	p := engine.DefaultPolicies
	p.Asked = asked(rm, in)
	return &engine.View{Of: key, Entries: entries, Policy: p}, nil
}

// absent is for an install that is not there, or no more: what it was left with is all
// that there is.
func (b *ByInstall) absent(rm *appsv1.KsctlRemove) reconcile.Outcome {
	b.forget(client.ObjectKeyFromObject(rm))
	name := rm.Namespace + "/" + rm.Spec.InstallRef.Name
	if said := rm.Status.Removal; said == nil || said.Generation != rm.Generation {
		rm.Status.Removal = &appsv1.Removal{Generation: rm.Generation, Digest: engine.Digest(nil), MadeAt: metav1.NewTime(b.Clock.Now())}
		rm.Status.Removed, rm.Status.Left, rm.Status.Remaining = ptr.To[int32](0), ptr.To[int32](0), nil
		return reconcile.Done{Message: fmt.Sprintf("KsctlInstall %s does not exist: there is nothing to remove, and one that is made installs nothing of it", name)}
	}
	kept := rm.Status.Removal.Kept
	if rm.Status.Removed != nil && *rm.Status.Removed < rm.Status.Removal.Count-int32(len(kept)) {
		progress(&rm.Status, nil, kept) // it went with the install
	}
	return reconcile.Done{Message: done(rm, kept) + fmt.Sprintf("; KsctlInstall %s does not exist", name)}
}

// waiting says what the removal waits for, and when that takes too long.
func (b *ByInstall) waiting(rm *appsv1.KsctlRemove, in *appsv1.KsctlInstall, on string) reconcile.Outcome {
	out := reconcile.Waiting{On: on, Reason: reconcile.RemovingReason}
	if in.Spec.Suspend && in.DeletionTimestamp == nil {
		out.On = fmt.Sprintf("KsctlInstall %s is suspended: resume it to go on; %s", in.Name, on)
	}
	within := reconcile.Timeout(&rm.Spec.Schedule)
	if until := rm.Status.Removal.MadeAt.Add(within); b.Clock.Now().Before(until) {
		out.Until = until
	} else {
		out.Late, out.Reason = true, reconcile.TimeoutReason
		out.On = fmt.Sprintf("not removed within %s, and going on: %s", within.Round(time.Second), out.On)
	}
	return out
}
