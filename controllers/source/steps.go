package source

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/gitsecret"
	"github.com/ksctl/gitops/internal/sources/storage"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/artifact/git"
	"github.com/ksctl/gitops/stacks/artifact/oci"
	"github.com/ksctl/gitops/stacks/artifact/verify"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.ksctl.com,resources=ksctlsources,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=apps.ksctl.com,resources=ksctlsources/status,verbs=get;patch

// Steps reconciles KsctlSources.
type Steps struct {
	// Git reads repositories.
	Git *git.Client
	// OCI reads registries.
	OCI *oci.Client
	// Secrets reads the Secrets that sources refer to. They are read for each reconcile, and not
	// cached.
	Secrets client.Reader
	// Storage stores artifacts.
	Storage *storage.Space
	// Limits bounds the size of an artifact, so that clients with the same limits can fetch it.
	Limits   artifact.Limits
	Clock    clock.PassiveClock
	Webhooks bool // the controller receives webhook requests
}

var _ reconcile.Steps[*appsv1.KsctlSource] = (*Steps)(nil)

// Reconcile implements reconcile.Steps.
func (s *Steps) Reconcile(ctx context.Context, req *reconcile.Request[*appsv1.KsctlSource]) reconcile.Outcome {
	obj := req.Object
	ctx, cancel := reconcile.WithTimeout(ctx, &obj.Spec.Schedule)
	defer cancel()
	if (obj.Spec.Git == nil) == (obj.Spec.OCI == nil) { // the CRD schema rejects these
		return reconcile.Stalled{Err: errors.New("set exactly one of spec.git and spec.oci"),
			Reason: string(git.URLInvalid)}
	}
	refresh, withdraw := s.refreshGit, s.withdrawGit
	if obj.Spec.OCI != nil {
		refresh, withdraw = s.refreshOCI, s.withdrawOCI
	}
	webhookErr := s.updateWebhookPath(ctx, obj)
	revision, err := refresh(ctx, req)
	if err != nil {
		return failureOutcome(withdraw(obj, revision, err), revision)
	}
	if webhookErr != nil {
		return failureOutcome(webhookErr, revision) // the artifact is offered nevertheless
	}
	return reconcile.Done{Message: doneMessage(&obj.Status) + s.webhookWarning(obj), Reason: fluxmeta.SucceededReason,
		Revision: revision}
}

// refreshGit updates the artifact in the status. It does not fetch a commit whose files are stored,
// and sends no request if the reference is such a commit.
func (s *Steps) refreshGit(ctx context.Context,
	req *reconcile.Request[*appsv1.KsctlSource]) (revision string, err error) {
	obj := req.Object
	desired := desiredRefOf(obj.Spec.Git.Ref)
	stored, err := s.storedArtifact(obj)
	if err != nil {
		return "", err
	}
	trusted, err := s.gitTrustOf(ctx, obj.Namespace, obj.Spec.Git)
	if err != nil {
		return "", err
	}
	isStored := func(c resolvedRef) bool {
		return isOfCommit(stored, c.commit) && obj.Status.ObservedContent == contentOf(obj, trusted, c)
	}
	if chosen := (resolvedRef{commit: desired.commit}); isStored(chosen) {
		return s.reuseArtifact(obj, stored, chosen.revision()), nil
	}
	access, err := s.gitAccess(ctx, obj.Namespace, obj.Spec.Git)
	if err != nil {
		return "", err
	}
	repo := git.Repository{URL: obj.Spec.Git.URL, Access: access}
	remote, err := s.Git.List(ctx, repo)
	if err != nil {
		return "", err
	}
	chosen, err := desired.resolve(remote)
	if err != nil {
		return "", err
	}
	if isStored(chosen) {
		return s.reuseArtifact(obj, stored, chosen.revision()), nil
	}
	before, f := obj.Status.Artifact, remoteCommit{repo, remote, chosen}
	if err := s.fetchGit(ctx, obj, f, trusted); err != nil {
		return chosen.revision(), err
	}
	f.emitRefChange(ctx, req, before)
	return chosen.revision(), nil
}

// remoteCommit is a resolved commit in a repository.
type remoteCommit struct {
	repo   git.Repository
	remote *git.Remote
	chosen resolvedRef
}

// storedArtifact returns the artifact of the status if its file exists and is intact; nil
// otherwise.
func (s *Steps) storedArtifact(obj *appsv1.KsctlSource) (*fluxmeta.Artifact, error) {
	a := obj.Status.Artifact
	if a == nil {
		return nil, nil
	}
	exists, err := s.Storage.Has(client.ObjectKeyFromObject(obj), a.Digest)
	if err != nil {
		return nil, &storageError{err}
	}
	if !exists {
		return nil, nil
	}
	return a, nil
}

// reuseArtifact keeps a stored artifact. It updates the status if the commit has another branch or
// tag name, or this process has another address.
func (s *Steps) reuseArtifact(obj *appsv1.KsctlSource, a *fluxmeta.Artifact, revision string) string {
	name, err := s.Storage.PathOf(client.ObjectKeyFromObject(obj), a.Digest)
	if url := s.Storage.URL(name); err == nil && (a.Revision != revision || a.URL != url || a.Path != name) {
		a = a.DeepCopy()
		a.Revision, a.URL, a.Path, a.LastUpdateTime = revision, url, name, metav1.NewTime(s.Clock.Now())
		obj.Status.Artifact = a
	}
	return revision
}

// fetchGit fetches and verifies a commit, stores its files and sets the artifact in the status. The
// previous artifact stays in the storage for clients that are about to download it.
func (s *Steps) fetchGit(ctx context.Context, obj *appsv1.KsctlSource, f remoteCommit, trusted gitTrust) (err error) {
	chosen, tag := f.chosen, f.chosen.tag
	tag.Commit = chosen.commit
	checkout, err := f.remote.FetchTag(ctx, tag)
	if err != nil {
		return err
	}
	defer closeFiles(checkout, &err)
	if err := s.verify(checkout, trusted); err != nil {
		return err
	}
	if obj.Spec.Git.RecurseSubmodules {
		if err := checkout.AddSubmodules(ctx, f.repo); err != nil {
			return err
		}
	}
	next, err := s.store(ctx, obj, checkout.FS())
	if err != nil {
		return err
	}
	next.Revision = chosen.revision()
	return s.publish(obj, next, trusted.mode, contentOf(obj, trusted, chosen))
}

// closeFiles closes fetched files. It sets err if that fails, and nothing failed before.
func closeFiles(files io.Closer, err *error) {
	if cerr := files.Close(); cerr != nil && *err == nil {
		*err = &storageError{cerr}
	}
}

// publish sets a stored artifact in the status, and removes older artifacts except the previous
// one.
func (s *Steps) publish(obj *appsv1.KsctlSource, next *fluxmeta.Artifact, mode appsv1.GitVerificationMode,
	content string) error {
	keep := []string{next.Digest}
	before := obj.Status.Artifact
	if before != nil {
		keep = append(keep, before.Digest)
	}
	if err := s.Storage.RemoveExcept(client.ObjectKeyFromObject(obj), keep...); err != nil {
		return &storageError{err}
	}
	if sameArtifact(before, next) { // only verified again, with other keys
		next.LastUpdateTime = before.LastUpdateTime
	}
	obj.Status.Artifact = next
	obj.Status.SourceVerificationMode, obj.Status.ObservedContent = mode, content
	return nil
}

// sameArtifact reports whether two artifacts have the same revision, content and URL.
func sameArtifact(a, b *fluxmeta.Artifact) bool {
	return a != nil && a.Revision == b.Revision && a.Digest == b.Digest && a.URL == b.URL
}

// store stores files as an artifact, without ignored files.
func (s *Steps) store(ctx context.Context, obj *appsv1.KsctlSource, fsys fs.FS) (*fluxmeta.Artifact, error) {
	ignore, err := artifact.NewIgnore(ctx, fsys, obj.Spec.Ignore)
	if err != nil {
		return nil, err
	}
	skip := func(name string, d fs.DirEntry) bool { return isGitMetadata(name) || ignore.Skips(name, d) }
	name, packed, err := s.Storage.Store(ctx, client.ObjectKeyFromObject(obj), fsys,
		artifact.PackOptions{Skip: skip, Limits: s.Limits})
	if err != nil {
		return nil, &storageError{err}
	}
	a := &fluxmeta.Artifact{Path: name, URL: s.Storage.URL(name), Digest: packed.Digest,
		LastUpdateTime: metav1.NewTime(s.Clock.Now()), Size: &packed.Size}
	if left := describeLeftOut(packed.LeftOut, packed.LeftOutNames); left != "" {
		a.Metadata = map[string]string{leftOutKey: left}
	}
	return a, nil
}

// isGitMetadata reports whether a file configures Git. Such files are left out, as by Flux.
func isGitMetadata(name string) bool {
	return slices.Contains([]string{".gitignore", ".gitmodules", ".gitattributes"}, path.Base(name))
}

// Finalize implements reconcile.Steps.
func (s *Steps) Finalize(_ context.Context, req *reconcile.Request[*appsv1.KsctlSource]) reconcile.Outcome {
	if err := s.Storage.Remove(client.ObjectKeyFromObject(req.Object)); err != nil {
		return failureOutcome(&storageError{err}, "")
	}
	return reconcile.Done{Message: "the artifacts are removed"}
}

// Forget implements reconcile.Steps. Sources have no in-memory state.
func (s *Steps) Forget(types.NamespacedName) {}

// storageError reports a failure of the local storage, unless its cause has a reason of its own.
type storageError struct{ err error }

// Error implements error.
func (e *storageError) Error() string { return "storing the artifact: " + e.err.Error() }

// Unwrap returns the cause.
func (e *storageError) Unwrap() error { return e.err }

// failureOutcome returns Stalled for errors that a user has to fix, and Retry for others.
func failureOutcome(err error, revision string) reconcile.Outcome {
	var terminal interface {
		error
		Terminal() bool
	}
	isTerminal := errors.As(err, &terminal) && terminal.Terminal()
	return reconcile.FailureOutcome(err, reasonOf(err), isTerminal, revision)
}

func reasonOf(err error) string {
	var (
		verifyErr   *verify.Error
		ociErr      *oci.Error
		gitErr      *git.Error
		artifactErr *artifact.Error
		secretErr   *gitsecret.Error
		full        *storage.FullError
		storageErr  *storageError
	)
	switch {
	case errors.As(err, &verifyErr):
		return string(verifyErr.Reason)
	case errors.As(err, &ociErr):
		return string(ociErr.Reason)
	case errors.As(err, &gitErr):
		return string(gitErr.Reason)
	case errors.As(err, &artifactErr):
		return string(artifactErr.Reason)
	case errors.As(err, &secretErr):
		return secretErr.Reason
	case errors.As(err, &full):
		return appsv1.StorageFullReason
	case errors.As(err, &storageErr):
		return appsv1.StorageOperationFailedReason
	}
	return fluxmeta.ReconciliationFailedReason
}
