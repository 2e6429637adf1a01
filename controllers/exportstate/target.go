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
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/gitsecret"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

// exportTarget is where an export writes to: a Secret or a folder on a branch.
type exportTarget interface {
	// String returns the target for messages and status.target. It contains no secret.
	String() string
	// secretName returns the name of the Secret; "" for other targets.
	secretName() string
	// readFiles reads the state of files. keys has the expected key of each file, by name.
	readFiles(ctx context.Context, keys map[string]string) (map[string]targetFile, error)
	// checkSize returns an error if the files would exceed the size of the target.
	checkSize(files map[string][]byte, remove []string) error
	// write changes the files atomically. It returns errConflict if another client has written
	// since readFiles, or else the new revision of the target.
	write(ctx context.Context, c changeSet) (string, error)
	// revision returns the revision of the target that readFiles has read.
	revision() string
	// size returns the size of the target in bytes; 0 if it is unlimited.
	size() int
	close()
}

// changeSet is a change of the files of a target.
type changeSet struct {
	files   map[string][]byte
	remove  []string
	message string
}

// errConflict means that another client has written at the same time: the target must be read and
// written again.
var errConflict = errors.New("another client has changed the target")

// newTarget returns the target in the spec of an export.
func (s *Steps) newTarget(ctx context.Context, obj *v1alpha1.ExportState, c dynamic.Interface,
	cache *exportCache) (exportTarget, error) {
	if to := obj.Spec.To.Secret; to != nil {
		return &secretTarget{client: c, name: types.NamespacedName{Namespace: obj.Namespace, Name: to.Name},
			owner: obj.Name, key: s.SecretKey}, nil
	}
	to := obj.Spec.To.Git
	if to == nil {
		return nil, reconcile.NewTerminalError(v1alpha1.InvalidStateReason, "spec.to: set either secret or git")
	}
	access, err := secretReader(c).Access(ctx, gitsecret.Repository{Namespace: obj.Namespace, URL: to.URL,
		SecretRef: to.SecretRef, ProxySecretRef: to.ProxySecretRef, Field: "spec.to.git"})
	if err != nil {
		return nil, err
	}
	return &gitTarget{client: s.Git, spec: to, repo: git.Repository{URL: to.URL, Access: access}, key: s.SecretKey,
		clock: s.Clock, cache: cache}, nil
}

// secretReader returns a Reader that uses the permissions of the client's account.
func secretReader(c dynamic.Interface) gitsecret.Reader {
	return func(ctx context.Context, namespace, name, field string) (*corev1.Secret, error) {
		secret := &corev1.Secret{}
		found, err := engine.GetInto(ctx, c, secretGVR, namespace, name, secret)
		if err != nil {
			return nil, fmt.Errorf("reading Secret %s/%s of %s: %w", namespace, name, field, err)
		}
		if !found {
			return nil, gitsecret.NewNotFound(namespace, name, field)
		}
		return secret, nil
	}
}

// commitMessage returns a commit message with the changed files and the name of the export.
func commitMessage(obj *v1alpha1.ExportState, p *exportPlan) string {
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
	const maxListed = 100
	if more := len(changes) - maxListed; more > 0 {
		changes = append(changes[:maxListed], fmt.Sprintf("- and %d more", more))
	}
	return fmt.Sprintf("%s\n\n%s\n\nExportState: %s/%s\n", title, strings.Join(changes, "\n"), obj.Namespace, obj.Name)
}
