package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
)

// removal is one KsctlRemove as an install follows it. What it names is not
// installed; it is deleted once the rehearsal of exactly that was taken up.
type removal struct {
	record appsv1.InstallRemoval
	spec   *appsv1.KsctlRemoveSpec // nil: the KsctlRemove is gone
	// until is when what a KsctlRemove that is gone had removed comes back.
	until time.Time
}

func (r *removal) names(component string) bool {
	return len(r.record.Components) == 0 || slices.Contains(r.record.Components, component)
}

func (r *removal) goes() bool {
	return r.spec != nil && !r.spec.Suspend && r.record.Digest != ""
}

// why says in words why nothing of it is deleted now; empty when it is.
func (r *removal) why() string {
	name := "KsctlRemove " + r.record.Name
	switch {
	case r.spec == nil:
		return fmt.Sprintf("%s is gone: what it removed comes back at %s", name, r.until.UTC().Format(time.TimeOnly))
	case r.spec.Suspend:
		return name + " is suspended: what it names is left as it is"
	case r.record.Digest == "":
		return fmt.Sprintf("%s has not said yet what it will remove", name)
	}
	return ""
}

// removals are all that an install follows.
type removals []removal

// follow says how an install goes on with the KsctlRemoves that name it. It is a
// pure function: entries are those of the inventory, missing is since when a
// KsctlRemove that is followed was not there.
func follow(records []appsv1.InstallRemoval, removes []appsv1.KsctlRemove, entries []appsv1.InventoryEntry,
	missing map[string]time.Time, retry time.Duration, now time.Time,
) removals {
	var out removals
	there := map[string]bool{}
	for i := range removes {
		rm := &removes[i]
		there[rm.Name] = true
		r := removal{spec: &rm.Spec, record: appsv1.InstallRemoval{Name: rm.Name, UID: rm.UID, Generation: rm.Generation, Components: rm.Spec.Components}}
		for _, was := range records {
			if was.Name == rm.Name && was.UID == rm.UID && was.Generation == rm.Generation {
				r.record = was
			}
		}
		if said := rm.Status.Removal; r.record.Digest == "" && said != nil && said.Generation == rm.Generation &&
			said.Digest == engine.Digest(named(entries, &rm.Spec)) {
			r.record.Digest = said.Digest
		}
		out = append(out, r)
	}
	for _, was := range records {
		until := missing[was.Name].Add(retry)
		if !there[was.Name] && now.Before(until) {
			out = append(out, removal{record: was, until: until})
		}
	}
	slices.SortFunc(out, func(a, b removal) int { return strings.Compare(a.record.Name, b.record.Name) })
	return out
}

// named are the entries of the components that a KsctlRemove names.
func named(entries []appsv1.InventoryEntry, spec *appsv1.KsctlRemoveSpec) []appsv1.InventoryEntry {
	return slices.DeleteFunc(slices.Clone(entries), func(e appsv1.InventoryEntry) bool { return !spec.Names(e.Component) })
}

// followed finds the KsctlRemoves that name an install and writes down how they are followed.
func (s *Steps) followed(ctx context.Context, o *owner) error {
	in := o.req.Object
	var list appsv1.KsctlRemoveList
	err := s.Client.List(ctx, &list, client.InNamespace(in.Namespace), client.MatchingFields{byInstallRef: in.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return err
	}
	there := slices.DeleteFunc(slices.Clone(list.Items), func(rm appsv1.KsctlRemove) bool { return rm.DeletionTimestamp != nil })
	now := s.Clock.Now()
	missing := map[string]time.Time{}
	for _, r := range in.Status.Removals {
		if slices.ContainsFunc(there, func(rm appsv1.KsctlRemove) bool { return rm.Name == r.Name }) {
			continue
		}
		missing[r.Name] = now
		if since, ok := o.missing[r.Name]; ok {
			missing[r.Name] = since
		}
	}
	o.missing = missing
	o.removals = follow(in.Status.Removals, there, o.inv.Entries(), missing, reconcile.RetryInterval(&in.Spec.Schedule), now)
	if o.removals.took(in.Status.Removals) {
		s.Engine.Forgive(o.Key()) // what failed may be asked for otherwise
	}
	o.record()
	return nil
}

// took is true when a rehearsal is taken up that was not before.
func (rs removals) took(before []appsv1.InstallRemoval) bool {
	return slices.ContainsFunc(rs, func(r removal) bool {
		return r.goes() && !slices.ContainsFunc(before, func(was appsv1.InstallRemoval) bool {
			return was.Name == r.record.Name && was.UID == r.record.UID && was.Generation == r.record.Generation && was.Digest == r.record.Digest
		})
	})
}

// record brings how removals are followed into the status.
func (o *owner) record() {
	o.req.Object.Status.Removals = nil
	for i := range o.removals {
		o.req.Object.Status.Removals = append(o.req.Object.Status.Removals, o.removals[i].record)
	}
}

// whole is true when everything is asked to go, so that nothing needs to be rendered.
func (rs removals) whole() bool {
	return slices.ContainsFunc(rs, func(r removal) bool { return len(r.record.Components) == 0 })
}

// names is true for a component that is not to be installed.
func (rs removals) names(component string) bool {
	return slices.ContainsFunc(rs, func(r removal) bool { return r.names(component) })
}

// people names those that name a component, for messages.
func (rs removals) people(component string) string {
	var out []string
	for i := range rs {
		if rs[i].names(component) {
			out = append(out, "KsctlRemove "+rs[i].record.Name)
		}
	}
	return list(out)
}

// returns is when the first thing comes back; zero: nothing does.
func (rs removals) returns() (first time.Time) {
	for i := range rs {
		if u := rs[i].until; !u.IsZero() && (first.IsZero() || u.Before(first)) {
			first = u
		}
	}
	return first
}

// why says why nothing is deleted of what is asked to go.
func (rs removals) why() []string {
	var out []string
	for i := range rs {
		if why := rs[i].why(); why != "" {
			out = append(out, why)
		}
	}
	return out
}

// asked implements engine.Policies.Asked: an object is deleted when one KsctlRemove
// lets it go, and kept when one keeps it.
func (rs removals) asked(guard *appsv1.Guard, holdAll bool) func(*appsv1.InventoryEntry) *engine.Request {
	if len(rs) == 0 {
		return nil
	}
	return func(e *appsv1.InventoryEntry) *engine.Request {
		var going []*removal
		held := false
		for i := range rs {
			if r := &rs[i]; r.names(e.Component) {
				if held = true; r.goes() {
					going = append(going, r)
				}
			}
		}
		switch {
		case !held:
			return nil
		case len(going) == 0 || holdAll:
			return &engine.Request{Hold: true}
		}
		return &engine.Request{
			Keep: func(ref stacks.Ref) string { return keeps(going, guard, ref) },
			TakeCustomResources: !slices.ContainsFunc(going, func(r *removal) bool {
				return r.spec.CustomResources != appsv1.CustomResourcesDelete
			}),
		}
	}
}

func keeps(going []*removal, guard *appsv1.Guard, ref stacks.Ref) string {
	for _, r := range going {
		if r.spec.Keeps(ref.Group, ref.Kind, ref.Namespace, ref.Name) {
			return fmt.Sprintf("spec.keep of KsctlRemove %s has %s", r.record.Name, ref.Kind)
		}
	}
	if guard != nil && slices.Contains(guard.ProtectKinds, ref.Kind) {
		return fmt.Sprintf("spec.guard.protectKinds has %s", ref.Kind)
	}
	return ""
}

// maxKept bounds the objects that a status names as left.
const maxKept = 100

// noteKept writes down which of the objects that were asked to go were left.
func (o *owner) noteKept(componentOf map[string]string, rep *engine.Report) {
	for _, c := range rep.Changes {
		if c.Verb != engine.Release && c.Verb != engine.Drop {
			continue
		}
		id := c.Ref.ID()
		component, ok := componentOf[id]
		if !ok {
			continue
		}
		kept := appsv1.RemovalObject{ID: id, Reason: string(engine.Kept), Message: bounded(strings.TrimPrefix(strings.TrimPrefix(c.Note, "released: "), "kept: "), maxComponentMessage)}
		for i := range o.removals {
			r := &o.removals[i]
			if r.goes() && r.names(component) && len(r.record.Kept) < maxKept {
				r.record.Kept = append(slices.Clone(r.record.Kept), kept)
			}
		}
	}
	o.record()
}
