package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// refusedContribution is an object whose fields were refused to a contribution: the refusal is
// valid until the managers of its fields change.
type refusedContribution struct {
	uid          types.UID
	managersHash string
	at           time.Time
}

// minRefusal is the time after which a refused contribution may be tried again: some objects
// change all the time.
const minRefusal = time.Second

// setContributed sets the objects that the owner contributes to in the index.
func (a *executor) setContributed(ctx context.Context) {
	a.contributed = map[string]live.ObjectName{}
	for it := range items(a.components) {
		if it.Contribute && it.ResolveErr == nil {
			a.contributed[it.ID] = contributedName(it.Mapping, it.Ref)
		}
	}
	for id, e := range a.owner.Inventory().All() {
		ref, err := stacks.ParseID(id)
		if _, known := a.contributed[id]; known || err != nil || e.State != appsv1.EntryContributed {
			continue
		}
		if m, err := a.target.Discovery.Resolve(ctx, ref.Group, e.Version, ref.Kind); err == nil {
			a.contributed[id] = contributedName(m, ref)
		}
	}
	a.target.Index.SetContributed(a.ownerKey, slices.Collect(maps.Values(a.contributed)))
}

func contributedName(m *meta.RESTMapping, ref stacks.Ref) live.ObjectName {
	return live.ObjectName{Resource: m.Resource,
		NamespacedName: types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}}
}

// contributedObjects returns the observed objects that the owner contributes to, by id. It ends the
// back-off of a refused contribution whose object has changed.
func (a *executor) contributedObjects(now time.Time) map[string]live.ContributedObject {
	out := map[string]live.ContributedObject{}
	for id, name := range a.contributed {
		object, known := a.target.Index.Contributed(name)
		if !known {
			continue
		}
		out[id] = object
		refused := a.engine.refused.get(a.ownerKey, id)
		switch retryAt := refused.at.Add(minRefusal); {
		case refused.at.IsZero(), refused.uid == object.UID && refused.managersHash == object.ManagersHash:
		case now.Before(retryAt) && !clockSetBack(now, refused.at):
			a.settleBy(retryAt)
		default:
			a.engine.refused.reset(a.ownerKey, id)
			a.engine.backoffs.reset(a.ownerKey, id)
		}
	}
	return out
}

// contribute sets the fields of an item in the object of another owner.
func (a *executor) contribute(ctx context.Context, act *plan.Action) actionResult {
	it, manager := act.Item, plan.ContributionManager(a.owner.Key(), act.Item.Component)
	for try := 1; ; try++ {
		u, err := a.resource(it).Get(ctx, it.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			a.observeContributed(it.ID, nil)
			return planAgain
		}
		if err != nil {
			return a.errorResult(act, err)
		}
		a.observeContributed(it.ID, u)
		if u.GetDeletionTimestamp() != nil {
			return planAgain
		}
		applied, err := a.applyContribution(ctx, it, manager, u, false)
		if fields := conflictingFields(err); len(fields) > 0 {
			if refused := a.refuseFields(act, u, fields); refused != nil {
				return actionResult{err: refused}
			}
			applied, err = a.applyContribution(ctx, it, manager, u, true)
		}
		if (apierrors.IsConflict(err) || apierrors.IsNotFound(err)) && try < maxContributionAttempts {
			continue // it has changed, or is gone
		}
		a.recordCreate(it.ID, err)
		if err != nil {
			return a.errorResult(act, err)
		}
		if applied, err = a.withdrawFrom(ctx, it.Ref, it.Mapping, applied, manager); err != nil {
			return a.errorResult(act, err)
		}
		return a.recordContributed(act, manager, applied)
	}
}

// observeContributed adds an object that the owner contributes to to the index; nil for one that
// does not exist.
func (a *executor) observeContributed(id string, u *unstructured.Unstructured) {
	name, ok := a.contributed[id]
	switch {
	case !ok:
	case u == nil:
		a.target.Index.ObserveContributed(name, nil)
	default:
		a.target.Index.ObserveContributed(name, u)
	}
}

// maxContributionAttempts is the maximum number of attempts for an object that many change at once.
const maxContributionAttempts = 20

// applyContribution sends the fields of an item. The request has the uid of the object, so that it
// never creates one, and its version, so that it has no effect after a later request: when another
// process has changed the contribution, or has taken it back.
func (a *executor) applyContribution(ctx context.Context, it *plan.Item, manager string, u *unstructured.Unstructured,
	force bool) (*unstructured.Unstructured, error) {
	manifest, err := a.owner.Manifest(ctx, it)
	if err != nil {
		return nil, err
	}
	body, err := contributionPatch(manifest, it, precondition{uid: u.GetUID(), resourceVersion: u.GetResourceVersion()})
	if err != nil {
		return nil, err
	}
	return a.applyAs(ctx, WriteUpdate, a.resource(it), it.Name, manager, body, force)
}

// applyAs sends one server-side apply request of a contribution.
func (a *executor) applyAs(ctx context.Context, kind WriteKind, r dynamic.ResourceInterface, name, manager string,
	body []byte, force bool) (*unstructured.Unstructured, error) {
	if err := a.beforeWrite(ctx, kind); err != nil {
		return nil, err
	}
	u, err := r.Patch(ctx, name, types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: manager, Force: ptr.To(force)})
	return u, a.afterWrite(ctx, kind, err)
}

// contributionPatch returns the server-side apply patch of a contribution: its manifest without our
// label and mark, and the precondition.
func contributionPatch(manifest json.RawMessage, it *plan.Item, pre precondition) ([]byte, error) {
	var obj map[string]any
	if err := utiljson.Unmarshal(manifest, &obj); err != nil {
		return nil, fmt.Errorf("parsing the manifest of %s: %w", it.Ref, err)
	}
	foldStringData(it, obj)
	md := nestedObject(obj, "metadata")
	delete(md, "managedFields")
	if it.Namespace == "" {
		delete(md, "namespace")
	}
	for field, own := range map[string]string{"labels": live.OwnerLabel, "annotations": live.MarkAnnotation} {
		if m, ok := md[field].(map[string]any); ok {
			if delete(m, own); len(m) == 0 {
				delete(md, field)
			}
		}
	}
	md["uid"], md["resourceVersion"] = string(pre.uid), pre.resourceVersion
	return json.Marshal(obj)
}

// recordContributed records a contribution.
func (a *executor) recordContributed(act *plan.Action, manager string, u *unstructured.Unstructured) actionResult {
	it := act.Item
	a.observeContributed(it.ID, u)
	fields := live.ContributedFields(u, manager)
	if fields == "" {
		return actionResult{err: &ObjectError{Ref: it.Ref, Verb: string(act.Verb), Err: plan.NewInvalidObjectError(
			"the kind has none of the fields of the contribution: correct its manifest")}}
	}
	if isCorrection(act) {
		a.engine.corrections.add(a.ownerKey, it.ID, a.engine.clock.Now())
	}
	return actionResult{change: &Change{Verb: act.Verb, Reason: act.Reason, Ref: it.Ref},
		entry: &appsv1.InventoryEntry{ID: it.ID, Version: it.Version, UID: u.GetUID(), Component: it.Component,
			Wave: it.Wave, State: appsv1.EntryContributed, Hash: it.ContentHash, Baseline: fields}}
}

// conflictingFields returns the fields of an apply request that other managers have, as the API
// server names them.
func conflictingFields(err error) (fields []string) {
	details := errorDetails(err)
	if details == nil || !apierrors.IsConflict(err) {
		return nil
	}
	for _, c := range details.Causes {
		if c.Type == metav1.CauseTypeFieldManagerConflict {
			fields = append(fields, c.Field)
		}
	}
	return fields
}

// refuseFields returns the error of a contribution whose fields others have; nil if all of them
// were taken from this contribution.
func (a *executor) refuseFields(act *plan.Action, u *unstructured.Unstructured, fields []string) error {
	managers, taken := fieldsTaken(a.owner.Key(), &act.Entry, u, fields)
	if taken {
		return nil
	}
	observed := live.ProjectContributions(u)
	a.engine.refused.record(a.ownerKey, act.Entry.ID, refusedContribution{uid: observed.UID,
		managersHash: observed.ManagersHash, at: a.engine.clock.Now()})
	if redact := a.owner.Policies().Redact; redact != nil { // a path has the keys of list items
		for i := range fields {
			fields[i] = redact(fields[i])
		}
	}
	var by []string
	for _, m := range managers {
		by = append(by, contributorName(u, m))
	}
	return &plan.OwnedByOtherError{Ref: act.Item.Ref, Fields: fields,
		By: cmp.Or(strings.Join(by, " and "), "another field manager"), Hint: "change the value in one of the two; " +
			"only a list with x-kubernetes-list-type map or set can have items of several contributions"}
}

// fieldsTaken returns the managers of fields of an object, and true if all of the fields are
// recorded as those of a contribution, and were taken from it. Fields that the owner of the object,
// or another contribution, has now are theirs. It is a pure function.
func fieldsTaken(owner plan.OwnerKey, recorded *appsv1.InventoryEntry, u *unstructured.Unstructured,
	fields []string) (managers []string, taken bool) {
	all := map[string]bool{}
	taken = recorded.UID == u.GetUID()
	for _, field := range fields {
		taken = taken && live.HasField(recorded.Baseline, field)
		for _, m := range managersOf(u, field) {
			all[m] = true
			isOther := live.IsContributionManager(m) && !plan.OwnsContributionManager(owner, m)
			taken = taken && m != live.FieldManager && !isOther
		}
	}
	return slices.Sorted(maps.Keys(all)), taken
}

// managersOf returns the field managers of a field of an object.
func managersOf(u *unstructured.Unstructured, field string) (managers []string) {
	for _, e := range u.GetManagedFields() {
		set, err := readSet(e.FieldsV1)
		if err != nil {
			continue
		}
		set.Iterate(func(p fieldpath.Path) {
			if p.String() == field {
				managers = append(managers, e.Manager)
			}
		})
	}
	return managers
}

// contributorName returns the name of a field manager for messages.
func contributorName(u *unstructured.Unstructured, manager string) string {
	if live.IsContributionManager(manager) {
		return "another contribution (" + manager + ")"
	}
	if m, err := live.ParseMark(u.GetAnnotations()[live.MarkAnnotation]); err == nil && manager == live.FieldManager {
		return plan.OwnerDisplayName(m.Owner)
	}
	return manager
}

// withdraw takes a contribution back. Fields that somebody has taken since stay.
func (a *executor) withdraw(ctx context.Context, act *plan.Action, ref stacks.Ref, m *meta.RESTMapping) actionResult {
	for try := 1; ; try++ {
		u, err := a.client.Resource(m.Resource).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err == nil {
			u, err = a.withdrawFrom(ctx, ref, m, u, "")
		}
		switch {
		case err == nil:
			a.observeContributed(act.Entry.ID, u)
		case apierrors.IsNotFound(err): // the fields are gone with the object
		case apierrors.IsConflict(err) && try < maxAttempts:
			continue
		default:
			return a.errorResult(act, err)
		}
		a.engine.creates.reset(a.ownerKey, act.Entry.ID)
		return actionResult{dropEntry: true, change: &Change{Verb: act.Verb, Reason: act.Reason, Ref: ref}}
	}
}

// withdrawFrom applies nothing as each field manager of the owner's contributions to an object, but
// one. It returns the object after that.
func (a *executor) withdrawFrom(ctx context.Context, ref stacks.Ref, m *meta.RESTMapping, u *unstructured.Unstructured,
	keep string) (*unstructured.Unstructured, error) {
	for _, e := range u.GetManagedFields() {
		if e.Manager == keep || !plan.OwnsContributionManager(a.owner.Key(), e.Manager) {
			continue
		}
		md := map[string]any{"name": ref.Name, "uid": u.GetUID()}
		if ref.Namespace != "" {
			md["namespace"] = ref.Namespace
		}
		body, err := json.Marshal(map[string]any{"apiVersion": m.GroupVersionKind.GroupVersion().String(),
			"kind": ref.Kind, "metadata": md})
		if err != nil {
			return nil, err
		}
		after, err := a.applyAs(ctx, WriteRelease, a.client.Resource(m.Resource).Namespace(ref.Namespace), ref.Name,
			e.Manager, body, false)
		if err != nil {
			return nil, err
		}
		u = after
	}
	return u, nil
}

// awaitContribution keeps the entry of a contribution that left the stack for as long as the API
// server may still apply it: it did not answer the last request, or another process may have sent
// one.
func (a *executor) awaitContribution(id string, e *appsv1.InventoryEntry, now time.Time) {
	state := a.engine.creates.get(a.ownerKey, id)
	if e.Hash == "" && !state.known {
		state = createState{known: true, pendingUntil: now.Add(a.engine.requestTimeout)}
		a.engine.creates.record(a.ownerKey, id, state)
	}
	if now.Before(state.pendingUntil) {
		a.unsettle(id, state.pendingUntil, fmt.Sprintf("%s: a request that the API server did not answer may still "+
			"be applied, until %s", id, state.pendingUntil.UTC().Format(time.TimeOnly)))
	}
}
