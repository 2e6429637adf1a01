package engine

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/ksctl/gitops/stacks"
)

// Client makes requests with the rights of one account.
type Client struct {
	dynamic.Interface
	rest rest.Interface
}

// NewClient returns a client of the API server that the config names.
func NewClient(cfg *rest.Config) (*Client, error) {
	cfg = dynamic.ConfigFor(cfg)
	cfg.GroupVersion = &schema.GroupVersion{}
	cfg.APIPath = "/"
	c, err := rest.UnversionedRESTClientFor(cfg)
	if err != nil {
		return nil, err
	}
	return &Client{Interface: dynamic.New(c), rest: c}, nil
}

// Read reads an object into a value of its type, with a client's rights; false if it is not there.
func Read(ctx context.Context, c dynamic.Interface, kind schema.GroupVersionResource, namespace, name string, into any) (bool, error) {
	u, err := c.Resource(kind).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into)
}

// DropSecret deletes a Secret with a client's rights, if an annotation says that it is its
// owner's, and it is there.
func DropSecret(ctx context.Context, c dynamic.Interface, name types.NamespacedName, annotation, owner string) error {
	secrets := corev1.SchemeGroupVersion.WithResource("secrets")
	var have corev1.Secret
	found, err := Read(ctx, c, secrets, name.Namespace, name.Name, &have)
	if err != nil {
		return fmt.Errorf("reading Secret %s: %w", name, err)
	}
	if !found || have.Annotations[annotation] != owner {
		return nil
	}
	err = c.Resource(secrets).Namespace(name.Namespace).Delete(ctx, name.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &have.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting Secret %s: %w", name, err)
	}
	return nil
}

// Delete asks for deletion of an object with a uid, and with a resourceVersion unless
// that is empty: of another one the error is a conflict. It reports whether the API
// server answered that the object is gone; else something holds it, or nobody
// can tell yet.
func (c *Client) Delete(ctx context.Context, m *meta.RESTMapping, ref stacks.Ref, uid types.UID, version string) (gone bool, err error) {
	opts := deleteOptions(uid, version)
	res := c.rest.Delete().AbsPath(resourcePath(m.Resource, ref)...).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(&opts).Do(ctx)
	if err := res.Error(); err != nil {
		return false, err
	}
	b, err := res.Raw()
	if err != nil {
		return false, err
	}
	// What is gone is answered with a Status, what is going with the object. Of
	// a Pod that goes gracefully a Status may be answered, too.
	var s metav1.Status
	if json.Unmarshal(b, &s) != nil || ref.GroupKind() == corev1.SchemeGroupVersion.WithKind("Pod").GroupKind() {
		return false, nil //nolint:nilerr // no proof
	}
	return s.Kind == "Status" && s.Status == metav1.StatusSuccess && s.Details != nil && s.Details.UID == uid, nil
}

// resourcePath is the path of an object below the root of the API server.
func resourcePath(r schema.GroupVersionResource, ref stacks.Ref) []string {
	path := []string{"apis", r.Group, r.Version}
	if r.Group == "" {
		path = []string{"api", r.Version}
	}
	if ref.Namespace != "" {
		path = append(path, "namespaces", ref.Namespace)
	}
	return append(path, r.Resource, ref.Name)
}
