package engine

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// OwnerKey identifies an owner of objects. It contains no generated values, so it stays the same
// when the management cluster is rebuilt.
type OwnerKey struct {
	// Installation is the --owner-id of the controller.
	Installation string
	// Cluster is the id of the target cluster; LocalCluster for the cluster of the controller.
	Cluster string
	// Kind is the kind of the owner, such as KsctlInstall.
	Kind string
	// Namespace and Name of the owner.
	Namespace, Name string
}

// LocalCluster is the id of the cluster in which the controller watches its own kinds.
const LocalCluster = "local"

// String returns the key in the format of the owner in mark annotations.
func (k OwnerKey) String() string {
	return k.Installation + "/" + k.Cluster + "/" + k.Kind + "/" + k.Namespace + "/" + k.Name
}

// ParseOwnerKey is the inverse of String; ok is false for any other text.
func ParseOwnerKey(s string) (k OwnerKey, ok bool) {
	p := strings.Split(s, "/")
	if len(p) != 5 {
		return OwnerKey{}, false
	}
	return OwnerKey{Installation: p[0], Cluster: p[1], Kind: p[2], Namespace: p[3], Name: p[4]}, true
}

// DisplayName returns the owner's name for messages, such as "KsctlInstall ns/name".
func (k OwnerKey) DisplayName() string { return k.Kind + " " + k.Namespace + "/" + k.Name }

// Owner is the owner of the objects that the engine reconciles, such as a KsctlInstall or an object
// of a published kind.
type Owner interface {
	// Key identifies the owner.
	Key() OwnerKey
	// Inventory lists the objects of the owner. The engine changes it.
	Inventory() *Inventory
	// Policies are the policies of the owner.
	Policies() Policies
	// Manifest returns the manifest of an item. Planning does not call it: manifests of unchanged
	// items are never read.
	Manifest(ctx context.Context, it *Item) (json.RawMessage, error)
	// Persist writes the inventory before the engine creates or deletes the objects that it lists.
	// It returns after the API server has stored it.
	Persist(ctx context.Context) error
}

// Policies control how the engine reconciles an owner, independent of the desired objects.
type Policies struct {
	Drift  appsv1.DriftMode
	Ignore []appsv1.IgnoreRule
	Adopt  appsv1.AdoptMode
	Prune  bool
	Force  bool
	// Orphan leaves the objects in the cluster when the owner is deleted.
	Orphan bool
	// MaxDeletes and MaxDeletePercent limit the number, and the percentage of the objects before
	// the change, that may be pruned at once. More need an approval: ApprovedDigest has to be the
	// digest of these objects.
	MaxDeletes, MaxDeletePercent int
	ApprovedDigest               string
	// HandoverTo returns the other owner that desires an object which this owner no longer desires:
	// the object is handed over to it, not deleted. wait is the reason why that is not known yet;
	// the object stays until it is. A nil function means that objects are never handed over.
	HandoverTo func(id string) (successor *OwnerKey, wait string)
	// AdoptStraysSince is the creation time of the owner. Objects that the engine created for the
	// owner after it, and that are missing in the inventory, are adopted. Zero disables this.
	AdoptStraysSince time.Time
	// ProtectKinds are kinds whose objects are released where they would be deleted.
	ProtectKinds []string
	// RemovalRequest returns a user's request to remove an object; nil for an object without one.
	// It takes precedence over Prune, ProtectKinds and the limits of deletes.
	RemovalRequest func(e *appsv1.InventoryEntry) *RemovalRequest
}
