package exportstate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/internal/sources/gitsecret"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

// place is where an export goes.
type place interface {
	// String names it, for people. It holds no secret.
	String() string
	// secret is the name of the Secret, if it is one.
	secret() string
	// look finds files by their names, each of which is to be of a key.
	look(ctx context.Context, keys map[string]string) (map[string]found, error)
	// fits is an error when there is no room.
	fits(files map[string][]byte, remove []string) error
	// write changes files, all or none, unless somebody else has written since it was looked
	// at. It returns what identifies the place then.
	write(ctx context.Context, c change) (string, error)
	// revision identifies the place as it was found.
	revision() string
	// bytes that it takes, where they are bounded.
	bytes() int
	close()
}

// change of a place.
type change struct {
	files   map[string][]byte
	remove  []string
	message string
}

// contendedError is somebody else who wrote meanwhile.
type contendedError struct{ err error }

// Error implements error.
func (e *contendedError) Error() string { return e.err.Error() }

// Unwrap gives the cause.
func (e *contendedError) Unwrap() error { return e.err }

// contended is true when a place is to be looked at again.
func contended(err error) bool {
	_, ok := errors.AsType[*contendedError](err)
	return ok
}

// place of an export, as its spec names it.
func (s *Steps) place(ctx context.Context, obj *v1alpha1.ExportState, c dynamic.Interface, m *memo) (place, error) {
	if to := obj.Spec.To.Secret; to != nil {
		return &secretPlace{client: c, name: types.NamespacedName{Namespace: obj.Namespace, Name: to.Name}, owner: obj.Name, key: s.SecretKey}, nil
	}
	to := obj.Spec.To.Git
	if to == nil {
		return nil, fail(InvalidStateReason, "spec.to names neither a Secret nor a repository")
	}
	access, err := secretReader(c).Access(ctx, gitsecret.Repository{Namespace: obj.Namespace, URL: to.URL,
		SecretRef: to.SecretRef, ProxySecretRef: to.ProxySecretRef, Field: "spec.to.git"})
	if err != nil {
		return nil, err
	}
	return &gitPlace{client: s.Git, spec: to, repo: git.Repository{URL: to.URL, Access: access}, key: s.SecretKey, clock: s.Clock, memo: m}, nil
}

// secretReader reads Secrets with the rights of an account.
func secretReader(c dynamic.Interface) gitsecret.Reader {
	return func(ctx context.Context, namespace, name, field string) (*corev1.Secret, error) {
		secret := &corev1.Secret{}
		found, err := engine.Read(ctx, c, secrets, namespace, name, secret)
		if err != nil {
			return nil, fmt.Errorf("reading the Secret %s/%s of %s: %w", namespace, name, field, err)
		}
		if !found {
			return nil, gitsecret.Missing(namespace, name, field)
		}
		return secret, nil
	}
}

// messageOf a commit: what it changes, and for which export.
func messageOf(obj *v1alpha1.ExportState, p *plan) string {
	title := "Export the state of clusters"
	if g := obj.Spec.To.Git; g != nil && strings.TrimSpace(g.Message) != "" {
		title = strings.TrimSpace(g.Message)
	}
	var changes []string
	for _, d := range p.write {
		changes = append(changes, "- "+d.file)
	}
	for _, file := range p.remove {
		changes = append(changes, "- "+file+" (removed)")
	}
	slices.Sort(changes)
	const most = 100
	if more := len(changes) - most; more > 0 {
		changes = append(changes[:most], fmt.Sprintf("- and %d more", more))
	}
	return fmt.Sprintf("%s\n\n%s\n\nExportState: %s/%s\n", title, strings.Join(changes, "\n"), obj.Namespace, obj.Name)
}
