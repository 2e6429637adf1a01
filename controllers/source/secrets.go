package source

import (
	"context"
	"fmt"
	"slices"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/sources/gitsecret"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

// secretNames returns the sorted names of all Secrets that a source refers to.
func secretNames(obj *appsv1.KsctlSource) []string {
	var names []string
	if g := obj.Spec.Git; g != nil {
		names = append(names, refName(g.SecretRef), refName(g.ProxySecretRef))
		if g.Verify != nil {
			names = append(names, g.Verify.SecretRef.Name)
		}
	}
	if o := obj.Spec.OCI; o != nil {
		names = append(names, refName(o.SecretRef), refName(o.CertSecretRef), refName(o.ProxySecretRef))
		if v := o.Verify; v != nil {
			names = append(names, refName(v.SecretRef), refName(v.TrustedRootSecretRef))
		}
	}
	if obj.Spec.Webhook != nil {
		names = append(names, obj.Spec.Webhook.SecretRef.Name)
	}
	if obj.Spec.CommitStatus != nil {
		names = append(names, obj.Spec.CommitStatus.SecretRef.Name)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}

func refName(ref *fluxmeta.LocalObjectReference) string {
	if ref == nil {
		return ""
	}
	return ref.Name
}

// readSecret reads a Secret that a field of the spec refers to.
func (s *Steps) readSecret(ctx context.Context, namespace, name, field string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := s.Secrets.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, gitsecret.NewNotFound(namespace, name, field)
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s/%s of %s: %w", namespace, name, field, err)
	}
	return secret, nil
}

// gitAccess returns the credentials and the proxy for the repository of a source.
func (s *Steps) gitAccess(ctx context.Context, namespace string, g *appsv1.GitSource) (git.Access, error) {
	return gitsecret.Reader(s.readSecret).Access(ctx, gitsecret.Repository{Namespace: namespace, URL: g.URL,
		SecretRef: g.SecretRef, ProxySecretRef: g.ProxySecretRef, Field: "spec.git"})
}
