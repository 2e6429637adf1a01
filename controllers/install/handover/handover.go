package handover

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
)

// Handover decides about objects that are no longer part of an install. Before an object is
// removed, each install of the same namespace and source must have planned the same artifact, and
// each install that takes over from the install must have planned any artifact. Installs of the
// namespace with another source get an object that they have planned, but nobody waits for their
// plans.
type Handover struct {
	plans     *Plans
	key       plan.OwnerKey
	releasing releasingInstall
	// RetryAt is the time at which the first of the waits ends without an event; zero if there is
	// none.
	RetryAt time.Time
	// Serves returns what a CustomResourceDefinition serves now; nil if that is unknown.
	Serves func(id string) *stacks.ServedKind

	mu     sync.Mutex
	denied map[deniedClaim]bool
}

// deniedClaim is an object that an install claims, and that it is not allowed to change.
type deniedClaim struct {
	id       string
	claimant types.NamespacedName
}

// NewHandover returns the handover of an install for one reconcile, in which objects may no longer
// be part of it. It ends the waits of earlier reconciles. artifact is the digest of the planned
// artifact, and empty for an install that is being deleted.
func (p *Plans) NewHandover(in *appsv1.KsctlInstall, key plan.OwnerKey, artifact string) *Handover {
	name := client.ObjectKeyFromObject(in)
	p.ClearWaits(name)
	return &Handover{plans: p, key: key, denied: map[deniedClaim]bool{}, releasing: releasingInstall{name: name,
		planScope: planScope{cluster: key.Cluster, namespace: name.Namespace, source: SourceKey(in)},
		artifact:  artifact}}
}

// Deny records that an install is not allowed to change an object that it claims.
func (h *Handover) Deny(id string, claimant types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.denied[deniedClaim{id, claimant}] = true
}

func (h *Handover) isDenied(id string, claimant types.NamespacedName) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.denied[deniedClaim{id, claimant}]
}

// Decide implements engine.Policies.HandoverTo.
func (h *Handover) Decide(id string) plan.HandoverDecision {
	r := h.releasing
	if stacks.IsDefinition(id) && h.Serves != nil {
		r.serves = h.Serves(id)
	}
	d := h.plans.decideAndWatch(r, id, h.isIgnored)
	if stacks.IsDefinition(id) && (d == (decision{}) || d.pending != nil && d.pending.suspended) {
		if user := h.plans.awaitUser(r, id); user != nil {
			return h.keepDefinition(id, user)
		}
	}
	switch {
	case d.newOwner != nil && h.isDenied(id, d.newOwner.name):
		h.retryBy(h.plans.clock.Now().Add(deniedRetry))
		return plan.HandoverDecision{On: h.keyOf(d.newOwner),
			Wait: fmt.Sprintf("objects removed from the stack are kept: KsctlInstall %s has them now, but its "+
				"service account may not patch them; grant the permission", d.newOwner.name)}
	case d.newOwner != nil:
		return plan.HandoverDecision{To: h.keyOf(d.newOwner)}
	case d.pending == nil:
		return plan.HandoverDecision{}
	case d.left:
		return plan.HandoverDecision{On: h.keyOf(d.pending),
			Leave: fmt.Sprintf("objects removed from the stack are left in place until KsctlInstall %s, which may "+
				"claim them, can be planned", d.pending.name)}
	}
	h.retryBy(d.until)
	wait := fmt.Sprintf("objects removed from the stack are kept until KsctlInstall %s, which may claim them, has "+
		"planned the same revision", d.pending.name)
	if d.pending.suspended {
		wait += "; it is suspended: resume it"
	}
	return plan.HandoverDecision{On: h.keyOf(d.pending), Wait: wait,
		TakesOver: d.pending.takesOverFrom == h.releasing.name}
}

// deniedRetry is the time until an object is offered again to an install that may not patch it.
const deniedRetry = 30 * time.Second

// retryBy sets RetryAt to a time that is not zero, and sooner.
func (h *Handover) retryBy(at time.Time) {
	if !at.IsZero() && (h.RetryAt.IsZero() || at.Before(h.RetryAt)) {
		h.RetryAt = at
	}
}

// keepDefinition returns the decision about a CustomResourceDefinition that an install uses and
// cannot receive.
func (h *Handover) keepDefinition(id string, user *installPlan) plan.HandoverDecision {
	why := "is suspended: resume it"
	if h.isDenied(id, user.name) {
		h.retryBy(h.plans.clock.Now().Add(deniedRetry))
		why = "has a service account that may not patch it; grant the permission"
	}
	ref, _ := stacks.ParseID(id)
	return plan.HandoverDecision{On: h.keyOf(user),
		Keep: fmt.Sprintf("%s stays, because KsctlInstall %s uses it, and %s", ref, user.name, why)}
}

// isIgnored reports whether a claim does not count: the install has another source, does not take
// over from the releasing one, and may not change the object. A CustomResourceDefinition goes to
// any install that may change it.
func (h *Handover) isIgnored(id string, m *installPlan) bool {
	return h.isDenied(id, m.name) &&
		(stacks.IsDefinition(id) || m.source != h.releasing.source && m.takesOverFrom != h.releasing.name)
}

// keyOf returns the key of an install of the same installation and cluster.
func (h *Handover) keyOf(m *installPlan) *plan.OwnerKey {
	key := h.key
	key.Namespace, key.Name = m.name.Namespace, m.name.Name
	return &key
}

// AwaitClaim enqueues the install when another install claims an object that is kept because of a
// dependent. blocker is the dependent.
func (h *Handover) AwaitClaim(id string, blocker types.NamespacedName) {
	h.plans.addWait(&planWait{releasing: h.releasing, objectID: id, blocker: blocker})
}

// objectLocations returns the locations of the objects of an install, see objectLocation. It
// returns nil if they are unknown.
func objectLocations(in *appsv1.KsctlInstall) []string {
	inv := in.Status.Inventory
	if inv == nil || len(inv.Chunks) > 0 {
		return nil
	}
	out := []string{}
	for _, e := range inv.Entries {
		if at := objectLocation(e.ID); !slices.Contains(out, at) {
			out = append(out, at)
		}
	}
	return out
}

// objectLocation returns the namespace of an object, or the kind of a cluster-scoped object.
func objectLocation(id string) string {
	ref, err := stacks.ParseID(id)
	if err != nil || ref.Namespace != "" {
		return ref.Namespace
	}
	return ref.GroupKind().String()
}

// SourceKey identifies the source of an install, as a value of sourceIndex.
func SourceKey(in *appsv1.KsctlInstall) string {
	if in.Spec.SourceRef.Kind == appsv1.CatalogKind {
		// Each version of a stack in the catalog is a source of its own.
		return reconcile.IndexValue(appsv1.CatalogKind, in.Spec.Stack, in.Spec.StackVersion)
	}
	return reconcile.IndexValue(in.Spec.SourceRef.Kind, cmp.Or(in.Spec.SourceRef.Namespace, in.Namespace),
		in.Spec.SourceRef.Name)
}
