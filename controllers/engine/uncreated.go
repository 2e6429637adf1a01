package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// createState is the state of the create requests that this process sent for an entry: an uncreated
// one, see plan.Uncreated, or one whose object was created again.
type createState struct {
	known bool
	// pendingUntil is the time until which the API server may still create the object: it did not
	// answer the last request, or another process may have sent one.
	pendingUntil time.Time
}

// recordIntent records that this process added an entry, so that no other process sent a create.
func (a *executor) recordIntent(e *appsv1.InventoryEntry) {
	uncertain := plan.Uncreated(e) || e.State == appsv1.EntryContributed
	if uncertain && !a.engine.creates.get(a.ownerKey, e.ID).known {
		a.engine.creates.record(a.ownerKey, e.ID, createState{known: true})
	}
}

// recordCreate records the answer to a create request.
func (a *executor) recordCreate(id string, err error) {
	switch {
	case err == nil:
		a.engine.creates.reset(a.ownerKey, id)
	case !isRejection(err):
		a.engine.creates.record(a.ownerKey, id,
			createState{known: true, pendingUntil: a.engine.clock.Now().Add(a.engine.requestTimeout)})
	}
}

// isRejection is true for an answer that proves that the request had no effect and will have none.
func isRejection(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != 408
}

// uncreatedKind are uncreated entries of one kind whose create requests have all ended.
type uncreatedKind struct {
	mapping *meta.RESTMapping
	refs    map[string]stacks.Ref // by id
}

// forgetUncreated removes the uncreated entries that are no longer desired from the inventory, if
// the API server certainly has no object of them and will not create one. Those that have an
// object get its uid. The others wait: see executor.unsettled.
func (a *executor) forgetUncreated(ctx context.Context) {
	inv, now := a.owner.Inventory(), a.engine.clock.Now()
	a.unsettled = map[string]string{}
	kinds := map[schema.GroupKind]*uncreatedKind{}
	for id, e := range inv.All() {
		if e.State == appsv1.EntryContributed && !a.retained[id] {
			a.awaitContribution(id, &e, now)
			continue
		}
		if a.retained[id] || a.hookIDs[id] || !plan.Uncreated(&e) &&
			a.engine.creates.get(a.ownerKey, id).pendingUntil.IsZero() {
			continue
		}
		ref, err := stacks.ParseID(id)
		if err != nil {
			continue
		}
		if l, ok := a.target.Index.Get(ref); ok && l.Mark.Owner == a.ownerKey {
			if plan.Uncreated(&e) {
				e.UID = l.UID
				inv.Put(e)
			}
			continue
		}
		state := a.engine.creates.get(a.ownerKey, id)
		if !state.known { // only for an uncreated entry
			state = createState{known: true, pendingUntil: now.Add(a.engine.requestTimeout)}
			a.engine.creates.record(a.ownerKey, id, state)
		}
		switch m, err := a.target.Discovery.Resolve(ctx, ref.Group, e.Version, ref.Kind); {
		case state.pendingUntil.IsZero():
			a.forget(id) // every request was rejected, or none was sent
		case now.Before(state.pendingUntil):
			a.unsettle(id, state.pendingUntil, fmt.Sprintf("%s may still be created by a request that the API server "+
				"did not answer, until %s",
				ref, state.pendingUntil.UTC().Format(time.TimeOnly)))
		case err != nil:
			a.unsettle(id, now.Add(a.retry.Interval), fmt.Sprintf("%s: %v", ref, err))
		case !a.listable(ref.GroupKind()):
			a.unsettle(id, time.Time{}, fmt.Sprintf("%s: %v", ref, a.target.Index.Synced(ref.GroupKind())))
		case !plan.Uncreated(&e):
			a.engine.creates.reset(a.ownerKey, id) // a GET decides, as for each missing object
		default:
			k := kinds[ref.GroupKind()]
			if k == nil {
				k = &uncreatedKind{mapping: m, refs: map[string]stacks.Ref{}}
				kinds[ref.GroupKind()] = k
			}
			k.refs[id] = ref
		}
	}
	for _, k := range kinds {
		a.forgetAbsent(ctx, k)
	}
}

// listable is false while the index has not listed a kind yet. A kind that the controller may not
// list is checked with the rights of the account.
func (a *executor) listable(gk schema.GroupKind) bool {
	err := a.target.Index.Synced(gk)
	var notSynced *live.SyncError
	return err == nil || errors.As(err, &notSynced) && notSynced.Reason == live.Forbidden
}

// forget removes an uncreated entry from the inventory.
func (a *executor) forget(id string) {
	a.owner.Inventory().Remove(id)
	a.engine.creates.reset(a.ownerKey, id)
}

// unsettle records why an uncreated entry is kept, and when that is checked again; a zero time if
// an event of the index follows.
func (a *executor) unsettle(id string, retryAt time.Time, why string) {
	a.unsettled[id] = why
	if !retryAt.IsZero() {
		a.settleBy(retryAt)
	}
}

// forgetAbsent forgets the entries of one kind that have no object. One list with the permissions
// of the controller decides; without these permissions a GET with those of the account.
func (a *executor) forgetAbsent(ctx context.Context, k *uncreatedKind) {
	existing, err := a.listMarked(ctx, k.mapping)
	now := a.engine.clock.Now()
	for id, ref := range k.refs {
		entryErr := err
		exists := existing[id]
		if apierrors.IsForbidden(err) {
			exists, entryErr = a.hasMarkedObject(ctx, k.mapping, ref)
		}
		switch {
		case apierrors.IsForbidden(entryErr):
			a.unsettle(id, now.Add(a.retry.Interval), fmt.Sprintf("%s was possibly created, and neither the "+
				"controller may list %s nor the service account may get it: grant one of them",
				ref, k.mapping.Resource.Resource))
		case entryErr != nil:
			a.unsettle(id, now.Add(retryDelay(entryErr, a.retry.Interval)),
				fmt.Sprintf("%s was possibly created: %v", ref, entryErr))
		case exists:
			a.unsettle(id, now.Add(min(shortRetry, a.retry.Interval)),
				fmt.Sprintf("%s was created, but is not observed yet", ref))
		default:
			a.forget(id)
		}
	}
}

// listMarked returns the ids of the objects of a kind with the owner's mark. The controller lists
// them without a resourceVersion, so that the answer is not from a cache.
func (a *executor) listMarked(ctx context.Context, m *meta.RESTMapping) (map[string]bool, error) {
	c, err := a.target.ClientFor(nil)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for next := ""; ; {
		page, err := c.listMetadata(ctx, m.Resource, live.OwnerLabel+"="+a.owner.Key().Installation, next)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			item := &page.Items[i]
			id := stacks.Ref{Group: m.GroupVersionKind.Group, Kind: m.GroupVersionKind.Kind, Namespace: item.Namespace,
				Name: item.Name}.ID()
			// copies have the mark of another object
			if item.Annotations[live.MarkAnnotation] == (live.Mark{Owner: a.ownerKey, ID: id}).String() {
				out[id] = true
			}
		}
		if next = page.Continue; next == "" {
			return out, nil
		}
	}
}

// hasMarkedObject reads an object with the permissions of the account.
func (a *executor) hasMarkedObject(ctx context.Context, m *meta.RESTMapping, ref stacks.Ref) (bool, error) {
	if a.client == nil {
		return false, apierrors.NewForbidden(m.Resource.GroupResource(), ref.Name, errors.New("no account"))
	}
	u, err := a.client.Resource(m.Resource).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && a.hasOwnMark(u, ref.ID()), err
}

// listMetadata returns a page of the metadata of the objects of a kind, in all namespaces.
func (c *Client) listMetadata(ctx context.Context, r schema.GroupVersionResource,
	selector, next string) (*metav1.PartialObjectMetadataList, error) {
	b, err := c.rest.Get().AbsPath(collectionPath(r)...).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").
		Param("labelSelector", selector).Param("limit", strconv.Itoa(pageSize)).Param("continue", next).
		Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	var page metav1.PartialObjectMetadataList
	return &page, json.Unmarshal(b, &page)
}
