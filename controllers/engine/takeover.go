package engine

import (
	"context"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
)

// comparison records that an object was compared before it is taken over.
type comparison struct {
	// contentHash is the hash of the desired content.
	contentHash string
	// resourceVersion is the version that was compared; empty when there was no object.
	resourceVersion string
}

// compareExisting compares the existing objects of a component with the desired ones before the
// first object of the component is written. With adopt Always it reports what differs; with
// Unchanged it backs the component off. It returns true if the plan changes.
func (a *executor) compareExisting(ctx context.Context, p *plan.Plan) (replan bool, err error) {
	policies := a.owner.Policies()
	if !policies.TakesOver() {
		return false, nil
	}
	starts := map[string]bool{}
	for i := range p.Actions {
		if act := &p.Actions[i]; act.Verb == plan.VerbCreate && a.mustCompare(act.Item) {
			starts[act.Item.Component] = true
		}
	}
	for i := range a.components {
		c := &a.components[i]
		if !starts[c.Name] {
			continue
		}
		different, err := a.compareComponent(ctx, c)
		switch {
		case err != nil && isFatal(err):
			return false, err
		case err != nil:
			a.backOffComponent(c, err)
			replan = true
		case different == nil:
		case policies.Adopt == appsv1.AdoptUnchanged:
			a.backOffComponent(c, different)
			replan = true
		case a.reportDifferent != nil:
			a.reportDifferent(different)
		}
	}
	return replan, nil
}

// mustCompare is true for an item that was not created, and not compared with its current content.
func (a *executor) mustCompare(it *plan.Item) bool {
	return a.isUncreated(it) && a.engine.compared.get(a.ownerKey, it.ID).contentHash != it.ContentHash
}

func (a *executor) isUncreated(it *plan.Item) bool {
	e, _ := a.owner.Inventory().Get(it.ID)
	return e.UID == "" && e.Hash == ""
}

// compareComponent compares the objects of a component that are not its owner's yet. It returns nil
// if none differs.
func (a *executor) compareComponent(ctx context.Context, c *plan.Component) (*DifferentError, error) {
	var pending []*plan.Item
	for i := range c.Items {
		if a.mustCompare(&c.Items[i]) {
			pending = append(pending, &c.Items[i])
		}
	}
	found, versions := make([]*DifferentObject, len(pending)), make([]string, len(pending))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(a.engine.concurrency)
	for i, it := range pending {
		g.Go(func() (err error) {
			found[i], versions[i], err = a.compareItem(ctx, it)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var different []DifferentObject
	for i, it := range pending {
		if found[i] != nil {
			different = append(different, *found[i])
		}
		a.engine.compared.record(a.ownerKey, it.ID, comparison{it.ContentHash, versions[i]})
	}
	if len(different) == 0 {
		return nil, nil
	}
	return newDifferentError(c.Name, different), nil
}

// backOffComponent backs off the objects of a component that were not created yet.
func (a *executor) backOffComponent(c *plan.Component, err error) {
	for i := range c.Items {
		it := &c.Items[i]
		if a.isUncreated(it) {
			a.engine.compared.reset(a.ownerKey, it.ID)
			act := plan.Action{Verb: plan.VerbCreate, Item: it}
			act.Entry.ID = it.ID
			a.backOff(&act, err)
		}
	}
}

// compareItem reads the object of an item, and compares it. It returns its version; empty when
// there is none.
func (a *executor) compareItem(ctx context.Context, it *plan.Item) (*DifferentObject, string, error) {
	if it.Mapping == nil || it.ResolveErr != nil || it.Shared || it.Generated || it.Settled || it.Runs() ||
		it.IsCreateOnly() || it.Contribute {
		return nil, "", nil //nolint:nilerr // what is not sent needs no comparison
	}
	for try := 1; ; try++ {
		u, err := a.resource(it).Get(ctx, it.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) { // the real request reports the latter
			return nil, "", nil
		}
		if err != nil {
			different, err := a.uncompared(it, err)
			return different, "", err
		}
		different, err := a.compare(ctx, it, u)
		switch {
		case err == nil:
			return different, u.GetResourceVersion(), nil
		case apierrors.IsConflict(err) && try < maxAttempts:
			continue
		}
		different, err = a.uncompared(it, err)
		return different, "", err
	}
}

// uncompared returns the result of a comparison that failed. With adopt Always, the object is taken
// over all the same: a webhook that is down must not prevent what would repair it.
func (a *executor) uncompared(it *plan.Item, err error) (*DifferentObject, error) {
	always := a.owner.Policies().Adopt == appsv1.AdoptAlways
	if isFatal(err) || !always && isTransient(err) {
		return nil, &ObjectError{Ref: it.Ref, Verb: "compare", Err: err, Redact: a.owner.Policies().Redact}
	}
	return &DifferentObject{Ref: it.Ref, Uncompared: apierrors.ReasonForError(err)}, nil
}

// compare compares an existing object that may be taken over with what it would be then. It returns
// nil if only its metadata would change, or if it is not taken over.
func (a *executor) compare(ctx context.Context, it *plan.Item, u *unstructured.Unstructured) (*DifferentObject, error) {
	state, err := claim(a.owner.Key(), it.Ref, &appsv1.InventoryEntry{}, a.owner.Policies().Adopt, u)
	if err != nil || !a.takesOver(state) || u.GetDeletionTimestamp() != nil || a.hasOwnMark(u, it.ID) {
		return nil, nil //nolint:nilerr // the request that would take it over reports the owner
	}
	after, err := a.dryRun(ctx, it, u)
	if paths := refusedFields(err); len(paths) > 0 {
		return &DifferentObject{Ref: it.Ref, Paths: paths}, nil
	}
	if err != nil {
		return nil, err
	}
	if err := removeFormerFields(after, u, it); err != nil {
		return nil, err
	}
	if paths := live.Differences(u, after); len(paths) > 0 {
		return &DifferentObject{Ref: it.Ref, Paths: paths}, nil
	}
	return nil, nil
}

// refuseChanged compares an object that adopt Unchanged takes over, if it changed since the
// component was compared. It returns nil if it may be taken over.
func (a *executor) refuseChanged(ctx context.Context, act *plan.Action, u *unstructured.Unstructured) *actionResult {
	compared := a.engine.compared.get(a.ownerKey, act.Entry.ID)
	if a.owner.Policies().Adopt != appsv1.AdoptUnchanged || compared.resourceVersion == u.GetResourceVersion() {
		return nil
	}
	different, err := a.compare(ctx, act.Item, u)
	if err != nil {
		different, err = a.uncompared(act.Item, err)
	}
	switch {
	case err != nil:
		return new(a.errorResult(act, err))
	case different != nil:
		return &actionResult{err: newDifferentError(act.Item.Component, []DifferentObject{*different})}
	}
	return nil
}

// dryRun returns what an object would be if its item was applied. Nothing is stored.
func (a *executor) dryRun(ctx context.Context, it *plan.Item,
	u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	kept, err := keptFields(u, it.Ignore)
	if err != nil {
		return nil, err
	}
	manifest, err := a.owner.Manifest(ctx, it)
	if err != nil {
		return nil, err
	}
	pre := precondition{uid: u.GetUID(), resourceVersion: u.GetResourceVersion()}
	body, err := applyPatch(manifest, it, a.owner.Key(), pre, false, kept)
	if err != nil {
		return nil, err
	}
	return a.resource(it).Patch(ctx, it.Name, types.ApplyPatchType, body, metav1.PatchOptions{
		FieldManager: live.FieldManager, Force: ptr.To(true), DryRun: []string{metav1.DryRunAll}})
}

// refusedFields returns the JSON pointers of the fields that the API server refuses to change; none
// for another error.
func refusedFields(err error) (out []string) {
	details := errorDetails(err)
	if details == nil || !apierrors.IsInvalid(err) {
		return nil
	}
	for _, c := range details.Causes {
		if c.Field != "" && c.Field != "<nil>" {
			out = append(out, pointerOf(c.Field))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// pointerOf converts a field path of the API server, such as spec.containers[0].image or
// data[tls.crt], to a JSON pointer.
func pointerOf(field string) string {
	var tokens []string
	for field != "" {
		if inner, ok := strings.CutPrefix(field, "["); ok {
			token, rest, _ := strings.Cut(inner, "]")
			tokens, field = append(tokens, token), strings.TrimPrefix(rest, ".")
			continue
		}
		end := strings.IndexAny(field, ".[")
		if end < 0 {
			end = len(field)
		}
		tokens, field = append(tokens, field[:end]), strings.TrimPrefix(field[end:], ".")
	}
	return live.FormatPointer(tokens)
}

// removeFormerFields removes the fields from the result of a dry run that the real request removes,
// because it makes us the owner of what the former tools of u applied, see migrateFieldManager.
func removeFormerFields(after, u *unstructured.Unstructured, it *plan.Item) error {
	ignored, err := ignoredFields(u, it.Ignore)
	if err != nil {
		return err
	}
	entries, changed, err := migrateManagedFields(u.GetManagedFields(), u.GetAPIVersion(), ignored)
	if err != nil || !changed {
		return err
	}
	last := len(entries) - 1 // ours
	formerly, err := readSet(entries[last].FieldsV1)
	if err != nil {
		return err
	}
	entries = entries[:last]
	for _, e := range after.GetManagedFields() {
		if isOwnEntry(e) {
			entries = append(entries, e)
		}
	}
	stay := map[string]bool{} // with the fields around them
	for _, e := range entries {
		set, err := readSet(e.FieldsV1)
		if err != nil {
			return err
		}
		set.Iterate(func(p fieldpath.Path) {
			for i := range p {
				stay[p[:i+1].String()] = true
			}
		})
	}
	formerly.Leaves().Iterate(func(p fieldpath.Path) {
		for i := range p {
			if part := p[:i+1]; !stay[part.String()] {
				removeField(after.Object, part)
				return
			}
		}
	})
	return nil
}

// removeField removes the field at a path; of a value in a set, the set.
func removeField(obj map[string]any, p fieldpath.Path) {
	var path []string
	for _, e := range p {
		if e.FieldName != nil {
			path = append(path, *e.FieldName)
			continue
		}
		if e.Value != nil {
			break
		}
		token, err := fieldpath.SerializePathElement(e)
		if err != nil {
			return
		}
		path = append(path, strings.TrimPrefix(token, "i:"))
	}
	if findItems(obj, path) {
		removeAt(obj, path)
	}
}
