package install

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
)

// heirs decides about objects that an install wants no more: before one is
// removed, every install of the same source must have planned the same artifact,
// and those that take over from this one must have planned at all.
type heirs struct {
	plans  *Plans
	key    engine.OwnerKey
	leaver leaver
}

// findHeirs prepares the pass of an owner, which may have objects that it wants no
// more. The artifact is empty for an install that is being deleted.
func (s *Steps) findHeirs(o *owner, artifact string) {
	in := o.req.Object
	me := client.ObjectKeyFromObject(in)
	s.Plans.settle(me)
	o.heirs = &heirs{plans: s.Plans, key: o.key, leaver: leaver{name: me, cluster: o.key.Cluster, source: sourceField(in), artifact: artifact}}
}

// toldWithin is when to look again whether plans were told what the cache knows: they
// are milliseconds behind.
const toldWithin = 50 * time.Millisecond

// untold defers a pass while the cache has an install that takes over from this one and
// plans were not told of it: its event comes by another way than the one that says that
// this one goes, and may be later. Nil: they know all.
func (s *Steps) untold(ctx context.Context, in *appsv1.KsctlInstall) reconcile.Outcome {
	var followers appsv1.KsctlInstallList
	err := s.Client.List(ctx, &followers, client.InNamespace(in.Namespace), client.MatchingFields{byTakeOver: in.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	for i := range followers.Items {
		if !s.Plans.know(&followers.Items[i]) {
			return reconcile.Deferred{Until: s.Clock.Now().Add(toldWithin)}
		}
	}
	return nil
}

// settled ends the wait for the plans of others, unless something needs them yet.
func (s *Steps) settled(o *owner, rep *engine.Report) {
	if o.holdAll {
		return // who wants what it holds ends that
	}
	for _, w := range rep.Plan.Waits {
		if w.Reason == engine.Claimable {
			return
		}
	}
	s.Plans.settle(client.ObjectKeyFromObject(o.req.Object))
}

// heir implements engine.Policies.Heir.
func (h *heirs) heir(id string) (*engine.OwnerKey, string) {
	m, on := h.plans.ask(h.leaver, id)
	switch {
	case m != nil:
		key := h.key
		key.Namespace, key.Name = m.name.Namespace, m.name.Name
		return &key, ""
	case on != nil:
		return nil, fmt.Sprintf("what left the stack stays until KsctlInstall %s, which could want it, has planned the same revision%s", on.name, on.stuck)
	}
	return nil, ""
}

// expect has the install look again when somebody wants an object that it keeps for
// those who depend on it.
func (h *heirs) expect(id string, on types.NamespacedName) {
	h.plans.expect(&wait{leaver: h.leaver, id: id, on: on})
}

func whyNot(in *appsv1.KsctlInstall) string {
	switch {
	case in.Spec.Suspend:
		return " (it is suspended)"
	case !isReady(in):
		return " (it is not ready)"
	default:
		return ""
	}
}

// places are where an install has objects; nil when that is not known.
func places(in *appsv1.KsctlInstall) []string {
	inv := in.Status.Inventory
	if inv == nil || len(inv.Chunks) > 0 {
		return nil
	}
	out := []string{}
	for i := range inv.Entries {
		if at := place(inv.Entries[i].ID); !slices.Contains(out, at) {
			out = append(out, at)
		}
	}
	return out
}

// place is the namespace of an object, or the kind of one that is in none.
func place(id string) string {
	ref, err := stacks.ParseID(id)
	if err != nil || ref.Namespace != "" {
		return ref.Namespace
	}
	return ref.GroupKind().String()
}

func sourceField(in *appsv1.KsctlInstall) string {
	if in.Spec.SourceRef.Kind == appsv1.CatalogKind {
		return reconcile.FieldValue(appsv1.CatalogKind, in.Spec.Stack, in.Spec.StackVersion) // a source each
	}
	ns := in.Spec.SourceRef.Namespace
	if ns == "" {
		ns = in.Namespace
	}
	return reconcile.FieldValue(in.Spec.SourceRef.Kind, ns, in.Spec.SourceRef.Name)
}
