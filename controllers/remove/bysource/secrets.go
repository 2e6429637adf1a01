package bysource

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/sources/content"
	"github.com/ksctl/gitops/stacks/chart"
)

// chartAccess returns a function that returns the access to a chart repository; nil for anonymous
// access.
func chartAccess(ctx context.Context, c dynamic.Interface, rm *appsv1.KsctlRemove) func(string) (*chart.Access, error) {
	return func(repository string) (*chart.Access, error) {
		repo := chart.FindRepository(rm.Spec.Charts, repository)
		if repo == nil {
			return nil, nil
		}
		secrets, err := chart.ReadSecrets(repo, func(name string) (map[string][]byte, error) {
			data, err := readSecret(ctx, c, rm.Namespace, name)
			switch {
			case apierrors.IsNotFound(err):
				return nil, content.NewChartSecretError(repo.Repository, rm.Namespace, name)
			case err != nil:
				return nil, fmt.Errorf("spec.charts: Secret %s/%s for the repository %s: %w", rm.Namespace, name,
					repo.Repository, err)
			}
			return data, nil
		})
		if err != nil {
			return nil, err
		}
		return chart.NewAccess(repo, secrets)
	}
}

// decryptionKeys returns the keys of spec.decryption; nil if it is not set.
func (s *Steps) decryptionKeys(ctx context.Context, c dynamic.Interface,
	rm *appsv1.KsctlRemove) (*content.Keys, error) {
	if rm.Spec.Decryption == nil {
		return nil, nil
	}
	name := rm.Spec.Decryption.SecretRef.Name
	data, err := readSecret(ctx, c, rm.Namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, content.NewKeysNotFoundError(rm.Namespace, name)
	case err != nil:
		return nil, fmt.Errorf("reading Secret %s/%s of spec.decryption: %w", rm.Namespace, name, err)
	}
	return content.NewKeys(data, s.SecretKey)
}

// readSecret reads a Secret with the permissions of the account.
func readSecret(ctx context.Context, c dynamic.Interface, namespace, name string) (map[string][]byte, error) {
	u, err := c.Resource(secretGVR).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var s corev1.Secret
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &s); err != nil {
		return nil, errors.New("invalid Secret") // the cause is omitted because it may quote the data
	}
	return s.Data, nil
}
