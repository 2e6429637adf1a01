package bysource

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/remove/match"
	"github.com/ksctl/gitops/stacks"
)

// Reasons of objects that are left or that would hold the removal.
const (
	notMatched = "NotMatched"
	kept       = "Kept"
	namespaced = "Namespace"
	leftAlone  = "Left"
	protected  = "Protected"
	finalizers = "Finalizers"
	waits      = "Waiting"
)

// found is what a look at the cluster gave.
type found struct {
	set      []appsv1.InventoryEntry
	left     []appsv1.RemovalObject
	blockers []appsv1.RemovalObject
	// spared are of the set, and will be left because others have objects in them.
	spared []appsv1.RemovalObject
	// dependents need something of the set, in words.
	dependents []string
	// by counts the objects of the set by what they were told by.
	by map[match.By]int
}

// looker looks for the objects of a stack.
type looker struct {
	client    dynamic.Interface
	discovery engine.Discovery
	spec      *appsv1.KsctlRemoveSpec
	self      string
	// home is the namespace of the KsctlRemove.
	home string
}

// lookers is how many objects are read at a time.
const lookers = 8

// look finds what is there of components, whose releases are those of the render.
func (l *looker) look(ctx context.Context, components []engine.Component, rendered []stacks.RenderedComponent) (*found, error) {
	out := &found{by: map[match.By]int{}}
	known := map[string]bool{}
	for i := range components {
		for j := range components[i].Items {
			known[components[i].Items[j].ID] = true
		}
	}
	for i := range components {
		c := &components[i]
		if !l.spec.Names(c.Name) {
			continue
		}
		release := rendered[slices.IndexFunc(rendered, func(r stacks.RenderedComponent) bool { return r.Name == c.Name })].Release
		marked, err := l.component(ctx, c, release, out)
		if err != nil {
			return nil, err
		}
		if marked {
			if err := l.records(ctx, release, c, known, out); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// component looks for the objects of one component. It reports whether there is one
// that the component's release marked.
func (l *looker) component(ctx context.Context, c *engine.Component, release *stacks.Release, out *found) (marked bool, err error) {
	there := make([]*unstructured.Unstructured, len(c.Items))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(lookers)
	for i := range c.Items {
		g.Go(func() (err error) {
			there[i], err = l.get(gctx, &c.Items[i])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return false, err
	}
	for i, u := range there {
		it := &c.Items[i]
		switch {
		case u == nil:
		case it.Shared:
			if u.GetName() != l.home {
				out.leave(it.ID, namespaced, "the stack asks for it with createNamespace, and nothing tells who made it: delete it yourself if nothing is in it")
			}
		default:
			marked = l.judge(it, release, u, out) == match.Release || marked
		}
	}
	return marked, nil
}

// get reads an object; nil when there is none.
func (l *looker) get(ctx context.Context, it *engine.Item) (*unstructured.Unstructured, error) {
	var unserved *engine.NotServedError
	var scope *engine.WrongScopeError
	switch {
	case errors.As(it.Unserved, &unserved), errors.As(it.Unserved, &scope):
		return nil, nil // there can be none
	case it.Unserved != nil:
		return nil, it.Unserved
	}
	return read(ctx, l.client, it.Mapping, it.Ref)
}

func read(ctx context.Context, c dynamic.Interface, m *meta.RESTMapping, ref stacks.Ref) (*unstructured.Unstructured, error) {
	var r dynamic.ResourceInterface = c.Resource(m.Resource)
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		r = c.Resource(m.Resource).Namespace(ref.Namespace)
	}
	u, err := r.Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ref, err)
	}
	return u, nil
}

// judge puts an object into the set, or among what is left.
func (l *looker) judge(it *engine.Item, release *stacks.Release, u *unstructured.Unstructured, out *found) match.By {
	w := &match.Wanted{Object: it.Object, Release: release}
	v := match.Judge(w, l.self, u)
	if !v.Counts() {
		out.leave(it.ID, notMatched, v.Why)
		return ""
	}
	switch rule := keptBy(l.spec, it.Ref); {
	case match.Kept(w, u):
		out.leave(it.ID, kept, "its annotation helm.sh/resource-policy is keep")
		return v.By
	case rule != "":
		out.leave(it.ID, kept, rule)
		return v.By
	}
	out.take(it.ID, it.Version, it.Component, it.Wave, u)
	out.by[v.By]++
	return v.By
}

func (f *found) leave(id, reason, message string) {
	f.left = append(f.left, appsv1.RemovalObject{ID: id, Reason: reason, Message: message})
}

func (f *found) take(id, version, component string, wave int32, u *unstructured.Unstructured) {
	f.set = append(f.set, appsv1.InventoryEntry{ID: id, Version: version, UID: u.GetUID(), Component: component, Wave: wave, State: appsv1.EntryIntended})
	if u.GetAnnotations()[live.PreventDeletionAnnotation] == "true" {
		f.blockers = append(f.blockers, appsv1.RemovalObject{ID: id, Reason: protected, Message: "it has the annotation " + live.PreventDeletionAnnotation + ": take it off to let it go"})
	}
	if fs := u.GetFinalizers(); len(fs) > 0 {
		f.blockers = append(f.blockers, appsv1.RemovalObject{ID: id, Reason: finalizers, Message: fmt.Sprintf("it has finalizers %v: who set them must let it go", fs)})
	}
}

// keptBy says why an object is left that would be deleted; empty when it is not.
func keptBy(spec *appsv1.KsctlRemoveSpec, ref stacks.Ref) string {
	switch {
	case !spec.Keeps(ref.Group, ref.Kind, ref.Namespace, ref.Name):
		return ""
	case spec.Keep == nil:
		return "claims of storage are kept unless spec.keep says otherwise"
	}
	return "spec.keep has it"
}

// belongsTo names who has an object by now, other than the one with a key; Helm
// does not count, whose release it may be of.
func belongsTo(self string) func(stacks.Ref, *unstructured.Unstructured) string {
	return func(ref stacks.Ref, u *unstructured.Unstructured) string {
		if m, err := live.ParseMark(u.GetAnnotations()[live.MarkAnnotation]); err == nil && m.ID == ref.ID() && m.Owner != self {
			return engine.OwnerName(m.Owner)
		}
		return engine.Controller(u)
	}
}
