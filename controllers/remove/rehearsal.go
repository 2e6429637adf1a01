package remove

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/dependency"
	"github.com/ksctl/gitops/stacks"
)

// removalRequests returns a function that returns the removal request for an inventory entry; nil
// for entries that the KsctlRemove does not name.
func removalRequests(rm *appsv1.KsctlRemove,
	in *appsv1.KsctlInstall) func(*appsv1.InventoryEntry) *plan.RemovalRequest {
	spec := &rm.Spec
	request := &plan.RemovalRequest{
		DeleteCustomResources: spec.CustomResources == appsv1.CustomResourcesDelete,
		KeepReason: func(ref stacks.Ref) string {
			if spec.Keeps(ref.Group, ref.Kind, ref.Namespace, ref.Name) {
				return "spec.keep lists " + ref.Kind
			}
			if g := in.Spec.Guard; g != nil && slices.Contains(g.ProtectKinds, ref.Kind) {
				return "spec.guard.protectKinds of the install lists " + ref.Kind
			}
			return ""
		},
	}
	return func(e *appsv1.InventoryEntry) *plan.RemovalRequest {
		if !spec.Names(e.Component) {
			return nil
		}
		return request
	}
}

// rehearse writes the objects to remove into the status, unless they are already there, and waits
// until the install accepts them.
func (b *ByInstall) rehearse(ctx context.Context, rm *appsv1.KsctlRemove, in *appsv1.KsctlInstall, a *installTarget,
	v *engine.ReadOnlyOwner) reconcile.Outcome {
	entries := slices.DeleteFunc(v.Entries.Entries(), func(e appsv1.InventoryEntry) bool {
		return !rm.Spec.Names(e.Component)
	})
	digest := plan.Digest(entries)
	if recorded := rm.Status.Removal; recorded == nil || recorded.Generation != rm.Generation ||
		recorded.Digest != digest {
		r, err := b.Engine.PreviewRemoval(ctx, engine.Pass{Owner: v, Target: a.target, Client: a.client})
		if err != nil {
			return reconcile.Retry{Err: err}
		}
		if r.SyncError != nil { // an event follows when the index is synced
			return reconcile.Waiting{On: r.SyncError.Error(),
				For: []appsv1.WaitReference{{Type: appsv1.WaitResponse, Kind: "Watch", Namespace: in.Namespace,
					Name: in.Name}}, Reason: appsv1.IndexStaleReason}
		}
		removed := isRemoved(r)
		if a.key.Cluster != plan.LocalCluster {
			removed = func(string) bool { return false } // dependencies are on objects of the local cluster
		}
		var installs appsv1.KsctlInstallList
		if err := b.Client.List(ctx, &installs, client.UnsafeDisableDeepCopy); err != nil {
			return reconcile.Retry{Err: err}
		}
		rm.Status.Removal = removalStatus(r, rm.Generation, digest, len(entries))
		rm.Status.Removal.MadeAt = metav1.NewTime(b.Clock.Now())
		rm.Status.Removal.Dependents = firstOf(dependentMessages(&rm.Spec, in, installs.Items, removed), maxRemarks)
	}
	rm.Status.Removed, rm.Status.Left = ptr.To[int32](0), ptr.To(int32(len(entries)))
	rm.Status.Remaining = nil
	return b.waitingOutcome(rm, in, rehearsalMessage(rm))
}

// Bounds of what a rehearsal lists; further steps and objects are counted.
const (
	maxSteps   = 64
	maxObjects = 20
	maxRemarks = 50
)

// removalStatus returns a rehearsal for the status, shortened to its bounds.
func removalStatus(r *engine.RemovalPreview, generation int64, digest string, count int) *appsv1.Removal {
	out := &appsv1.Removal{Generation: generation, Digest: digest, Count: int32(count), Kept: removalObjects(r.Kept),
		Blockers: removalObjects(r.Blockers)}
	for i, step := range r.Steps {
		if i >= maxSteps {
			out.Order[maxSteps-1].Count += int32(len(step))
			continue
		}
		s := appsv1.RemovalStep{Wave: step[0].Entry.Wave, Count: int32(len(step))}
		for _, item := range step[:min(len(step), maxObjects)] {
			s.Objects = append(s.Objects, item.Entry.ID)
		}
		out.Order = append(out.Order, s)
	}
	return out
}

// maxMessageBytes bounds the message about one object.
const maxMessageBytes = 512

func removalObjects(in []engine.RemovalItem) []appsv1.RemovalObject {
	var out []appsv1.RemovalObject
	for _, item := range in[:min(len(in), maxRemarks)] {
		out = append(out, appsv1.RemovalObject{ID: item.Entry.ID, Reason: string(item.Reason),
			Message: reconcile.Truncate(item.Message, maxMessageBytes)})
	}
	return out
}

// isRemoved returns a function that reports whether a rehearsal removes an object. It is false for
// shared namespaces: they are removed after everything in them, so no dependent has to be removed
// before. It is false for contributions, whose objects stay.
func isRemoved(r *engine.RemovalPreview) func(id string) bool {
	ids := map[string]bool{}
	for _, step := range r.Steps {
		for _, item := range step {
			state := item.Entry.State
			ids[item.Entry.ID] = state != appsv1.EntryShared && state != appsv1.EntryContributed
		}
	}
	return func(id string) bool { return ids[id] }
}

// dependentMessages returns messages about the dependents of the objects to remove: components of
// the stack that stay, and other installs.
func dependentMessages(spec *appsv1.KsctlRemoveSpec, in *appsv1.KsctlInstall, installs []appsv1.KsctlInstall,
	removed func(id string) bool) []string {
	var out []string
	for _, c := range in.Status.Components {
		if spec.Names(c.Name) {
			continue
		}
		for _, d := range c.DependsOn {
			if spec.Names(d) {
				out = append(out,
					fmt.Sprintf("component %s stays and depends on %s: the component is not updated while %s does "+
						"not exist", c.Name, d, d))
			}
		}
	}
	key := client.ObjectKeyFromObject(in)
	for i := range installs {
		other := &installs[i]
		name := client.ObjectKeyFromObject(other)
		self := stacks.Ref{Group: appsv1.GroupVersion.Group, Kind: appsv1.KsctlInstallKind, Namespace: name.Namespace,
			Name: name.Name}
		if name == key || removed(self.ID()) { // the KsctlInstall is removed, too
			continue
		}
		on := "the install"
		if !slices.Contains(dependency.Installs(other), key) {
			objects := dependency.ObjectRefsIn(other, removed)
			if len(objects) == 0 {
				continue
			}
			on = objects[0].String()
		}
		effect := "must be removed first"
		switch {
		case len(spec.Components) > 0:
			effect = "is not waited for, because only components are removed"
		case other.DeletionTimestamp != nil:
			effect = "is being removed first"
		}
		out = append(out, fmt.Sprintf("KsctlInstall %s depends on %s and %s", name, on, effect))
	}
	slices.Sort(out)
	return out
}
