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
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/remove/match"
	"github.com/ksctl/gitops/stacks"
)

// Reasons of objects that are not removed, or that block the removal.
const (
	reasonNotMatched = "NotMatched"
	reasonKept       = "Kept"
	reasonNamespace  = "Namespace"
	reasonReleased   = "Left"
	reasonProtected  = "Protected"
	reasonFinalizers = "Finalizers"
	reasonWaiting    = "Waiting"
)

// findings are the objects of a stack in the cluster.
type findings struct {
	set      []appsv1.InventoryEntry
	left     []appsv1.RemovalObject
	blockers []appsv1.RemovalObject
	// spared are objects of the set that are kept because they contain objects of others.
	spared []appsv1.RemovalObject
	// dependents are messages about installs that depend on an object of the set.
	dependents []string
}

// finder finds the objects of a stack in the cluster.
type finder struct {
	client    dynamic.Interface
	discovery engine.Discovery
	spec      *appsv1.KsctlRemoveSpec
	self      string
	// homeNamespace is the namespace of the KsctlRemove.
	homeNamespace string
}

// maxConcurrentReads is the number of objects that are read concurrently.
const maxConcurrentReads = 8

// find finds the objects of components. rendered has the Helm releases of the components.
func (l *finder) find(ctx context.Context, components []plan.Component,
	rendered []stacks.RenderedComponent) (*findings, error) {
	out := &findings{}
	known := map[string]bool{}
	for _, c := range components {
		for _, it := range c.Items {
			known[it.ID] = true
		}
	}
	for i := range components {
		c := &components[i]
		if !l.spec.Names(c.Name) {
			continue
		}
		release := rendered[slices.IndexFunc(rendered, func(r stacks.RenderedComponent) bool {
			return r.Name == c.Name
		})].Release
		marked, err := l.findComponent(ctx, c, release, out)
		if err != nil {
			return nil, err
		}
		if marked {
			if err := l.findRecords(ctx, release, c, known, out); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// findComponent finds the objects of one component. marked is true if one of them is marked by the
// Helm release of the component.
func (l *finder) findComponent(ctx context.Context, c *plan.Component, release *stacks.Release,
	out *findings) (marked bool, err error) {
	objects := make([]*unstructured.Unstructured, len(c.Items))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxConcurrentReads)
	for i := range c.Items {
		g.Go(func() (err error) {
			objects[i], err = l.get(gctx, &c.Items[i])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return false, err
	}
	for i, u := range objects {
		it := &c.Items[i]
		switch {
		case u == nil:
		case it.Shared:
			if u.GetName() != l.homeNamespace {
				out.leave(it.ID, reasonNamespace,
					"the stack requests the namespace with createNamespace, but its creator is unknown: delete the "+
						"namespace manually if it is empty")
			}
		default:
			marked = l.classify(it, release, u, out) || marked
		}
	}
	return marked, nil
}

// get reads an object; nil if it does not exist, or if the stack only contributes to it.
func (l *finder) get(ctx context.Context, it *plan.Item) (*unstructured.Unstructured, error) {
	var unserved *plan.NotServedError
	var invalid *plan.InvalidObjectError
	switch {
	case it.Contribute:
		return nil, nil
	case errors.As(it.ResolveErr, &unserved), errors.As(it.ResolveErr, &invalid):
		return nil, nil // no such object can exist
	case it.ResolveErr != nil:
		return nil, it.ResolveErr
	}
	return readObject(ctx, l.client, it.Mapping, it.Ref)
}

func readObject(ctx context.Context, c dynamic.Interface, m *meta.RESTMapping,
	ref stacks.Ref) (*unstructured.Unstructured, error) {
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

// classify adds an object to the set, or to the objects that are left. marked is true if the object
// is marked by the Helm release of its component.
func (l *finder) classify(it *plan.Item, release *stacks.Release, u *unstructured.Unstructured,
	out *findings) (marked bool) {
	w := &match.Rendered{Object: it.Object, Release: release}
	mismatch, marked := match.Match(w, l.self, u)
	rule := keepReason(l.spec, it.Ref)
	switch {
	case mismatch != "":
		out.leave(it.ID, reasonNotMatched, mismatch)
	case match.KeptByHelm(w, u):
		out.leave(it.ID, reasonKept, "annotation helm.sh/resource-policy is keep")
	case match.KeptByAnnotation(w, u):
		out.leave(it.ID, reasonKept, plan.KeptByAnnotationMessage)
	case rule != "":
		out.leave(it.ID, reasonKept, rule)
	default:
		out.add(it.ID, it.Version, it.Component, it.Wave, u)
	}
	return marked
}

func (f *findings) leave(id, reason, message string) {
	f.left = append(f.left, appsv1.RemovalObject{ID: id, Reason: reason, Message: message})
}

func (f *findings) add(id, version, component string, wave int32, u *unstructured.Unstructured) {
	f.set = append(f.set, appsv1.InventoryEntry{ID: id, Version: version, UID: u.GetUID(), Component: component,
		Wave: wave, State: appsv1.EntryIntended})
	if u.GetAnnotations()[live.PreventDeletionAnnotation] == "true" {
		f.blockers = append(f.blockers, appsv1.RemovalObject{ID: id, Reason: reasonProtected, Message: "annotation " +
			live.PreventDeletionAnnotation + " prevents the deletion: remove the annotation to continue"})
	}
	if fs := u.GetFinalizers(); len(fs) > 0 {
		f.blockers = append(f.blockers,
			appsv1.RemovalObject{ID: id, Reason: reasonFinalizers,
				Message: fmt.Sprintf("finalizers %v: their controllers must remove them", fs)})
	}
}

// keepReason returns the reason to keep an object; empty if it is removed.
func keepReason(spec *appsv1.KsctlRemoveSpec, ref stacks.Ref) string {
	switch {
	case !spec.Keeps(ref.Group, ref.Kind, ref.Namespace, ref.Name):
		return ""
	case spec.Keep == nil:
		return "PersistentVolumeClaims are kept unless spec.keep is set"
	}
	return "listed in spec.keep"
}

// otherOwner returns the current owner of an object; empty if there is none, or if it is the
// KsctlRemove. Helm releases are ignored, because the object may be part of the release to remove.
func (o *owner) otherOwner(ref stacks.Ref, u *unstructured.Unstructured) string {
	if m, err := live.ParseMark(u.GetAnnotations()[live.MarkAnnotation]); err == nil && m.ID == ref.ID() &&
		m.Owner != o.key.String() {
		return plan.OwnerDisplayName(m.Owner)
	}
	return engine.ActiveManagerOf(u)
}
