package engine

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// Index is the part of live.Index that the engine needs.
type Index interface {
	// SetOwnerKinds sets the kinds of which an owner has objects. It replaces the previous kinds.
	SetOwnerKinds(owner string, kinds []*meta.RESTMapping)
	// Synced returns nil when the index knows every object of the kind.
	Synced(gk schema.GroupKind) error
	Get(ref stacks.Ref) (live.Object, bool)
	// Strays returns the objects with the owner's mark that the index has observed and for which
	// known returns false. It returns each one until DropStray is called for it.
	Strays(owner string, known func(stacks.Ref) bool) []stacks.Ref
	DropStray(owner string, ref stacks.Ref)
	// Succeeded is true for a Job or a Pod that was observed to complete successfully.
	Succeeded(ref stacks.Ref, uid types.UID) bool
	// Observe stores an object from a response of the API server, and returns its projection. A
	// newer resourceVersion wins.
	Observe(u *unstructured.Unstructured) (live.Object, error)
	// SetAwaited sets the objects of other owners that an owner waits for: it is notified when the
	// other owner no longer has one of them. It replaces the previous objects.
	SetAwaited(owner string, refs []stacks.Ref)
	// SetContributed sets the objects that an owner contributes to. It replaces the previous ones.
	SetContributed(owner string, objects []live.ObjectName)
	// Contributed returns such an object; known is false while it is not observed.
	Contributed(name live.ObjectName) (o live.ContributedObject, known bool)
	// ObserveContributed stores such an object from a response of the API server; nil for one that
	// does not exist.
	ObserveContributed(name live.ObjectName, o metav1.Object)
	// BeginDelete records that a delete request for an object is in progress until answered is
	// called.
	BeginDelete(ref stacks.Ref, uid types.UID) (answered func())
	// ObserveGone records that an object is confirmed to be gone.
	ObserveGone(ref stacks.Ref, uid types.UID)
	// ObserveReleased records that an object continues to exist without an owner.
	ObserveReleased(ref stacks.Ref, uid types.UID, resourceVersion string)
}

// Discovery finds the kinds that a cluster serves.
type Discovery interface {
	Resolver
	// Absent is true when it is certain that the cluster does not serve the kind: every API group
	// answered.
	Absent(ctx context.Context, gk schema.GroupKind) (bool, error)
	// Settling is true while an answer that a kind is not served may be out of date.
	Settling() bool
	// NamespacedResources returns the namespaced resources that can be listed and deleted.
	NamespacedResources(ctx context.Context) ([]schema.GroupVersionResource, error)
}

// Target is a cluster to which objects are applied. Every OwnerKey contains its ClusterID.
type Target struct {
	ClusterID string
	Discovery Discovery
	Index     Index
	// Capabilities returns the capabilities of the cluster, for rendering.
	Capabilities func(ctx context.Context) (stacks.Capabilities, error)
	// ClientFor returns a client that acts as an account; a nil account is the controller itself.
	ClientFor func(account *types.NamespacedName) (*Client, error)
}
