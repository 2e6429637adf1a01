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
)

// foreign names an object of a namespace that nothing of ours brought; empty
// when there is none.
func (a *actor) foreign(ctx context.Context, namespace string) (string, error) {
	resources, err := a.target.Discovery.Namespaced(ctx)
	if err != nil {
		return "", err
	}
	known := &owners{goes: map[types.UID]bool{}, absent: map[schema.GroupKind]bool{}}
	for _, gvr := range resources {
		opts := metav1.ListOptions{Limit: 50}
		for {
			list, err := a.list(ctx, gvr, namespace, opts)
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				break
			}
			if apierrors.IsForbidden(err) {
				return fmt.Sprintf("the account may not list %s, so something could be in it", gvr.Resource), nil
			}
			if err != nil {
				return "", err
			}
			for i := range list.Items {
				u := &list.Items[i]
				if comesWithNamespace(u) || (a.rehearses && a.goes(u)) {
					continue
				}
				if follows, err := a.followsOwners(ctx, u, known); err != nil || !follows {
					return fmt.Sprintf("%s %s is in it", u.GetKind(), u.GetName()), err
				}
			}
			if opts.Continue = list.GetContinue(); opts.Continue == "" {
				break
			}
		}
	}
	return "", nil
}

// list tries again at once what fails by chance: a look at a namespace is dozens
// of lists, and each that fails voids the others.
func (a *actor) list(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	for try := 1; ; try++ {
		list, err := a.client.Resource(gvr).Namespace(namespace).List(ctx, opts)
		if err == nil || try == maxTries || ctx.Err() != nil || !passing(err) {
			return list, err
		}
	}
}

// comesWithNamespace is true for what the control plane puts into a namespace,
// and for what is going already.
func comesWithNamespace(u *unstructured.Unstructured) bool {
	if u.GetDeletionTimestamp() != nil {
		return true
	}
	switch u.GetKind() {
	case "Event":
		return true
	case "Endpoints":
		return ofService(u)
	case "ServiceAccount":
		return u.GetName() == "default"
	case "ConfigMap":
		return u.GetName() == "kube-root-ca.crt"
	default:
		return false
	}
}

// ofService is true for Endpoints that the control plane made for a Service. They
// have no owner, and go a moment after the Service, which is looked at itself.
func ofService(u *unstructured.Unstructured) bool {
	if u.GroupVersionKind().Group != corev1.GroupName {
		return false
	}
	return u.GetLabels()["endpoints.kubernetes.io/managed-by"] == "endpoint-controller" ||
		// Before Kubernetes 1.33 it has no such label.
		slices.ContainsFunc(u.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Manager == "kube-controller-manager" })
}

// owners are what one look at a namespace learned of the owners of its objects.
type owners struct {
	goes map[types.UID]bool
	// absent are kinds: asked once each, an answer is all that a server serves.
	absent map[schema.GroupKind]bool
}

// followsOwners is true for an object that goes with its owners. Those of its
// namespace are looked at themselves; one that is in none must be gone, or going.
func (a *actor) followsOwners(ctx context.Context, u *unstructured.Unstructured, known *owners) (bool, error) {
	owners := u.GetOwnerReferences()
	for _, o := range owners {
		goes, ok := known.goes[o.UID]
		if !ok {
			var err error
			if goes, err = a.ownerGoes(ctx, o, known); err != nil {
				return false, err
			}
			known.goes[o.UID] = goes
		}
		if !goes {
			return false, nil
		}
	}
	return len(owners) > 0, nil
}

func (a *actor) ownerGoes(ctx context.Context, o metav1.OwnerReference, known *owners) (bool, error) {
	gv, err := schema.ParseGroupVersion(o.APIVersion)
	if err != nil {
		return false, nil //nolint:nilerr // nobody can say what it is
	}
	m, err := a.target.Discovery.Resolve(ctx, gv.Group, gv.Version, o.Kind)
	var unserved *NotServedError
	if errors.As(err, &unserved) {
		return a.wentWithKind(ctx, unserved, known)
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
	return u.GetUID() != o.UID || u.GetDeletionTimestamp() != nil || (a.rehearses && a.goes(u)), nil
}

// wentWithKind is true when it is certain that an owner's kind is gone, and the
// owner with it: the garbage collector comes a moment later. No definition took a
// kind of a built-in group along: such an owner never was, or is served elsewhere.
func (a *actor) wentWithKind(ctx context.Context, unserved *NotServedError, known *owners) (bool, error) {
	gk := unserved.GVK.GroupKind()
	absent, asked := known.absent[gk]
	if unserved.BuiltIn || asked {
		return absent, nil
	}
	absent, err := a.target.Discovery.Absent(ctx, gk)
	if err == nil {
		known.absent[gk] = absent
	}
	return absent, err
}
