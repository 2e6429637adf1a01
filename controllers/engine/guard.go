package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// keeps says why an object is left where it would be deleted; empty when it is not.
func (p *Policies) keeps(e *appsv1.InventoryEntry, ref stacks.Ref) string {
	if r := p.request(e); r != nil && !r.Hold {
		return r.Keep(ref)
	}
	return p.protects(ref)
}

// Spares is true for an object that a removal leaves, as far as inventory and policies
// tell: it was there before, others share it, or it is kept.
func (p *Policies) Spares(e *appsv1.InventoryEntry) bool {
	ref, err := stacks.ParseID(e.ID)
	return err != nil || p.Orphan || e.State == appsv1.EntryAdopted || e.State == appsv1.EntryShared || p.keeps(e, ref) != ""
}

// protects says why an object is never deleted, unless a person asked for it;
// empty when it may be.
func (p *Policies) protects(ref stacks.Ref) string {
	if !slices.Contains(p.Protect, ref.Kind) {
		return ""
	}
	return fmt.Sprintf("spec.guard.protectKinds has %s", ref.Kind)
}

// ProtectedError says that a person forbade the deletion of an object.
type ProtectedError struct{ Ref stacks.Ref }

func (e *ProtectedError) Error() string {
	return fmt.Sprintf("%s has the annotation %s: take it off to let it go", e.Ref, live.PreventDeletionAnnotation)
}

// CustomResourcesError says that deleting a definition would delete objects that
// the owner did not make.
type CustomResourcesError struct {
	Ref stacks.Ref
	// Count is how many there are, Examples names some of them.
	Count    int64
	Examples []string
	// Stay is true when some of them are the owner's, and not to go.
	Stay bool
	// Unseen is set when the account may not list them.
	Unseen error
}

func (e *CustomResourcesError) Error() string {
	if e.Unseen != nil {
		return fmt.Sprintf("%s is not deleted: whether there are objects of it that others made can't be seen: %v", e.Ref, e.Unseen)
	}
	whose := "that others made"
	if e.Stay {
		whose = "that stay"
	}
	return fmt.Sprintf("%s is not deleted: it would take %d objects along %s (%s): delete those first",
		e.Ref, e.Count, whose, strings.Join(e.Examples, ", "))
}

// spare says why an object must not be deleted now, or that it is left; it is
// asked right before the delete.
func (a *actor) spare(ctx context.Context, act *Action, ref stacks.Ref) (leave string, err error) {
	switch {
	case ref.Group == apiextensionsv1.GroupName:
		p := a.owner.Policies()
		if r := p.request(&act.Entry); r != nil && r.TakeCustomResources {
			return "", nil
		}
		return "", a.othersObjects(ctx, act, ref)
	case ref.Group == "" && ref.Kind == "Namespace":
		found, err := a.foreign(ctx, ref.Name)
		if err != nil {
			return "", &ObjectError{Ref: ref, Verb: string(act.Verb), Err: err}
		}
		return found, nil
	}
	return "", nil
}

var definitions = schema.GroupVersionResource{Group: apiextensionsv1.GroupName, Version: "v1", Resource: "customresourcedefinitions"}

// maxExamples is how many objects a message names.
const maxExamples = 5

// othersObjects is an error when a definition has objects that the owner did not make.
func (a *actor) othersObjects(ctx context.Context, act *Action, ref stacks.Ref) error {
	failed := func(err error) error { return &ObjectError{Ref: ref, Verb: string(act.Verb), Err: err} }
	u, err := a.client.Resource(definitions).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return failed(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &crd); err != nil {
		return failed(err)
	}
	served := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Served })
	if served < 0 {
		return nil // nobody can have made any that can be seen
	}
	gvr := schema.GroupVersionResource{Group: crd.Spec.Group, Version: crd.Spec.Versions[served].Name, Resource: crd.Spec.Names.Plural}
	out := &CustomResourcesError{Ref: ref}
	err = a.eachOf(ctx, gvr, func(o *unstructured.Unstructured) {
		if a.goes(o) {
			return
		}
		out.Stay = out.Stay || a.made(o)
		if out.Count++; len(out.Examples) < maxExamples {
			out.Examples = append(out.Examples, strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))
		}
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil // not served yet, or no more
	case apierrors.IsForbidden(err):
		out.Unseen = err
		return out
	case err != nil:
		return failed(err)
	case out.Count == 0:
		return nil
	}
	return out
}

// pageSize is how many objects are in memory at once when all of a kind are looked at.
const pageSize = 500

// eachOf looks at all objects of a kind, a page at a time.
func (a *actor) eachOf(ctx context.Context, gvr schema.GroupVersionResource, look func(*unstructured.Unstructured)) error {
	for opts := (metav1.ListOptions{Limit: pageSize}); ; {
		list, err := a.list(ctx, gvr, "", opts)
		if err != nil {
			return err
		}
		for i := range list.Items {
			look(&list.Items[i])
		}
		if opts.Continue = list.GetContinue(); opts.Continue == "" {
			return nil
		}
	}
}

// made is true for an object that the owner brought: its mark says so, or it is the
// very one that the inventory lists.
func (a *actor) made(u *unstructured.Unstructured) bool {
	_, ok := a.listed(u)
	return ok
}

// goes is true for an object that the owner brought and that is to go, too.
func (a *actor) goes(u *unstructured.Unstructured) bool {
	id, ok := a.listed(u)
	return ok && !a.stays[id]
}

// listed returns the id by which the inventory lists an object.
func (a *actor) listed(u *unstructured.Unstructured) (string, bool) {
	m, err := live.ParseMark(u.GetAnnotations()[live.MarkAnnotation])
	if err == nil && m.Owner == a.owner.Key().String() {
		_, ok := a.owner.Inventory().Get(m.ID)
		return m.ID, ok
	}
	id := stacks.Ref{Group: u.GroupVersionKind().Group, Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName()}.ID()
	e, ok := a.owner.Inventory().Get(id)
	return id, ok && e.UID != "" && e.UID == u.GetUID()
}
