package engine

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// Item is a desired object, resolved for the target cluster.
type Item struct {
	stacks.Object
	// ID is the id of the object in inventories and marks.
	ID string
	// Mapping is the REST mapping of the kind; nil when ResolveErr is set because there is none.
	Mapping *meta.RESTMapping
	// ResolveErr is set when the object cannot be sent: its kind is not served or not known yet, or
	// its scope is wrong.
	ResolveErr error
	// ContentHash is the hash of everything that is sent: the manifest and what the engine adds.
	ContentHash string
	// ReadyExpr and Ignore are written into annotations of the object.
	ReadyExpr string
	Ignore    []string
	// Step is the step of the object in its component. A step starts when all objects of the
	// earlier steps are ready.
	Step int
	// Component is the component of the object, and Wave the wave of that component.
	Component string
	Wave      int32
	// RunsOnce is true for hooks and Jobs: after they completed, they do not run again.
	RunsOnce bool
	// PreRemove is set for a Job that stays suspended until its component is removed: its position
	// among these Jobs of the component, counted from 1.
	PreRemove int32
	// Shared is true for a namespace that the component requires and may share with other owners.
	Shared bool
}

// Component is the items of one component, in the order in which they are sent.
type Component struct {
	Name      string
	Version   string
	DependsOn []string
	// BlockedOn names dependencies outside the stack that are not ready. Until they are, no new
	// content is sent, and applied content is kept as it is.
	BlockedOn []string
	Wave      int32
	Items     []Item
}

// Snapshot is the input of planning: the desired state, and the observed state at one time. Nothing
// of it changes while it is in use, and planning only reads it. Maps are keyed by the id of the
// object unless they say otherwise.
type Snapshot struct {
	Owner      OwnerKey
	Components []Component
	Inventory  *Inventory
	Policies   Policies
	// Objects are the objects of the components and of the inventory that the index knows.
	Objects map[string]*live.Object
	// Succeeded has the Jobs and Pods that were observed to complete successfully, also if they were
	// deleted after that. Those with another uid than in the inventory do not count.
	Succeeded map[string]bool
	// SyncErrors has the kinds of which the index may not know every object.
	SyncErrors map[schema.GroupKind]error
	// Backoffs are the objects that are not to be written now.
	Backoffs map[string]Backoff
	// PendingDeletions are the uids of objects whose deletion was accepted and that have not been
	// observed to be gone.
	PendingDeletions map[string]types.UID
}

// Backoff is why an object is not to be written now: it was refused, a write failed, or another
// writer keeps changing it.
type Backoff struct {
	Message string
	// ContentHash is the hash of the content that failed. Other content is written. It is empty for
	// a failed removal.
	ContentHash string
}

// backoffMessage returns why content is not to be written now; empty when it may be. The content
// hash is empty for a removal.
func (s *Snapshot) backoffMessage(id, contentHash string) string {
	if b, ok := s.Backoffs[id]; ok && b.ContentHash == contentHash {
		return b.Message
	}
	return ""
}

// Resolver finds the REST mapping of a kind in a cluster.
type Resolver interface {
	// Resolve returns the mapping of a kind. The error is a *NotServedError when the cluster does
	// not serve the kind. The mapping is shared: it must not be changed.
	Resolve(ctx context.Context, group, version, kind string) (*meta.RESTMapping, error)
}

// Prepare converts rendered components for planning: it determines the step, the content hash and
// the REST mapping of each object.
func Prepare(ctx context.Context, rendered []stacks.RenderedComponent, p Policies, r Resolver) []Component {
	out := make([]Component, 0, len(rendered))
	for i := range rendered {
		rc := &rendered[i]
		c := Component{Name: rc.Name, Version: rc.Version, DependsOn: rc.DependsOn, Wave: int32(rc.Wave)}
		if rc.CreateNamespace != "" {
			c.Items = append(c.Items, prepareItem(ctx, sharedNamespace(rc.CreateNamespace), rc, nil, Policies{}, r))
			c.Items[0].Shared = true
		}
		step, preRemovePosition := steps(rc.Objects), preRemovePositions(rc.Objects)
		for j := range rc.Objects {
			it := prepareItem(ctx, rc.Objects[j], rc, step, p, r)
			it.PreRemove = preRemovePosition(&it.Object)
			it.RunsOnce = it.RunsOnce && it.PreRemove == 0 // it runs before the removal, not when it is applied
			c.Items = append(c.Items, it)
		}
		out = append(out, c)
	}
	return out
}

func prepareItem(ctx context.Context, o stacks.Object, rc *stacks.RenderedComponent, step func(*stacks.Object) int, p Policies, r Resolver) Item {
	it := Item{Object: o, Component: rc.Name, Wave: int32(rc.Wave)}
	it.Mapping, it.ResolveErr = r.Resolve(ctx, o.Group, o.Version, o.Kind)
	if it.Mapping != nil && it.Mapping.Scope.Name() == meta.RESTScopeNameRoot && it.Namespace != "" {
		if it.NamespaceDefaulted {
			it.Namespace = ""
		} else {
			it.ResolveErr = &WrongScopeError{Ref: o.Ref}
		}
	}
	it.ID = it.Ref.ID()
	if step != nil {
		it.Step = step(&it.Object)
	}
	it.RunsOnce = o.Hook != nil || (o.Group == "batch" && o.Kind == "Job")
	if !IsBuiltIn(o.Group) {
		it.ReadyExpr = rc.ReadyExpr
	}
	it.Ignore = ignoredPaths(p.Ignore, it.Ref)
	it.ContentHash = hashContent(it.Hash, it.ReadyExpr, it.Ignore)
	return it
}

// hashContent returns the hash of everything that is sent: the hash of the manifest, and what the
// engine adds to it.
func hashContent(hash, expr string, ignore []string) string {
	if expr == "" && len(ignore) == 0 {
		return hash
	}
	b, err := json.Marshal([]any{hash, expr, ignore})
	if err != nil {
		panic(err) // strings always marshal
	}
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

func ignoredPaths(rules []appsv1.IgnoreRule, ref stacks.Ref) []string {
	var out []string
	for _, r := range rules {
		if r.Target == nil || matches(r.Target, ref) {
			out = append(out, r.Paths...)
		}
	}
	return out
}

func matches(t *appsv1.IgnoreTarget, ref stacks.Ref) bool {
	return (t.Group == "" || t.Group == ref.Group) &&
		(t.Kind == "" || t.Kind == ref.Kind) &&
		(t.Namespace == "" || t.Namespace == ref.Namespace) &&
		(t.Name == "" || t.Name == ref.Name)
}

// sharedNamespace returns the Namespace for createNamespace of a component.
func sharedNamespace(name string) stacks.Object {
	return stacks.Object{Ref: stacks.Ref{Kind: "Namespace", Name: name}, Version: "v1"}
}
