package bysource

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/content"
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
			return secret(ctx, c, repo.Repository, rm.Namespace, name)
		})
		if err != nil {
			return nil, err
		}
		return chart.NewAccess(repo, secrets)
	}
}

// secret reads a Secret of spec.charts with the account's rights.
func secret(ctx context.Context, c dynamic.Interface, repository, namespace, name string) (map[string][]byte, error) {
	u, err := c.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, &content.ChartSecretError{Repository: repository, Namespace: namespace, Name: name}
	}
	if err != nil {
		return nil, fmt.Errorf("spec.charts: Secret %s/%s for the repository %s: %w", namespace, name, repository, err)
	}
	var s corev1.Secret
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &s); err != nil {
		return nil, fmt.Errorf("spec.charts: Secret %s/%s for the repository %s: %w", namespace, name, repository, err)
	}
	return s.Data, nil
}
