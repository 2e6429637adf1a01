package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
)

// removalRequest is a KsctlRemove from the view of an install. The components that it names are not
// installed. Their objects are deleted once the install has accepted a rehearsal of exactly these
// objects, by recording its digest.
type removalRequest struct {
	record appsv1.InstallRemoval
	spec   *appsv1.KsctlRemoveSpec // nil: the KsctlRemove does not exist anymore
	// reinstallAt is the time at which the components of a deleted KsctlRemove are installed again.
	reinstallAt time.Time
}

// covers reports whether the request includes a component.
func (r *removalRequest) covers(component string) bool {
	return len(r.record.Components) == 0 || slices.Contains(r.record.Components, component)
}

// active reports whether objects are deleted for the request now.
func (r *removalRequest) active() bool {
	return r.spec != nil && !r.spec.Suspend && r.record.Digest != ""
}

// inactiveReason returns a message about why no object is deleted for the request now. It is empty
// for an active request.
func (r *removalRequest) inactiveReason() string {
	name := "KsctlRemove " + r.record.Name
	switch {
	case r.spec == nil:
		return fmt.Sprintf("%s was deleted: the removed objects are installed again at %s", name,
			r.reinstallAt.UTC().Format(time.TimeOnly))
	case r.spec.Suspend:
		return name + " is suspended: no objects are removed"
	case r.record.Digest == "":
		return fmt.Sprintf("%s has no current rehearsal yet (status.removal)", name)
	}
	return ""
}

// removalRequests are the requests that an install takes into account.
type removalRequests []removalRequest

// resolveRemovalRequests combines the recorded requests with the KsctlRemoves of an install. It is
// a pure function: entries are those of the inventory, and missing has the times at which the
// KsctlRemoves of recorded requests were first found missing. A recorded request stays in effect
// for retry after that time.
func resolveRemovalRequests(records []appsv1.InstallRemoval, removes []appsv1.KsctlRemove,
	entries []appsv1.InventoryEntry,
	missing map[string]time.Time, retry time.Duration, now time.Time,
) removalRequests {
	var out removalRequests
	for i := range removes {
		rm := &removes[i]
		r := removalRequest{spec: &rm.Spec,
			record: appsv1.InstallRemoval{Name: rm.Name, UID: rm.UID, Generation: rm.Generation,
				Components: rm.Spec.Components}}
		for _, recorded := range records {
			if recorded.Name == rm.Name && recorded.UID == rm.UID && recorded.Generation == rm.Generation {
				r.record = recorded
			}
		}
		if rehearsal := rm.Status.Removal; r.record.Digest == "" && rehearsal != nil &&
			rehearsal.Generation == rm.Generation &&
			rehearsal.Digest == plan.Digest(matchingEntries(entries, &rm.Spec)) {
			r.record.Digest = rehearsal.Digest
		}
		out = append(out, r)
	}
	for _, recorded := range records {
		if until := missing[recorded.Name].Add(retry); now.Before(until) {
			out = append(out, removalRequest{record: recorded, reinstallAt: until})
		}
	}
	slices.SortFunc(out, func(a, b removalRequest) int { return strings.Compare(a.record.Name, b.record.Name) })
	return out
}

// matchingEntries returns the entries of the components that a KsctlRemove names.
func matchingEntries(entries []appsv1.InventoryEntry, spec *appsv1.KsctlRemoveSpec) []appsv1.InventoryEntry {
	return slices.DeleteFunc(slices.Clone(entries), func(e appsv1.InventoryEntry) bool {
		return !spec.Names(e.Component)
	})
}

// updateRemovalRequests sets the removal requests of an install from its KsctlRemoves, and records
// them in the status.
func (s *Steps) updateRemovalRequests(ctx context.Context, o *owner) error {
	if s.Served != nil {
		return nil
	}
	in := o.req.Object
	var list appsv1.KsctlRemoveList
	err := s.Client.List(ctx, &list, client.InNamespace(in.Namespace),
		client.MatchingFields{removeInstallIndex: in.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return err
	}
	existing := slices.DeleteFunc(slices.Clone(list.Items), func(rm appsv1.KsctlRemove) bool {
		return rm.DeletionTimestamp != nil
	})
	now := s.Clock.Now()
	missing := map[string]time.Time{}
	for _, r := range in.Status.Removals {
		if slices.ContainsFunc(existing, func(rm appsv1.KsctlRemove) bool { return rm.Name == r.Name }) {
			continue
		}
		missing[r.Name] = now
		if since, ok := o.missingSince[r.Name]; ok {
			missing[r.Name] = since
		}
	}
	o.missingSince = missing
	o.removalRequests = resolveRemovalRequests(in.Status.Removals, existing, o.inv.Entries(), missing,
		reconcile.RetryInterval(&in.Spec.Schedule), now)
	if o.removalRequests.hasNew(in.Status.Removals) {
		s.Engine.ResetBackoff(o.Key()) // a new request may change the operations that failed
	}
	o.recordRemovalRequests()
	return nil
}

// hasNew reports whether a request is active that is not among the records before.
func (rs removalRequests) hasNew(before []appsv1.InstallRemoval) bool {
	return slices.ContainsFunc(rs, func(r removalRequest) bool {
		return r.active() && !slices.ContainsFunc(before, func(record appsv1.InstallRemoval) bool {
			return record.Name == r.record.Name && record.UID == r.record.UID &&
				record.Generation == r.record.Generation && record.Digest == r.record.Digest
		})
	})
}

// recordRemovalRequests stores the removal requests in the status.
func (o *owner) recordRemovalRequests() {
	o.req.Object.Status.Removals = nil
	for _, r := range o.removalRequests {
		o.req.Object.Status.Removals = append(o.req.Object.Status.Removals, r.record)
	}
}

// coverInstall reports whether a request covers the whole install, so that nothing needs to be
// rendered.
func (rs removalRequests) coverInstall() bool {
	return slices.ContainsFunc(rs, func(r removalRequest) bool { return len(r.record.Components) == 0 })
}

// cover reports whether a request includes a component, which is therefore not installed.
func (rs removalRequests) cover(component string) bool {
	return slices.ContainsFunc(rs, func(r removalRequest) bool { return r.covers(component) })
}

// requesters returns the KsctlRemoves that include a component, for messages. The empty component
// stands for the whole install.
func (rs removalRequests) requesters(component string) string {
	var out []string
	for _, r := range rs {
		if r.covers(component) {
			out = append(out, "KsctlRemove "+r.record.Name)
		}
	}
	return reconcile.JoinNames(out)
}

// firstReinstall returns the earliest time at which components are installed again. It is zero if
// there is none.
func (rs removalRequests) firstReinstall() (first time.Time) {
	for _, r := range rs {
		if u := r.reinstallAt; !u.IsZero() && (first.IsZero() || u.Before(first)) {
			first = u
		}
	}
	return first
}

// inactiveReasons returns the messages of the requests that are not active.
func (rs removalRequests) inactiveReasons() []string {
	var out []string
	for _, r := range rs {
		if why := r.inactiveReason(); why != "" {
			out = append(out, why)
		}
	}
	return out
}

// waits returns the waits for the KsctlRemoves.
func (rs removalRequests) waits(namespace string) (out []appsv1.WaitReference) {
	for _, r := range rs {
		out = append(out, appsv1.WaitReference{Type: appsv1.WaitApproval, Kind: appsv1.KsctlRemoveKind,
			Namespace: namespace, Name: r.record.Name})
	}
	return out
}

// policy implements engine.Policies.RemovalRequest: an object is deleted if one active request
// includes it, and kept if one of these requests keeps it.
func (rs removalRequests) policy(guard *appsv1.Guard, holdAll bool) func(*appsv1.InventoryEntry) *plan.RemovalRequest {
	if len(rs) == 0 {
		return nil
	}
	return func(e *appsv1.InventoryEntry) *plan.RemovalRequest {
		var active []removalRequest
		covered := false
		for _, r := range rs {
			if r.covers(e.Component) {
				if covered = true; r.active() {
					active = append(active, r)
				}
			}
		}
		switch {
		case !covered:
			return nil
		case len(active) == 0 || holdAll:
			return &plan.RemovalRequest{Suspended: true}
		}
		return &plan.RemovalRequest{
			KeepReason: func(ref stacks.Ref) string { return keepReason(active, guard, ref) },
			DeleteCustomResources: !slices.ContainsFunc(active, func(r removalRequest) bool {
				return r.spec.CustomResources != appsv1.CustomResourcesDelete
			}),
		}
	}
}

// keepReason returns the reason why an object is kept. It is empty if the object is not kept.
func keepReason(active []removalRequest, guard *appsv1.Guard, ref stacks.Ref) string {
	for _, r := range active {
		if r.spec.Keeps(ref.Group, ref.Kind, ref.Namespace, ref.Name) {
			return fmt.Sprintf("spec.keep of KsctlRemove %s has %s", r.record.Name, ref.Kind)
		}
	}
	protected := plan.Policies{ProtectKinds: ptr.Deref(guard, appsv1.Guard{}).ProtectKinds}
	return protected.ProtectReason(ref)
}

// maxKeptObjects is the maximum number of kept objects in the status of a removal.
const maxKeptObjects = 100

// recordKept records the objects of active requests that the reconcile has released instead of
// deleted. componentOf has the components of these objects, by object ID.
func (o *owner) recordKept(componentOf map[string]string, rep *engine.Report) {
	for _, c := range rep.Changes {
		if c.Verb != plan.VerbRelease && c.Verb != plan.VerbDrop {
			continue
		}
		id := c.Ref.ID()
		component, ok := componentOf[id]
		if !ok {
			continue
		}
		kept := appsv1.RemovalObject{ID: id, Reason: string(plan.ReasonKept),
			Message: reconcile.Truncate(strings.TrimPrefix(strings.TrimPrefix(c.Message, "released: "), "kept: "),
				maxComponentMessage)}
		for i := range o.removalRequests {
			r := &o.removalRequests[i]
			if r.active() && r.covers(component) && len(r.record.Kept) < maxKeptObjects {
				r.record.Kept = append(slices.Clone(r.record.Kept), kept)
			}
		}
	}
	o.recordRemovalRequests()
}
