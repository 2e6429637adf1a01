package engine

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// CustomResourcesError is returned when deleting a CustomResourceDefinition would delete custom
// resources that are not to be deleted with it.
type CustomResourcesError struct {
	Ref stacks.Ref
	// Count is the number of these custom resources, Examples are the names of some.
	Count    int64
	Examples []string
	// Retained is true when some of them belong to the owner and stay.
	Retained bool
	// ListErr is set when the account may not list the custom resources.
	ListErr error
}

func (e *CustomResourcesError) Error() string {
	if e.ListErr != nil {
		return fmt.Sprintf("%s is not deleted: checking for objects that others created: %v", e.Ref, e.ListErr)
	}
	origin := "that others created"
	if e.Retained {
		origin = "that stay"
	}
	return fmt.Sprintf("%s is not deleted: its deletion would also delete %d objects %s (%s): delete those first",
		e.Ref, e.Count, origin, strings.Join(e.Examples, ", "))
}

// checkDeletion checks if an object may be deleted, right before the delete request. It returns an
// error if the object must not be deleted now, and a reason if it is to be released instead.
func (a *executor) checkDeletion(ctx context.Context, act *plan.Action, ref stacks.Ref) (keepReason string, err error) {
	switch {
	case ref.Group == apiextensionsv1.GroupName:
		p := a.owner.Policies()
		if r := p.RequestFor(&act.Entry); r != nil && r.DeleteCustomResources {
			return "", nil
		}
		return "", a.checkCustomResources(ctx, act, ref)
	case ref.Group == "" && ref.Kind == "Namespace":
		found, err := a.findForeignObject(ctx, ref.Name)
		if err != nil {
			return "", &ObjectError{Ref: ref, Verb: string(act.Verb), Err: err}
		}
		return found, nil
	}
	return "", nil
}

var crdResource = schema.GroupVersionResource{Group: apiextensionsv1.GroupName, Version: "v1",
	Resource: "customresourcedefinitions"}

// maxExamples is the maximum number of objects that a message names.
const maxExamples = 5

// checkCustomResources returns an error if a CustomResourceDefinition has objects that are not to
// be deleted with it: those of others, and those of the owner that stay.
func (a *executor) checkCustomResources(ctx context.Context, act *plan.Action, ref stacks.Ref) error {
	failed := func(err error) error { return &ObjectError{Ref: ref, Verb: string(act.Verb), Err: err} }
	var crd apiextensionsv1.CustomResourceDefinition
	found, err := GetInto(ctx, a.client, crdResource, "", ref.Name, &crd)
	if err != nil {
		return failed(err)
	}
	if !found {
		return nil
	}
	served := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Served
	})
	if served < 0 {
		return nil // no version is served, so no objects can be listed
	}
	gvr := schema.GroupVersionResource{Group: crd.Spec.Group, Version: crd.Spec.Versions[served].Name,
		Resource: crd.Spec.Names.Plural}
	out := &CustomResourcesError{Ref: ref}
	for o, err := range a.objects(ctx, gvr, "", pageSize) {
		switch {
		case apierrors.IsNotFound(err):
			return nil // not served yet, or no longer
		case apierrors.IsForbidden(err):
			out.ListErr = err
			return out
		case err != nil:
			return failed(err)
		case a.willBeDeleted(o):
			continue
		}
		_, owned := a.inventoryID(o)
		out.Retained = out.Retained || owned
		if out.Count++; len(out.Examples) < maxExamples {
			out.Examples = append(out.Examples, strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))
		}
	}
	if out.Count == 0 {
		return nil
	}
	return out
}

// pageSize is the maximum number of objects in memory while all objects of a kind are listed.
const pageSize = 500

// objects iterates over the objects of a kind in a namespace, or in all if it is empty. It lists
// them page by page, and ends after an error.
func (a *executor) objects(ctx context.Context, gvr schema.GroupVersionResource, namespace string,
	limit int64) iter.Seq2[*unstructured.Unstructured, error] {
	return func(yield func(*unstructured.Unstructured, error) bool) {
		for opts := (metav1.ListOptions{Limit: limit}); ; {
			list, err := a.listWithRetry(ctx, gvr, namespace, opts)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range list.Items {
				if !yield(&list.Items[i], nil) {
					return
				}
			}
			if opts.Continue = list.GetContinue(); opts.Continue == "" {
				return
			}
		}
	}
}

// willBeDeleted is true for an object of the owner that is to be deleted, too.
func (a *executor) willBeDeleted(u *unstructured.Unstructured) bool {
	id, ok := a.inventoryID(u)
	if e, _ := a.owner.Inventory().Get(id); e.RetainedAt != nil && a.components != nil {
		return false // it stays, see stacks.Retain
	}
	return ok && !a.retained[id]
}

// inventoryID returns the id of an object, and true if the inventory lists this very object: it has
// the owner's mark, or the uid of its entry.
func (a *executor) inventoryID(u *unstructured.Unstructured) (string, bool) {
	m, err := live.ParseMark(u.GetAnnotations()[live.MarkAnnotation])
	if err == nil && m.Owner == a.ownerKey {
		_, ok := a.owner.Inventory().Get(m.ID)
		return m.ID, ok
	}
	id := stacks.Ref{Group: u.GroupVersionKind().Group, Kind: u.GetKind(), Namespace: u.GetNamespace(),
		Name: u.GetName()}.ID()
	e, ok := a.owner.Inventory().Get(id)
	return id, ok && e.UID != "" && e.UID == u.GetUID()
}
