package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/controllers/engine/plan"
)

// findForeignObject returns a description of an object in a namespace that is not ours, was not
// created by the control plane, and is not deleted with its owners; empty when there is none.
func (a *executor) findForeignObject(ctx context.Context, namespace string) (string, error) {
	resources, err := a.target.Discovery.NamespacedResources(ctx)
	if err != nil {
		return "", err
	}
	known := &ownerLookups{deleted: map[types.UID]bool{}, absentKinds: map[schema.GroupKind]bool{}}
	for _, gvr := range resources {
		for u, err := range a.objects(ctx, gvr, namespace, 50) {
			switch {
			case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
				continue // no objects
			case apierrors.IsForbidden(err):
				return fmt.Sprintf("the account may not list %s, so there may be some in the namespace", gvr.Resource),
					nil
			case err != nil:
				return "", err
			case isSystemObject(u), a.preview && a.willBeDeleted(u):
				continue
			}
			if deleted, err := a.deletedWithOwners(ctx, u, known); err != nil || !deleted {
				return fmt.Sprintf("%s %s is in the namespace", u.GetKind(), u.GetName()), err
			}
		}
	}
	return "", nil
}

// listWithRetry lists objects, and retries transient errors at once: checking a namespace takes
// dozens of lists, and one failure makes the others useless.
func (a *executor) listWithRetry(ctx context.Context, gvr schema.GroupVersionResource, namespace string,
	opts metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	for try := 1; ; try++ {
		list, err := a.client.Resource(gvr).Namespace(namespace).List(ctx, opts)
		if err == nil || try == maxAttempts || ctx.Err() != nil || !isTransient(err) {
			return list, err
		}
	}
}

// isSystemObject is true for objects that the control plane creates in a namespace, and for objects
// whose deletion is in progress.
func isSystemObject(u *unstructured.Unstructured) bool {
	if u.GetDeletionTimestamp() != nil {
		return true
	}
	switch u.GetKind() {
	case "Event":
		return true
	case "Endpoints":
		return isServiceEndpoints(u)
	case "ServiceAccount":
		return u.GetName() == "default"
	case "ConfigMap":
		return u.GetName() == "kube-root-ca.crt"
	default:
		return false
	}
}

// isServiceEndpoints is true for Endpoints that the control plane created for a Service. They have
// no owner reference, and are deleted shortly after the Service, which is checked itself.
func isServiceEndpoints(u *unstructured.Unstructured) bool {
	if u.GroupVersionKind().Group != corev1.GroupName {
		return false
	}
	return u.GetLabels()["endpoints.kubernetes.io/managed-by"] == "endpoint-controller" ||
		// Before Kubernetes 1.33 they do not have this label.
		slices.ContainsFunc(u.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
			return e.Manager == "kube-controller-manager"
		})
}

// ownerLookups caches lookups of owner references while a namespace is checked.
type ownerLookups struct {
	// deleted is true for owners that are deleted, or will be.
	deleted map[types.UID]bool
	// absentKinds is true for kinds that do not exist. Each kind is looked up once, because every
	// lookup discovers all that the server serves.
	absentKinds map[schema.GroupKind]bool
}

// deletedWithOwners is true for an object that is garbage-collected with its owners. Namespaced
// owners count as deleted, because they are checked themselves; cluster-scoped owners must be
// deleted already, or their deletion must be in progress.
func (a *executor) deletedWithOwners(ctx context.Context, u *unstructured.Unstructured,
	known *ownerLookups) (bool, error) {
	references := u.GetOwnerReferences()
	for _, o := range references {
		deleted, ok := known.deleted[o.UID]
		if !ok {
			var err error
			if deleted, err = a.ownerDeleted(ctx, o, known); err != nil {
				return false, err
			}
			known.deleted[o.UID] = deleted
		}
		if !deleted {
			return false, nil
		}
	}
	return len(references) > 0, nil
}

// ownerDeleted is true when an owner is deleted, or will be.
func (a *executor) ownerDeleted(ctx context.Context, o metav1.OwnerReference, known *ownerLookups) (bool, error) {
	gv, err := schema.ParseGroupVersion(o.APIVersion)
	if err != nil {
		return false, nil //nolint:nilerr // the owner cannot be looked up
	}
	m, err := a.target.Discovery.Resolve(ctx, gv.Group, gv.Version, o.Kind)
	var unserved *plan.NotServedError
	if errors.As(err, &unserved) {
		return a.kindDeleted(ctx, unserved, known)
	}
	if err != nil {
		return false, err
	}
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		return true, nil
	}
	u, err := a.client.Resource(m.Resource).Get(ctx, o.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsForbidden(err):
		return false, nil
	case err != nil:
		return false, err
	}
	return u.GetUID() != o.UID || u.GetDeletionTimestamp() != nil || (a.preview && a.willBeDeleted(u)), nil
}

// kindDeleted is true when the kind of an owner certainly no longer exists. The owner was then
// deleted with its CRD, and the garbage collector deletes the object shortly after. It is false for
// built-in groups: they have no CRD, so the owner never existed, or has another API version.
func (a *executor) kindDeleted(ctx context.Context, unserved *plan.NotServedError, known *ownerLookups) (bool, error) {
	gk := unserved.GVK.GroupKind()
	absent, asked := known.absentKinds[gk]
	if unserved.BuiltIn || asked {
		return absent, nil
	}
	absent, err := a.target.Discovery.Absent(ctx, gk)
	if err == nil {
		known.absentKinds[gk] = absent
	}
	return absent, err
}
