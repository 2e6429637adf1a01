package engine

import (
	"context"
	"encoding/json"

	"github.com/ksctl/gitops/controllers/engine/plan"
)

// Owner is the owner of the objects that the engine reconciles, such as a KsctlInstall or an object
// of a published kind.
type Owner interface {
	// Key identifies the owner.
	Key() plan.OwnerKey
	// Inventory lists the objects of the owner. The engine changes it.
	Inventory() *plan.Inventory
	// Policies are the policies of the owner.
	Policies() plan.Policies
	// Manifest returns the manifest of an item. Planning does not call it: manifests of unchanged
	// items are never read.
	Manifest(ctx context.Context, it *plan.Item) (json.RawMessage, error)
	// Persist writes the inventory before the engine creates or deletes the objects that it lists.
	// It returns after the API server has stored it.
	Persist(ctx context.Context) error
}
