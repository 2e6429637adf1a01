package engine

import (
	"context"
	"encoding/json"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/ksctl/gitops/stacks"
)

// Client sends requests with the permissions of one account.
type Client struct {
	dynamic.Interface
	rest rest.Interface
}

// NewClient returns a client for a REST config.
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

// GetInto reads an object with the permissions of a client, and converts it into a value of its
// type. It returns false if the object does not exist.
func GetInto(ctx context.Context, c dynamic.Interface, kind schema.GroupVersionResource, namespace, name string,
	into any) (bool, error) {
	u, err := c.Resource(kind).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into)
}

// DeleteOwnedSecret deletes a Secret with the permissions of a client, if the Secret exists and its
// annotation has the owner as value.
func DeleteOwnedSecret(ctx context.Context, c dynamic.Interface, name types.NamespacedName,
	annotation, owner string) error {
	secrets := corev1.SchemeGroupVersion.WithResource("secrets")
	var secret corev1.Secret
	found, err := GetInto(ctx, c, secrets, name.Namespace, name.Name, &secret)
	if err != nil {
		return fmt.Errorf("reading Secret %s: %w", name, err)
	}
	if !found || secret.Annotations[annotation] != owner {
		return nil
	}
	err = c.Resource(secrets).Namespace(name.Namespace).
		Delete(ctx, name.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &secret.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting Secret %s: %w", name, err)
	}
	return nil
}

// MayPatch reports whether the account of the client may patch an object.
func (c *Client) MayPatch(ctx context.Context, r schema.GroupVersionResource, ref stacks.Ref) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "patch", Group: r.Group, Version: r.Version, Resource: r.Resource, Namespace: ref.Namespace,
			Name: ref.Name}}}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(review)
	if err != nil {
		return false, err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"))
	u, err = c.Resource(authorizationv1.SchemeGroupVersion.WithResource("selfsubjectaccessreviews")).
		Create(ctx, u, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("checking if the account may patch %s: %w", ref, err)
	}
	allowed, _, _ := unstructured.NestedBool(u.Object, "status", "allowed")
	if failure, _, _ := unstructured.NestedString(u.Object, "status", "evaluationError"); !allowed && failure != "" {
		return false, fmt.Errorf("checking if the account may patch %s: %s", ref, failure)
	}
	return allowed, nil
}

// Delete deletes an object that has the uid, and the resourceVersion unless it is empty; else the
// error is a conflict. gone is true if the response proves that the object is gone. If it is false,
// the deletion may be pending, or complete without proof.
func (c *Client) Delete(ctx context.Context, m *meta.RESTMapping, ref stacks.Ref, uid types.UID,
	version string) (gone bool, err error) {
	return c.delete(ctx, m, ref, uid, version, metav1.DeletePropagationBackground)
}

// delete is Delete that chooses when the dependents are deleted.
func (c *Client) delete(ctx context.Context, m *meta.RESTMapping, ref stacks.Ref, uid types.UID, version string,
	dependents metav1.DeletionPropagation) (gone bool, err error) {
	opts := deleteOptions(uid, version)
	opts.PropagationPolicy = &dependents
	res := c.rest.Delete().AbsPath(resourcePath(m.Resource, ref)...).SetHeader("Content-Type", runtime.ContentTypeJSON).
		Body(&opts).Do(ctx)
	if err := res.Error(); err != nil {
		return false, err
	}
	b, err := res.Raw()
	if err != nil {
		return false, err
	}
	// The response is a Status for an object that is gone, and the object itself while its deletion
	// is pending. For a Pod that terminates gracefully it may be a Status, too.
	var s metav1.Status
	if json.Unmarshal(b, &s) != nil || ref.GroupKind() == corev1.SchemeGroupVersion.WithKind("Pod").GroupKind() {
		return false, nil //nolint:nilerr // no proof
	}
	return s.Kind == "Status" && s.Status == metav1.StatusSuccess && s.Details != nil && s.Details.UID == uid, nil
}

// resourcePath returns the URL path of an object, in segments.
func resourcePath(r schema.GroupVersionResource, ref stacks.Ref) []string {
	path := versionPath(r)
	if ref.Namespace != "" {
		path = append(path, "namespaces", ref.Namespace)
	}
	return append(path, r.Resource, ref.Name)
}

// collectionPath returns the URL path of all objects of a kind, in segments.
func collectionPath(r schema.GroupVersionResource) []string {
	return append(versionPath(r), r.Resource)
}

func versionPath(r schema.GroupVersionResource) []string {
	if r.Group == "" {
		return []string{"api", r.Version}
	}
	return []string{"apis", r.Group, r.Version}
}
