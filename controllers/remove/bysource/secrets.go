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

// access is how a KsctlRemove reaches a repository of charts; nil: as anybody.
func access(ctx context.Context, c dynamic.Interface, rm *appsv1.KsctlRemove) func(string) (*chart.Access, error) {
	return func(repository string) (*chart.Access, error) {
		repo := chart.For(rm.Spec.Charts, repository)
		if repo == nil {
			return nil, nil
		}
		secrets, err := chart.ReadSecrets(repo, func(name string) (map[string][]byte, error) {
			data, err := secret(ctx, c, rm.Namespace, name)
			switch {
			case apierrors.IsNotFound(err):
				return nil, &content.ChartSecretError{Repository: repo.Repository, Namespace: rm.Namespace, Name: name}
			case err != nil:
				return nil, fmt.Errorf("spec.charts: Secret %s/%s for the repository %s: %w", rm.Namespace, name, repo.Repository, err)
			}
			return data, nil
		})
		if err != nil {
			return nil, err
		}
		return chart.NewAccess(repo, secrets)
	}
}

// keys are those of spec.decryption; nil: none is named.
func (s *Steps) keys(ctx context.Context, c dynamic.Interface, rm *appsv1.KsctlRemove) (*content.Keys, error) {
	if rm.Spec.Decryption == nil {
		return nil, nil
	}
	name := rm.Spec.Decryption.SecretRef.Name
	data, err := secret(ctx, c, rm.Namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &content.KeysNotFoundError{Namespace: rm.Namespace, Name: name}
	case err != nil:
		return nil, fmt.Errorf("reading the Secret %s/%s of spec.decryption: %w", rm.Namespace, name, err)
	}
	return content.NewKeys(data, s.SecretKey)
}

// secret reads a Secret with the account's rights.
func secret(ctx context.Context, c dynamic.Interface, namespace, name string) (map[string][]byte, error) {
	u, err := c.Resource(secrets).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var s corev1.Secret
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &s); err != nil {
		return nil, errNoSecret // what it holds stays unsaid
	}
	return s.Data, nil
}

var errNoSecret = errors.New("it is none")
