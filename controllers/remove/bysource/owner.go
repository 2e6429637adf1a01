package bysource

import (
	"context"
	"encoding/json"
	"errors"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/stacks"
)

// owner implements engine.Owner for a KsctlRemove. Its inventory has the found objects: intended
// until they are approved and marked by the controller, applied from then on.
type owner struct {
	key    plan.OwnerKey
	inv    *plan.Inventory
	chunks *engine.ChunkStore
	// target is the last known cluster of the KsctlRemove; nil before the first lookup.
	target *engine.Target
	uid    string
	// req is the current reconcile request.
	req *reconcile.Request[*appsv1.KsctlRemove]
	// orphan releases the remaining objects instead of deleting them.
	orphan bool
	// terminatingNamespace is the namespace of the KsctlRemove while that is being deleted with it.
	terminatingNamespace string
}

var _ engine.Owner = (*owner)(nil)

// Key implements engine.Owner.
func (o *owner) Key() plan.OwnerKey { return o.key }

// Inventory implements engine.Owner.
func (o *owner) Inventory() *plan.Inventory { return o.inv }

// Policies implements engine.Owner. Kept objects are not in the inventory.
func (o *owner) Policies() plan.Policies {
	p := plan.DefaultPolicies
	p.ProtectKinds, p.Orphan, p.TerminatingNamespace = nil, o.orphan, o.terminatingNamespace
	deleteCustomResources := o.req.Object.Spec.CustomResources == appsv1.CustomResourcesDelete
	p.RemovalRequest = func(*appsv1.InventoryEntry) *plan.RemovalRequest {
		return &plan.RemovalRequest{KeepReason: func(stacks.Ref) string {
			return ""
		}, DeleteCustomResources: deleteCustomResources}
	}
	return p
}

// Manifest implements engine.Owner.
func (o *owner) Manifest(context.Context, *plan.Item) (json.RawMessage, error) {
	return nil, errors.New("a KsctlRemove applies no objects")
}

// Persist implements engine.Owner.
func (o *owner) Persist(ctx context.Context) error {
	if err := o.flush(ctx); err != nil {
		return err
	}
	return o.req.Persist(ctx, "recording the objects to remove")
}

// flush writes the inventory to the status, and what does not fit there to chunks.
func (o *owner) flush(ctx context.Context) error {
	status, err := o.chunks.SaveInventory(ctx, o.key, o.inv)
	if err != nil {
		return err
	}
	st := &o.req.Object.Status
	st.Inventory, st.Cluster = status, target.StatusCluster(o.key.Cluster, status)
	st.ClusterUID = target.StatusUID(st.ClusterUID, o.uid, status)
	return nil
}

// started reports whether objects may have been marked by the controller.
func (o *owner) started() bool { return o.req.Object.Status.Removed != nil && o.inv.Len() > 0 }

// setEntries replaces the entries of the inventory.
func (o *owner) setEntries(entries []appsv1.InventoryEntry) {
	for _, e := range o.inv.Entries() {
		o.inv.Remove(e.ID)
	}
	for _, e := range entries {
		o.inv.Put(e)
	}
}
