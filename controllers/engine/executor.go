package engine

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// executor executes the actions of one pass.
type executor struct {
	engine *Engine
	target *Target
	client *Client
	owner  Owner
	// ownerKey is the key of the owner in the format of marks.
	ownerKey string
	retry    RetryPolicy
	report   *Report
	// mayReceive and isActive are those of the Pass.
	mayReceive func(ctx context.Context, to plan.OwnerKey, r schema.GroupVersionResource,
		ref stacks.Ref) (bool, error)
	isActive        func(ctx context.Context, to plan.OwnerKey, ref stacks.Ref) (bool, error)
	reportDifferent func(*DifferentError)
	// unsaved is true until the owner was persisted, see Pass.
	unsaved bool
	// components are the desired objects; nil where only the inventory counts.
	components []plan.Component
	// desired are the ids of their items.
	desired map[string]bool
	// removalHooks are those of the Pass, hookComponents have their items, and hookIDs their ids.
	removalHooks   []plan.RemovalHooks
	hookComponents []plan.Component
	hookIDs        map[string]bool
	// replanned are the ids that needed another plan once in this pass.
	replanned map[string]bool
	// contributed are the names of the objects that the owner contributes to.
	contributed map[string]live.ObjectName
	// existing has the objects that findExisting has read, and whether they exist.
	existing map[string]bool
	// retained are the ids of the inventory that must not be deleted.
	retained map[string]bool
	// collected are the Jobs whose result this pass has tried to read.
	collected map[string]bool
	// unsettled are the uncreated entries that may still get an object, with the reason; settleAt
	// is the time of the next check.
	unsettled map[string]string
	settleAt  time.Time
	// teardown is true if all objects are removed.
	teardown bool
	// onlyRequested is true if only objects with a removal request may leave.
	onlyRequested bool
	// preview is true before anything was deleted: objects that will be deleted, too, then do not
	// block the deletion of others.
	preview bool

	mu sync.Mutex
	// namespaceStates are the namespaces that were read in this pass.
	namespaceStates map[string]namespaceState
}

func (e *Engine) newExecutor(p Pass) *executor {
	a := &executor{engine: e, unsaved: p.Unsaved, removalHooks: p.RemovalHooks, mayReceive: p.MayReceive,
		isActive: p.IsActive, reportDifferent: p.ReportDifferent,
		target: p.Target, client: p.Client,
		owner: p.Owner, ownerKey: p.Owner.Key().String(), retry: p.Retry, report: &Report{},
		replanned: map[string]bool{}, existing: map[string]bool{},
		collected: map[string]bool{}}
	for i := range p.RemovalHooks {
		a.hookComponents = append(a.hookComponents, p.RemovalHooks[i].Pre, p.RemovalHooks[i].Post)
	}
	a.hookIDs = itemIDs(a.hookComponents)
	return a
}

// actionResult is the result of one action.
type actionResult struct {
	// entry replaces the inventory entry; dropEntry removes it.
	entry     *appsv1.InventoryEntry
	dropEntry bool
	// replan is true when the state of the object differs from the plan: the next round plans it
	// again.
	replan bool
	// denied is true for a handover that the new owner may not receive: the next round plans again.
	denied bool
	// lostNamespace is the id of the entry of a shared namespace that has to be created again.
	lostNamespace string
	change        *Change
	err           error
	// fatal ends the pass.
	fatal error
}

// Results without a change.
var (
	planAgain = actionResult{replan: true}
	dropEntry = actionResult{dropEntry: true}
)

// persist writes the inventory entries of the objects that are about to be created or deleted.
func (a *executor) persist(ctx context.Context, intents []appsv1.InventoryEntry) error {
	if len(intents) == 0 && !a.unsaved {
		return nil
	}
	a.unsaved = false
	for i := range intents {
		a.owner.Inventory().Put(intents[i])
		a.recordIntent(&intents[i])
	}
	return a.withWriteHook(ctx, WriteIntent, func() error { return a.owner.Persist(ctx) })
}

// groups returns the actions of each list in order, in groups that run concurrently: adjacent
// actions of one kind in one step of one component.
func groups(lists ...[]plan.Action) (out [][]plan.Action) {
	for _, actions := range lists {
		for start := 0; start < len(actions); {
			end := start + 1
			for end < len(actions) && sameGroup(&actions[start], &actions[end]) {
				end++
			}
			out = append(out, actions[start:end])
			start = end
		}
	}
	return out
}

func sameGroup(x, y *plan.Action) bool {
	if x.Item == nil || y.Item == nil {
		return x.Item == nil && y.Item == nil
	}
	return x.Item.Component == y.Item.Component && x.Item.Step == y.Item.Step &&
		x.Item.GroupKind() == y.Item.GroupKind()
}

// executeGroup executes actions concurrently, and records their results one after the other.
func (a *executor) executeGroup(ctx context.Context, actions []plan.Action) error {
	results := make([]actionResult, len(actions))
	var g errgroup.Group
	g.SetLimit(a.engine.concurrency)
	for i := range actions {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				results[i].fatal = err
				return err
			}
			run := operationOf(&actions[i])
			results[i] = run(a, ctx, &actions[i])
			return results[i].fatal
		})
	}
	err := g.Wait()
	for i := range results {
		if actions[i].Verb == plan.VerbCollect {
			a.collected[actions[i].Entry.ID] = true
		}
		a.recordResult(&actions[i], &results[i])
	}
	return err
}

// recordResult writes a result into the inventory and the report.
func (a *executor) recordResult(act *plan.Action, r *actionResult) {
	id := act.Entry.ID
	switch {
	case r.fatal != nil:
		return
	case r.dropEntry:
		a.owner.Inventory().Remove(id)
	case r.entry != nil:
		a.owner.Inventory().Put(*r.entry)
	}
	if e, ok := a.owner.Inventory().Get(r.lostNamespace); ok {
		e.Hash, e.UID = "", ""
		a.owner.Inventory().Put(e)
	}
	if r.change != nil {
		a.report.Changes = append(a.report.Changes, *r.change)
		if r.change.Verb == plan.VerbDelete && act.Entry.Hash != "" {
			a.engine.recreations.recordDeletion(a.ownerKey, id, act.Entry.Hash, a.engine.clock.Now())
		}
	}
	if r.err != nil {
		a.backOff(act, r.err)
	} else if r.replan && a.replanned[id] {
		// Twice in one pass: another client changes it as often as we read it.
		a.backOff(act, a.errorResult(act, errBusy).err)
	}
	if r.replan {
		a.replanned[id] = true
	}
}

// backOff records a failed action: the object is skipped until its retry is due.
func (a *executor) backOff(act *plan.Action, err error) {
	contentHash := ""
	if act.Item != nil {
		contentHash = act.Item.ContentHash
	}
	now := a.engine.clock.Now()
	a.engine.backoffs.record(a.ownerKey, act.Entry.ID,
		backoff{start: now, retryAt: now.Add(retryDelay(err, a.retry.Interval)), contentHash: contentHash, err: err})
}

// withWriteHook calls the write hook before and after a write.
func (a *executor) withWriteHook(ctx context.Context, kind WriteKind, write func() error) error {
	if err := a.beforeWrite(ctx, kind); err != nil {
		return err
	}
	return a.afterWrite(ctx, kind, write())
}

// beforeWrite calls the write hook before a write.
func (a *executor) beforeWrite(ctx context.Context, kind WriteKind) error {
	if err := a.engine.writeHook(ctx, kind, false); err != nil {
		return &WriteHookError{Err: err}
	}
	return nil
}

// afterWrite calls the write hook after a write. It returns the error of the hook, else that of the
// write.
func (a *executor) afterWrite(ctx context.Context, kind WriteKind, err error) error {
	if hookErr := a.engine.writeHook(ctx, kind, true); hookErr != nil {
		return &WriteHookError{Err: hookErr}
	}
	return err
}

// patch patches an object, and calls the write hook. An apply forces conflicts.
func (a *executor) patch(ctx context.Context, kind WriteKind, r dynamic.ResourceInterface, name string,
	as types.PatchType, body []byte) (*unstructured.Unstructured, error) {
	opts := metav1.PatchOptions{FieldManager: live.FieldManager}
	if as == types.ApplyPatchType {
		opts.Force = ptr.To(true)
	}
	if err := a.beforeWrite(ctx, kind); err != nil {
		return nil, err
	}
	u, err := r.Patch(ctx, name, as, body, opts)
	return u, a.afterWrite(ctx, kind, err)
}

// mergePatch patches an object, and calls the write hook. The error is a conflict if the object has
// another uid than the patch.
func (a *executor) mergePatch(ctx context.Context, kind WriteKind, r dynamic.ResourceInterface, name string,
	change map[string]any) (*unstructured.Unstructured, error) {
	body, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	u, err := a.patch(ctx, kind, r, name, types.MergePatchType, body)
	if details := uidMismatch(err); details != nil {
		err = apierrors.NewConflict(schema.GroupResource{Group: details.Group, Resource: details.Kind}, name, err)
	}
	return u, err
}

// uidMismatch returns the details of the error of a patch whose uid differs from that of the
// object; nil for other errors. The API server responds with 422 to such a merge patch, because a
// uid is immutable, and with 409 to an apply.
func uidMismatch(err error) *metav1.StatusDetails {
	details := errorDetails(err)
	isUID := func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" }
	if details == nil || !apierrors.IsInvalid(err) || !slices.ContainsFunc(details.Causes, isUID) {
		return nil
	}
	return details
}

// errorDetails returns the details of an error of the API server; nil if it has none.
func errorDetails(err error) *metav1.StatusDetails {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return nil
	}
	return status.Status().Details
}

// awaitReleases makes the index notify the owner when another owner releases an object that it
// waits for, or changes one that it uses. It returns true if that happened since the plan was made:
// no notification follows then.
func (a *executor) awaitReleases(p *plan.Plan) bool {
	var refs []stacks.Ref
	var planned []*live.Object
	for _, actions := range [][]plan.Action{p.Waits, p.Shared} {
		for i := range actions {
			act := &actions[i]
			owned := act.Reason == plan.ReasonOwnedByOther || act.Reason == plan.ReasonShared ||
				act.Reason == plan.ReasonAwaitsFormerOwner
			if owned && act.Item != nil && (act.Live != nil || act.Item.Serves != nil) {
				refs, planned = append(refs, act.Item.Ref), append(planned, act.Live)
			}
		}
	}
	a.target.Index.SetAwaited(a.ownerKey, refs)
	for i, ref := range refs {
		l, ok := a.target.Index.Get(ref)
		if before := planned[i]; ok != (before != nil) || ok && (l.Mark.Owner != before.Mark.Owner ||
			l.Serves != nil && !sameDefinition(before, &l)) {
			return true
		}
	}
	return false
}

// observeOtherOwner adds an object of another owner of this installation to the index. It returns
// true if the index will observe a change of the owner.
func (a *executor) observeOtherOwner(u *unstructured.Unstructured) bool {
	if u.GetLabels()[live.OwnerLabel] != a.owner.Key().Installation {
		return false
	}
	o, err := a.target.Index.Observe(u)
	if err != nil {
		return false
	}
	known, ok := a.target.Index.Get(o.Ref)
	return ok && known.UID == o.UID && known.Mark.Owner != a.ownerKey
}
