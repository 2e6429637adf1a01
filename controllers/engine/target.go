package engine

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// Index is what the engine needs of controllers/live.
type Index interface {
	// Use says which kinds an owner has objects of, instead of what it said before.
	Use(owner string, kinds []*meta.RESTMapping)
	// Synced is nil when the index knows every object of the kind.
	Synced(gk schema.GroupKind) error
	Get(ref stacks.Ref) (live.Object, bool)
	// Unclaimed are the objects with the owner's mark that the index came to know of
	// and that the owner does not know; each until Claim.
	Unclaimed(owner string, known func(stacks.Ref) bool) []stacks.Ref
	Claim(owner string, ref stacks.Ref)
	// Succeeded is true for a Job or a Pod that was seen to run to its end well.
	Succeeded(ref stacks.Ref, uid types.UID) bool
	// Observe takes the answer to a request, and returns its projection; a newer
	// resourceVersion wins.
	Observe(u *unstructured.Unstructured) (live.Object, error)
	// Await says which objects an owner waits for until nobody else has them,
	// instead of what it said before.
	Await(owner string, refs []stacks.Ref)
	// Deleting says that deletion is being asked for, until answered is called.
	Deleting(ref stacks.Ref, uid types.UID) (answered func())
	// ObserveGone takes a confirmed absence.
	ObserveGone(ref stacks.Ref, uid types.UID)
	// ObserveReleased takes note that an object lives on as nobody's.
	ObserveReleased(ref stacks.Ref, uid types.UID, resourceVersion string)
}

// Discovery is what a cluster serves.
type Discovery interface {
	Resolver
	// Absent is true when it is certain that the cluster serves no such kind:
	// no group failed to answer.
	Absent(ctx context.Context, gk schema.GroupKind) (bool, error)
	// Settling is true while an answer that a kind is not served may be out of date.
	Settling() bool
	// Namespaced lists the resources that live in namespaces and can be listed and deleted.
	Namespaced(ctx context.Context) ([]schema.GroupVersionResource, error)
}

// Target is one cluster that objects are applied to. Every key of the engine
// carries its ClusterID.
type Target struct {
	ClusterID string
	Discovery Discovery
	Index     Index
	// Capabilities for rendering.
	Capabilities func(ctx context.Context) (stacks.Capabilities, error)
	// Client makes requests as an account; nil account means the controller itself.
	Client func(account *types.NamespacedName) (*Client, error)
}
