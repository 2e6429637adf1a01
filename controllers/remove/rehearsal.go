package remove

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/dependency"
	"github.com/ksctl/gitops/stacks"
)

// asked is what a KsctlRemove asks of the entries of an install.
func asked(rm *appsv1.KsctlRemove, in *appsv1.KsctlInstall) func(*appsv1.InventoryEntry) *engine.Request {
	spec := &rm.Spec
	request := &engine.Request{
		TakeCustomResources: spec.CustomResources == appsv1.CustomResourcesDelete,
		Keep: func(ref stacks.Ref) string {
			if spec.Keeps(ref.Group, ref.Kind, ref.Namespace, ref.Name) {
				return "spec.keep has " + ref.Kind
			}
			if g := in.Spec.Guard; g != nil && slices.Contains(g.ProtectKinds, ref.Kind) {
				return "spec.guard.protectKinds of the install has " + ref.Kind
			}
			return ""
		},
	}
	return func(e *appsv1.InventoryEntry) *engine.Request {
		if !spec.Names(e.Component) {
			return nil
		}
		return request
	}
}

// rehearse writes down what will go, unless that stands there already, and waits for
// the install to take it up.
func (b *ByInstall) rehearse(ctx context.Context, rm *appsv1.KsctlRemove, in *appsv1.KsctlInstall, a *aimed, v *engine.View) reconcile.Outcome {
	named := slices.DeleteFunc(v.Entries.Entries(), func(e appsv1.InventoryEntry) bool { return !rm.Spec.Names(e.Component) })
	digest := engine.Digest(named)
	if said := rm.Status.Removal; said == nil || said.Generation != rm.Generation || said.Digest != digest {
		r, err := b.Engine.Rehearse(ctx, a.target, a.client, v)
		if err != nil {
			return reconcile.Retry{Err: err}
		}
		if r.Unsynced != nil { // told when it is
			return reconcile.Waiting{On: r.Unsynced.Error(), Reason: reconcile.IndexStaleReason}
		}
		going := goes(r)
		if a.key.Cluster != engine.LocalCluster {
			going = func(string) bool { return false } // what others depend on is in this cluster
		}
		dependents, err := b.dependents(ctx, rm, in, going)
		if err != nil {
			return reconcile.Retry{Err: err}
		}
		rm.Status.Removal = removal(r, rm.Generation, digest, len(named))
		rm.Status.Removal.MadeAt = metav1.NewTime(b.Clock.Now())
		rm.Status.Removal.Dependents = dependents
	}
	rm.Status.Removed, rm.Status.Left = ptr.To[int32](0), ptr.To(int32(len(named)))
	rm.Status.Remaining = nil
	return b.waiting(rm, in, planned(rm))
}

// Bounds of what a rehearsal names; the rest is counted.
const (
	maxSteps   = 64
	maxObjects = 20
	maxRemarks = 50
)

// removal is a rehearsal as a status has room for it.
func removal(r *engine.Rehearsal, generation int64, digest string, count int) *appsv1.Removal {
	out := &appsv1.Removal{Generation: generation, Digest: digest, Count: int32(count), Kept: remarks(r.Kept), Blockers: remarks(r.Blockers)}
	for i, step := range r.Steps {
		if i >= maxSteps {
			out.Order[maxSteps-1].Count += int32(len(step))
			continue
		}
		s := appsv1.RemovalStep{Wave: step[0].Entry.Wave, Count: int32(len(step))}
		for j := range min(len(step), maxObjects) {
			s.Objects = append(s.Objects, step[j].Entry.ID)
		}
		out.Order = append(out.Order, s)
	}
	return out
}

// maxMessage bounds what is said of one object, in bytes.
const maxMessage = 512

func remarks(in []engine.Remark) []appsv1.RemovalObject {
	var out []appsv1.RemovalObject
	for i := range min(len(in), maxRemarks) {
		out = append(out, appsv1.RemovalObject{ID: in[i].Entry.ID, Reason: string(in[i].Reason), Message: bounded(in[i].Message)})
	}
	return out
}

func bounded(s string) string {
	s = strings.ToValidUTF8(s, "�")
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + "…"
}

// goes is true for the objects that go as a rehearsal says. A shared namespace goes after
// whatever is in it, so that nobody waits for it.
func goes(r *engine.Rehearsal) func(id string) bool {
	ids := map[string]bool{}
	for _, step := range r.Steps {
		for i := range step {
			ids[step[i].Entry.ID] = step[i].Entry.State != appsv1.EntryShared
		}
	}
	return func(id string) bool { return ids[id] }
}

// dependents names who needs what is to go: components of the stack that stay, and
// other installs.
func (b *ByInstall) dependents(ctx context.Context, rm *appsv1.KsctlRemove, in *appsv1.KsctlInstall, goes func(id string) bool) ([]string, error) {
	var list appsv1.KsctlInstallList
	if err := b.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	out := dependents(&rm.Spec, in, list.Items, goes)
	if len(out) > maxRemarks {
		out = append(out[:maxRemarks], fmt.Sprintf("and %d more", len(out)-maxRemarks))
	}
	return out, nil
}

func dependents(spec *appsv1.KsctlRemoveSpec, in *appsv1.KsctlInstall, all []appsv1.KsctlInstall, goes func(id string) bool) []string {
	var out []string
	for _, c := range in.Status.Components {
		if spec.Names(c.Name) {
			continue
		}
		for _, d := range c.DependsOn {
			if spec.Names(d) {
				out = append(out, fmt.Sprintf("component %s, which stays, depends on %s: it takes in no change while that is gone", c.Name, d))
			}
		}
	}
	for i := range all {
		x := &all[i]
		self := stacks.Ref{Group: appsv1.GroupVersion.Group, Kind: InstallKind, Namespace: x.Namespace, Name: x.Name}
		if (x.Namespace == in.Namespace && x.Name == in.Name) || goes(self.ID()) { // it goes with it
			continue
		}
		name := x.Namespace + "/" + x.Name
		if on := dependency.On(x, goes); dependsOn(x, in) {
			name += ", which"
		} else if len(on) > 0 {
			name += fmt.Sprintf(", which needs %s and", on[0])
		} else {
			continue
		}
		switch {
		case len(spec.Components) > 0:
			out = append(out, fmt.Sprintf("KsctlInstall %s is not waited for while only components are named", name))
		case x.DeletionTimestamp != nil:
			out = append(out, fmt.Sprintf("KsctlInstall %s is being removed and goes first", name))
		default:
			out = append(out, fmt.Sprintf("KsctlInstall %s has to go first", name))
		}
	}
	slices.Sort(out)
	return out
}

func dependsOn(x, on *appsv1.KsctlInstall) bool {
	return slices.ContainsFunc(x.Spec.DependsOn, func(d appsv1.Dependency) bool {
		ns := d.Namespace
		if ns == "" {
			ns = x.Namespace
		}
		return d.OfInstall() && d.Name == on.Name && ns == on.Namespace
	})
}
