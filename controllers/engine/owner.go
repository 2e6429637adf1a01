package engine

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// OwnerKey identifies an owner of objects. It survives a rebuilt management
// cluster: nothing in it is generated.
type OwnerKey struct {
	// Installation is the controller's --owner-id.
	Installation string
	// Cluster is the id of the target cluster; LocalCluster for the controller's own.
	Cluster string
	// Kind of the owner, such as KsctlInstall.
	Kind string
	// Namespace and Name of the owner.
	Namespace, Name string
}

// LocalCluster is the id of the cluster that the controller watches its own kinds in.
const LocalCluster = "local"

// String is the form that marks carry.
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

// People names the owner in messages.
func (k OwnerKey) People() string { return k.Kind + " " + k.Namespace + "/" + k.Name }

// Owner is who wants objects: a KsctlInstall, or an object of a published kind.
type Owner interface {
	// Key identifies the owner.
	Key() OwnerKey
	// Inventory is what the owner manages. The engine changes it.
	Inventory() *Inventory
	// Policies of the owner.
	Policies() Policies
	// Manifest returns what to send of an item. Plans are made without it: what
	// did not change is never read.
	Manifest(ctx context.Context, it *Item) (json.RawMessage, error)
	// Persist records the inventory before the engine acts on it. It returns
	// when the API server has it.
	Persist(ctx context.Context) error
}

// Policies are the owner's choices of how, not what.
type Policies struct {
	Drift  appsv1.DriftMode
	Ignore []appsv1.IgnoreRule
	Adopt  appsv1.AdoptMode
	Prune  bool
	Force  bool
	// Orphan leaves everything that is there when the owner goes.
	Orphan bool
	// MaxDeletes and MaxDeletePercent bound how many objects, and how much of what
	// there was before, may leave at once without their digest being Approved.
	MaxDeletes, MaxDeletePercent int
	Approved                     string
	// Heir says who else wants an object that the owner wants no more: it is handed
	// over to them. A wait is set while that can't be known. Nil: nobody ever does.
	Heir func(id string) (heir *OwnerKey, wait string)
	// Since is when the owner was made. What we made for it since, and its inventory
	// does not list, is taken up; zero: nothing is.
	Since time.Time
	// Protect are kinds whose objects are left where they would be deleted.
	Protect []string
	// Asked says how an object is to go that a person asked to be removed; nil for one
	// that nobody did. It wins over Prune, Protect and the bounds of deletes.
	Asked func(e *appsv1.InventoryEntry) *Request
}
