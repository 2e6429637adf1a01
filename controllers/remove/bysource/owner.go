package bysource

import (
	"context"
	"encoding/json"
	"errors"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/stacks"
)

// owner is a KsctlRemove as the engine sees it. Its inventory is what was found:
// intended until it is approved and marked as ours, applied from then on.
type owner struct {
	key    engine.OwnerKey
	inv    *engine.Inventory
	chunks *engine.ChunkStore
	// target is the cluster that it is for, as found last; nil: it was not yet.
	target *engine.Target
	uid    string
	// req is the reconcile under way.
	req *reconcile.Request[*appsv1.KsctlRemove]
	// orphan releases what is left instead of deleting it.
	orphan bool
}

var _ engine.Owner = (*owner)(nil)

// Key implements engine.Owner.
func (o *owner) Key() engine.OwnerKey { return o.key }

// Inventory implements engine.Owner.
func (o *owner) Inventory() *engine.Inventory { return o.inv }

// Policies implements engine.Owner. What is kept is not in the inventory.
func (o *owner) Policies() engine.Policies {
	p := engine.DefaultPolicies
	p.Protect, p.Orphan = nil, o.orphan
	take := o.req.Object.Spec.CustomResources == appsv1.CustomResourcesDelete
	p.Asked = func(*appsv1.InventoryEntry) *engine.Request {
		return &engine.Request{Keep: func(stacks.Ref) string { return "" }, TakeCustomResources: take}
	}
	return p
}

var errNothingToSend = errors.New("a KsctlRemove applies nothing")

// Manifest implements engine.Owner.
func (o *owner) Manifest(context.Context, *engine.Item) (json.RawMessage, error) {
	return nil, errNothingToSend
}

// Persist implements engine.Owner.
func (o *owner) Persist(ctx context.Context) error {
	if err := o.flush(ctx); err != nil {
		return err
	}
	return o.req.Persist(ctx, "taking what was found")
}

// flush brings the inventory into the status, and what does not fit there into chunks.
func (o *owner) flush(ctx context.Context) error {
	status, err := o.chunks.Record(ctx, o.key, o.inv)
	if err != nil {
		return err
	}
	st := &o.req.Object.Status
	st.Inventory, st.Cluster = status, target.Status(o.key.Cluster, status)
	st.ClusterUID = target.StatusUID(st.ClusterUID, o.uid, status)
	return nil
}

// begun is true once objects were marked as ours, or may have been.
func (o *owner) begun() bool { return o.req.Object.Status.Removed != nil && o.inv.Len() > 0 }

// replace makes a set the inventory.
func (o *owner) replace(set []appsv1.InventoryEntry) {
	for _, e := range o.inv.Entries() {
		o.inv.Remove(e.ID)
	}
	for i := range set {
		o.inv.Put(set[i])
	}
}
