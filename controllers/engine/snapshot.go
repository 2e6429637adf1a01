package engine

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// Item is one desired object, as the target cluster sees it.
type Item struct {
	stacks.Object
	// ID of the object in inventories and marks.
	ID string
	// Mapping of the kind; nil while Unserved says why.
	Mapping *meta.RESTMapping
	// Unserved is set when the object can't be sent: its kind is not served, or
	// its scope is wrong.
	Unserved error
	// Want is the hash of everything that is sent: the manifest and what the
	// engine adds to it.
	Want string
	// ReadyExpr and Ignore go into annotations of the object.
	ReadyExpr string
	Ignore    []string
	// Step of the object in its component. A step starts when the ones before
	// it are ready, if they gate.
	Step int
	// Component that the object belongs to, and its wave.
	Component string
	Wave      int32
	// RunsOnce is true for hooks and Jobs: done stays done.
	RunsOnce bool
	// PreRemove is set for a Job that stays suspended until its component is
	// removed: its place among those of the component, counted from 1.
	PreRemove int32
	// Shared is true for a namespace that the component asks to be there.
	Shared bool
}

// Component is one component's items, in the order in which they are sent.
type Component struct {
	Name      string
	Version   string
	DependsOn []string
	// Blocked are things outside the stack that are not ready: until they are,
	// nothing new is sent, and what was sent is kept as it is.
	Blocked []string
	Wave    int32
	Items   []Item
}

// Input is everything that a plan is made from. Planning only reads it.
type Input struct {
	Owner      OwnerKey
	Components []Component
	Inventory  *Inventory
	Policies   Policies
	// Live returns what the index knows of an object.
	Live func(stacks.Ref) (live.Object, bool)
	// Succeeded is true for a Job or a Pod that was seen to run to its end well,
	// also when it is gone since.
	Succeeded func(stacks.Ref, types.UID) bool
	// Unsynced is not nil while the index may not know every object of a kind.
	Unsynced func(schema.GroupKind) error
	// Held returns why an object must not be touched now: a refusal, a failed
	// attempt or a fight with another writer that is waited out. Empty: go on.
	Held func(it *Item) string
	// HeldBack is Held for an object that is to go.
	HeldBack func(id string) string
	// Deleted returns the uid of the object that we asked to delete and did not
	// see go yet.
	Deleted func(id string) types.UID

	// now is the time of all of this.
	now time.Time
}

// Resolver finds how a cluster serves a kind.
type Resolver interface {
	// Resolve returns the mapping of a kind. The error is a *NotServedError when
	// the cluster does not serve it. The mapping is shared: it must not be changed.
	Resolve(ctx context.Context, group, version, kind string) (*meta.RESTMapping, error)
}

// Prepare makes components of a render ready for planning: steps, hashes, and
// how the cluster serves each kind.
func Prepare(ctx context.Context, rendered []stacks.RenderedComponent, p Policies, r Resolver) []Component {
	out := make([]Component, 0, len(rendered))
	for i := range rendered {
		rc := &rendered[i]
		c := Component{Name: rc.Name, Version: rc.Version, DependsOn: rc.DependsOn, Wave: int32(rc.Wave)}
		if rc.CreateNamespace != "" {
			c.Items = append(c.Items, prepare(ctx, sharedNamespace(rc.CreateNamespace), rc, nil, Policies{}, r))
			c.Items[0].Shared = true
		}
		steps, places := steps(rc.Objects), places(rc.Objects)
		for j := range rc.Objects {
			it := prepare(ctx, rc.Objects[j], rc, steps, p, r)
			it.PreRemove = places(&it.Object)
			it.RunsOnce = it.RunsOnce && it.PreRemove == 0 // not now
			c.Items = append(c.Items, it)
		}
		out = append(out, c)
	}
	return out
}

func prepare(ctx context.Context, o stacks.Object, rc *stacks.RenderedComponent, steps func(*stacks.Object) int, p Policies, r Resolver) Item {
	it := Item{Object: o, Component: rc.Name, Wave: int32(rc.Wave)}
	it.Mapping, it.Unserved = r.Resolve(ctx, o.Group, o.Version, o.Kind)
	if it.Mapping != nil && it.Mapping.Scope.Name() == meta.RESTScopeNameRoot && it.Namespace != "" {
		if it.NamespaceDefaulted {
			it.Namespace = ""
		} else {
			it.Unserved = &WrongScopeError{Ref: o.Ref}
		}
	}
	it.ID = it.Ref.ID()
	if steps != nil {
		it.Step = steps(&it.Object)
	}
	it.RunsOnce = o.Hook != nil || (o.Group == "batch" && o.Kind == "Job")
	if !IsBuiltIn(o.Group) {
		it.ReadyExpr = rc.ReadyExpr
	}
	it.Ignore = ignoredPaths(p.Ignore, it.Ref)
	it.Want = want(it.Hash, it.ReadyExpr, it.Ignore)
	return it
}

func want(hash, expr string, ignore []string) string {
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

// sharedNamespace is the object that createNamespace stands for.
func sharedNamespace(name string) stacks.Object {
	return stacks.Object{Ref: stacks.Ref{Kind: "Namespace", Name: name}, Version: "v1"}
}
