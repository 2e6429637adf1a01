package restapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/restapi/manifests"
)

// resource is a resource that the endpoint serves.
type resource struct {
	schema.GroupResource
	kind string
	// versions are the served versions. The first one is stored.
	versions []string
}

// installs is the resource of KsctlInstall.
var installs = resource{
	GroupResource: schema.GroupResource{Group: appsv1.GroupVersion.Group, Resource: "ksctlinstalls"},
	kind:          appsv1.KsctlInstallKind, versions: []string{appsv1.GroupVersion.Version}}

// collection returns the path of the objects of a namespace at the API server.
func (r *resource) collection(version, namespace string) string {
	return fmt.Sprintf("/apis/%s/%s/namespaces/%s/%s", r.Group, version, namespace, r.Resource)
}

// resources are the resources that the endpoint serves.
type resources struct {
	kinds  client.Reader
	mapper apimeta.RESTMapper
}

// all returns KsctlInstall and the kinds that KsctlKinds publish, in the order of their names.
func (r *resources) all(ctx context.Context) ([]resource, error) {
	var list appsv1.KsctlKindList
	if err := r.kinds.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing KsctlKinds: %w", err)
	}
	out := []resource{installs}
	for i := range list.Items {
		status := &list.Items[i].Status
		plural, group, ok := strings.Cut(status.CRD, ".")
		if !ok || len(status.ServedVersions) == 0 {
			continue
		}
		gvr := schema.GroupVersionResource{Group: group, Version: status.ServedVersions[0], Resource: plural}
		gvk, err := r.mapper.KindFor(gvr)
		if apimeta.IsNoMatchError(err) {
			continue // it is being created or deleted
		}
		if err != nil {
			return nil, fmt.Errorf("finding the kind of %s: %w", status.CRD, err)
		}
		out = append(out, resource{GroupResource: gvr.GroupResource(), kind: gvk.Kind,
			versions: status.ServedVersions})
	}
	slices.SortFunc(out, func(a, b resource) int { return strings.Compare(a.String(), b.String()) })
	return out, nil
}

// find returns the resource of a name, <plural>.<group>.
func (r *resources) find(ctx context.Context, name string) (*resource, error) {
	all, err := r.all(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range all {
		if all[i].String() == name {
			return &all[i], nil
		}
		names = append(names, all[i].String())
	}
	return nil, newError(http.StatusNotFound, metav1.StatusReasonNotFound,
		"the endpoint does not serve %q: use one of %s", name, strings.Join(names, ", "))
}

// target is the object of a request.
type target struct {
	*resource
	namespace, name string
}

// String returns the object for messages.
func (t *target) String() string { return fmt.Sprintf("%s %s/%s", t.kind, t.namespace, t.name) }

// path returns the path of the object at the API server.
func (t *target) path(version string) string {
	return t.collection(version, t.namespace) + "/" + t.name
}

func (t *target) key() manifests.Key {
	return manifests.Key{Group: t.Group, Kind: t.kind, Namespace: t.namespace, Name: t.name}
}

// version returns the version of an apiVersion, which has to be served.
func (t *target) version(apiVersion string) (string, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || gv.Group != t.Group || !slices.Contains(t.versions, gv.Version) {
		return "", newError(http.StatusBadRequest, metav1.StatusReasonBadRequest,
			"apiVersion %q of the object: %s has %s", apiVersion, t.GroupResource, t.apiVersions())
	}
	return gv.Version, nil
}

func (t *target) apiVersions() string {
	out := make([]string, len(t.versions))
	for i, v := range t.versions {
		out[i] = schema.GroupVersion{Group: t.Group, Version: v}.String()
	}
	return strings.Join(out, ", ")
}

// conflict returns a 409 about the object.
func (t *target) conflict(format string, args ...any) error {
	return newStatusError(http.StatusConflict, metav1.StatusReasonConflict,
		&metav1.StatusDetails{Group: t.Group, Kind: t.kind, Name: t.name}, "%s: %s", t, fmt.Sprintf(format, args...))
}

// preconditionFailed returns a 412 about the object.
func (t *target) preconditionFailed(format string, args ...any) error {
	return newStatusError(http.StatusPreconditionFailed, preconditionFailed,
		&metav1.StatusDetails{Group: t.Group, Kind: t.kind, Name: t.name}, "%s: %s", t, fmt.Sprintf(format, args...))
}
