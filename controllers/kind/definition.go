package kind

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
)

// ownerMark returns the value of appsv1.KindAnnotation on what a KsctlKind owns.
func (s *Steps) ownerMark(name string) string { return s.Installation + "/" + name }

// ownerOf returns the name of the KsctlKind that owns an object.
func (s *Steps) ownerOf(o client.Object) (string, bool) {
	return strings.CutPrefix(o.GetAnnotations()[appsv1.KindAnnotation], s.ownerMark(""))
}

// getDefinition returns a CustomResourceDefinition; nil if there is none.
func (s *Steps) getDefinition(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	u := unstructuredDefinition(name)
	if err := s.Direct.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, err
	}
	d := &apiextensionsv1.CustomResourceDefinition{}
	return d, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, d)
}

// unstructuredDefinition returns an object for requests: the scheme does not have the type.
func unstructuredDefinition(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind(stacks.DefinitionKind.Kind))
	u.SetName(name)
	return u
}

// applyDefinition creates or updates the CustomResourceDefinition of a kind, unless it is as
// desired. have is nil if there is none. The API server refuses the request if another one was
// created meanwhile.
func (s *Steps) applyDefinition(ctx context.Context, owner string, want,
	have *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	content, err := json.Marshal(want.Spec)
	if err != nil {
		return nil, err
	}
	want.Annotations = map[string]string{appsv1.KindAnnotation: s.ownerMark(owner)}
	if have != nil && s.applied.isCurrent(have.Name, string(content), have.UID, generation(have)) {
		return have, nil
	}
	if want.ResourceVersion = "1"; have != nil {
		want.ResourceVersion, want.UID = "", have.UID
	}
	applied := &apiextensionsv1.CustomResourceDefinition{}
	if err := s.apply(ctx, want, applied); err != nil {
		if apierrors.IsInvalid(err) {
			return nil, reconcile.NewTerminalError(appsv1.InvalidStackReason, "spec.serves: %s", err)
		}
		return nil, err
	}
	s.applied.record(applied.Name, string(content), applied.UID, generation(applied))
	return applied, nil
}

func generation(o client.Object) string { return strconv.FormatInt(o.GetGeneration(), 10) }

// apply applies an object, and decodes the response into out if that is not nil.
func (s *Steps) apply(ctx context.Context, o runtime.Object, out any) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return err
	}
	delete(content, "status")
	u := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	err = s.Direct.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(s.FieldOwner),
		client.ForceOwnership)
	if err != nil || out == nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out)
}

// isEstablished reports whether the API server serves the kind.
func isEstablished(d *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}

// namesRefused returns why the API server does not accept the names of a definition; empty if it
// does.
func namesRefused(d *apiextensionsv1.CustomResourceDefinition) string {
	for _, c := range d.Status.Conditions {
		if c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

// Labels that add the rules of a ClusterRole to those of Kubernetes.
// https://kubernetes.io/docs/reference/access-authn-authz/rbac/#user-facing-roles
const (
	aggregateToAdmin = "rbac.authorization.k8s.io/aggregate-to-admin"
	aggregateToEdit  = "rbac.authorization.k8s.io/aggregate-to-edit"
	aggregateToView  = "rbac.authorization.k8s.io/aggregate-to-view"
)

// roles returns the ClusterRoles of a kind, which are added to the roles admin, edit and view of
// Kubernetes.
func (s *Steps) roles(owner string, t *stacks.KindTemplate) []*rbacv1.ClusterRole {
	role := func(name string, verbs []string, labels ...string) *rbacv1.ClusterRole {
		r := &rbacv1.ClusterRole{TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(),
			Kind: "ClusterRole"},
			ObjectMeta: metav1.ObjectMeta{Name: roleName(t.DefinitionName(), name), Labels: map[string]string{},
				Annotations: map[string]string{appsv1.KindAnnotation: s.ownerMark(owner)}},
			Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{t.Group}, Resources: []string{t.PluralName()}, Verbs: verbs},
				{APIGroups: []string{t.Group}, Resources: []string{t.PluralName() + "/status"},
					Verbs: []string{"get"}}}}
		if t.Scale != nil && name == "edit" {
			r.Rules = append(r.Rules, rbacv1.PolicyRule{APIGroups: []string{t.Group},
				Resources: []string{t.PluralName() + "/scale"}, Verbs: []string{"get", "patch", "update"}})
		}
		for _, label := range labels {
			r.Labels[label] = "true"
		}
		return r
	}
	read := []string{"get", "list", "watch"}
	write := []string{"create", "delete", "deletecollection", "patch", "update"}
	return []*rbacv1.ClusterRole{role("edit", slices.Concat(read, write), aggregateToAdmin, aggregateToEdit),
		role("view", read, aggregateToView)}
}

func roleName(definition, role string) string {
	return fmt.Sprintf("ksctl-gitops:%s:%s", definition, role)
}

// applyRoles applies the ClusterRoles of a kind, unless they are as this process applied them.
func (s *Steps) applyRoles(ctx context.Context, owner string, t *stacks.KindTemplate) error {
	for _, role := range s.roles(owner, t) {
		content, err := json.Marshal(role)
		if err != nil {
			return err
		}
		have := reconcile.PartialMetadata(rbacv1.GroupName, "ClusterRole")
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(role), have); client.IgnoreNotFound(err) != nil {
			return err
		}
		if s.applied.isCurrent(role.Name, string(content), have.UID, have.ResourceVersion) {
			continue
		}
		var applied rbacv1.ClusterRole
		if err := s.apply(ctx, role, &applied); err != nil {
			return err
		}
		s.applied.record(role.Name, string(content), applied.UID, applied.ResourceVersion)
	}
	return nil
}

// deleteRoles deletes the ClusterRoles of the kind of a KsctlKind.
func (s *Steps) deleteRoles(ctx context.Context, k *appsv1.KsctlKind) error {
	definition := k.Status.CRD
	for _, name := range []string{"edit", "view"} {
		role := reconcile.PartialMetadata(rbacv1.GroupName, "ClusterRole")
		err := s.Direct.Get(ctx, client.ObjectKey{Name: roleName(definition, name)}, role)
		if err == nil && s.owns(k, role) {
			err = s.Direct.Delete(ctx, role, client.Preconditions{UID: &role.UID})
		}
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		s.applied.forget(roleName(definition, name))
	}
	return nil
}
