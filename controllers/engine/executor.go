package engine

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// actor does the requests of one pass.
type actor struct {
	engine *Engine
	target *Target
	client *Client
	owner  Owner
	retry  Retry
	report *Report
	// sent are ids whose deletion was answered in this pass.
	sent map[string]bool
	// stays are ids of the inventory that are not to go.
	stays map[string]bool
	// rehearses is true when nothing went yet: what is to go is nobody's hindrance.
	rehearses bool

	mu sync.Mutex
	// places are the answers of this pass about namespaces.
	places map[string]place
}

// result is what one request did to one object.
type result struct {
	// entry replaces the entry of the id, unless drop.
	entry *appsv1.InventoryEntry
	drop  bool
	// again is true when the object turned out otherwise than known: the next
	// round plans it anew.
	again bool
	// lost is the entry of a shared namespace that is to be made again.
	lost   string
	change *Change
	err    error
	// fatal ends the pass.
	fatal error
}

// round records intents, then does the actions in order, then the removals.
func (a *actor) round(ctx context.Context, p *Plan) error {
	if len(p.Intents) > 0 {
		for _, e := range p.Intents {
			a.owner.Inventory().Put(e)
		}
		if err := a.at(ctx, WriteIntent, func() error { return a.owner.Persist(ctx) }); err != nil {
			return err
		}
	}
	if err := a.groups(ctx, p.Actions, a.act); err != nil {
		return err
	}
	return a.groups(ctx, p.Removals, a.remove)
}

// groups does neighbours of one kind in one component at a time, in order.
func (a *actor) groups(ctx context.Context, actions []Action, do func(context.Context, *Action) result) error {
	for start := 0; start < len(actions); {
		end := start + 1
		for end < len(actions) && sameGroup(&actions[start], &actions[end]) {
			end++
		}
		if err := a.group(ctx, actions[start:end], do); err != nil {
			return err
		}
		start = end
	}
	return nil
}

func sameGroup(x, y *Action) bool {
	if x.Item == nil || y.Item == nil {
		return x.Item == nil && y.Item == nil
	}
	return x.Item.Component == y.Item.Component && x.Item.Step == y.Item.Step && x.Item.GroupKind() == y.Item.GroupKind()
}

// group does actions side by side and takes their results one after the other.
func (a *actor) group(ctx context.Context, actions []Action, do func(context.Context, *Action) result) error {
	results := make([]result, len(actions))
	var g errgroup.Group
	g.SetLimit(a.engine.concurrency)
	for i := range actions {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				results[i].fatal = err
				return err
			}
			results[i] = do(ctx, &actions[i])
			return results[i].fatal
		})
	}
	err := g.Wait()
	for i := range results {
		a.take(&actions[i], &results[i])
	}
	return err
}

// take writes a result into the inventory and the report.
func (a *actor) take(act *Action, r *result) {
	id := act.Entry.ID
	switch {
	case r.fatal != nil:
		return
	case r.drop:
		a.owner.Inventory().Remove(id)
	case r.entry != nil:
		a.owner.Inventory().Put(*r.entry)
	}
	if e, ok := a.owner.Inventory().Get(r.lost); ok {
		e.Hash, e.UID = "", ""
		a.owner.Inventory().Put(e)
	}
	if r.change != nil {
		a.report.Changes = append(a.report.Changes, *r.change)
	}
	if r.err != nil {
		a.backOff(act, r.err)
	} else if r.again && a.sent[id] {
		// Twice in one pass: somebody writes as fast as we do.
		a.backOff(act, &ObjectError{Ref: refOf(act), Verb: string(act.Verb), Err: errBusy})
	}
	if r.again {
		a.sent[id] = true
	}
}

// backOff leaves an object alone until it may be tried again.
func (a *actor) backOff(act *Action, err error) {
	want := ""
	if act.Item != nil {
		want = act.Item.Want
	}
	now := a.engine.clock.Now()
	a.engine.backoffs.record(a.owner.Key().String(), act.Entry.ID, backoff{start: now, retryAt: now.Add(retryDelay(err, a.retry.Interval)), want: want, err: err})
}

// at calls the boundary before and after a write.
func (a *actor) at(ctx context.Context, kind WriteKind, write func() error) error {
	if err := a.engine.boundary(ctx, kind, false); err != nil {
		return &CrashError{Err: err}
	}
	err := write()
	if berr := a.engine.boundary(ctx, kind, true); berr != nil {
		return &CrashError{Err: berr}
	}
	return err
}

func refOf(act *Action) stacks.Ref {
	if act.Item != nil {
		return act.Item.Ref
	}
	ref, err := stacks.ParseID(act.Entry.ID)
	if err != nil {
		return stacks.Ref{Name: act.Entry.ID}
	}
	return ref
}

// merge changes an object by a merge patch, which is a write boundary. An object with another
// uid than that of the patch is a conflict.
func (a *actor) merge(ctx context.Context, kind WriteKind, r dynamic.ResourceInterface, name string, change map[string]any) (*unstructured.Unstructured, error) {
	body, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	var u *unstructured.Unstructured
	err = a.at(ctx, kind, func() (err error) {
		u, err = r.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: live.FieldManager})
		return err
	})
	if details := otherUID(err); details != nil {
		err = apierrors.NewConflict(schema.GroupResource{Group: details.Group, Resource: details.Kind}, name, err)
	}
	return u, err
}

// otherUID returns the details of the answer to a patch with a uid that met an object with
// another one; nil for other answers. The API server answers 422 to a merge patch, as a uid is
// immutable, and 409 to an apply.
func otherUID(err error) *metav1.StatusDetails {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	details := status.Status().Details
	if !slices.ContainsFunc(details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" }) {
		return nil
	}
	return details
}
