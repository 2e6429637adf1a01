package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/storage"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/artifact/git"
	"github.com/ksctl/gitops/stacks/artifact/oci"
)

// Kind of the objects that are reconciled here.
const Kind = "KsctlSource"

// Reasons of a KsctlSource's conditions beside those of stacks/artifact and its
// git, oci and verify.
const (
	// BranchRewrittenReason: an event; a branch was moved to a commit that does not
	// come after the one before.
	BranchRewrittenReason = "BranchRewritten"
	// TagMovedReason: an event; a tag is of another commit than before.
	TagMovedReason = "TagMoved"
	// SucceededReason: the artifact is what the spec asks for.
	SucceededReason = fluxmeta.SucceededReason
	// StorageOperationFailedReason: the artifact can't be kept or read back.
	StorageOperationFailedReason = "StorageOperationFailed"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.ksctl.com,resources=ksctlsources,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=apps.ksctl.com,resources=ksctlsources/status,verbs=get;patch

// Steps reconcile a KsctlSource.
type Steps struct {
	// Git reads repositories.
	Git *git.Client
	// OCI reads registries.
	OCI *oci.Client
	// Secrets reads those that sources refer to. They are read anew each time, and
	// kept nowhere.
	Secrets client.Reader
	// Storage keeps artifacts.
	Storage *storage.Space
	// Limits of one artifact: what is stored here must be fit to be fetched.
	Limits   artifact.Limits
	Clock    clock.PassiveClock
	Webhooks bool // pushes are received
}

var _ reconcile.Steps[*appsv1.KsctlSource] = (*Steps)(nil)

// Reconcile implements reconcile.Steps.
func (s *Steps) Reconcile(ctx context.Context, req *reconcile.Request[*appsv1.KsctlSource]) reconcile.Outcome {
	obj := req.Object
	timeout := reconcile.Timeout(&obj.Spec.Schedule)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not finished within the timeout of %s", timeout))
	defer cancel()
	if (obj.Spec.Git == nil) == (obj.Spec.OCI == nil) { // the API server lets none of these through
		return reconcile.Stalled{Err: errors.New("set exactly one of spec.git and spec.oci: where to fetch from"), Reason: string(git.URLInvalid)}
	}
	refresh, withdraw := s.telling(req), s.withdraw
	if obj.Spec.OCI != nil {
		refresh, withdraw = s.refreshOCI, s.withdrawOCI
	}
	unhooked := s.hook(ctx, obj)
	revision, err := refresh(ctx, obj)
	if err != nil {
		return outcome(withdraw(obj, revision, err), revision)
	}
	if unhooked != nil {
		return outcome(unhooked, revision) // what was fetched is offered all the same
	}
	return reconcile.Done{Message: message(&obj.Status) + s.hookless(obj), Reason: SucceededReason, Revision: revision}
}

// refresh makes the artifact in the status what is wanted, with the least work:
// a commit whose files are kept is not fetched, and one that was asked for by
// its id is not even looked for.
func (s *Steps) refresh(ctx context.Context, obj *appsv1.KsctlSource) (revision string, moved *move, err error) {
	want := wishOf(obj.Spec.Git.Ref)
	kept, err := s.kept(obj)
	if err != nil {
		return "", nil, err
	}
	trusted, err := s.trustOf(ctx, obj.Namespace, obj.Spec.Git)
	if err != nil {
		return "", nil, err
	}
	there := func(c choice) bool {
		return holds(kept, c.commit) && obj.Status.ObservedContent == contentOf(obj, trusted, c)
	}
	if chosen := (choice{commit: want.commit}); there(chosen) {
		return s.keep(obj, kept, chosen.revision()), nil, nil
	}
	access, err := s.access(ctx, obj.Namespace, obj.Spec.Git)
	if err != nil {
		return "", nil, err
	}
	repo := git.Repository{URL: obj.Spec.Git.URL, Access: access}
	remote, err := s.Git.List(ctx, repo)
	if err != nil {
		return "", nil, err
	}
	chosen, err := want.choose(remote)
	if err != nil {
		return "", nil, err
	}
	if there(chosen) {
		return s.keep(obj, kept, chosen.revision()), nil, nil
	}
	before, f := obj.Status.Artifact, found{repo, remote, chosen}
	if err := s.fetch(ctx, obj, f, trusted); err != nil {
		return chosen.revision(), nil, err
	}
	return chosen.revision(), f.moved(ctx, before), nil
}

// found is a commit that was chosen in a repository.
type found struct {
	repo   git.Repository
	remote *git.Remote
	chosen choice
}

// kept is the artifact of the status if its file is there, whole.
func (s *Steps) kept(obj *appsv1.KsctlSource) (*fluxmeta.Artifact, error) {
	a := obj.Status.Artifact
	if a == nil {
		return nil, nil
	}
	there, err := s.Storage.Has(client.ObjectKeyFromObject(obj), a.Digest)
	if err != nil {
		return nil, &storageError{err}
	}
	if !there {
		return nil, nil
	}
	return a, nil
}

// keep goes on with an artifact that is there already. Another branch of the
// same commit, or another address of this process, still have to be told.
func (s *Steps) keep(obj *appsv1.KsctlSource, a *fluxmeta.Artifact, revision string) string {
	name, err := s.Storage.PathOf(client.ObjectKeyFromObject(obj), a.Digest)
	if url := s.Storage.URL(name); err == nil && (a.Revision != revision || a.URL != url || a.Path != name) {
		a = a.DeepCopy()
		a.Revision, a.URL, a.Path, a.LastUpdateTime = revision, url, name, metav1.NewTime(s.Clock.Now())
		obj.Status.Artifact = a
	}
	return revision
}

// fetch gets a commit, keeps its files and writes them into the status. The
// artifact before stays, for whoever is about to download it.
func (s *Steps) fetch(ctx context.Context, obj *appsv1.KsctlSource, f found, trusted trust) (err error) {
	chosen, tag := f.chosen, f.chosen.tag
	tag.Commit = chosen.commit
	checkout, err := f.remote.FetchTag(ctx, tag)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := checkout.Close(); cerr != nil && err == nil {
			err = &storageError{cerr}
		}
	}()
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

// publish writes an artifact that was stored into the status.
func (s *Steps) publish(obj *appsv1.KsctlSource, next *fluxmeta.Artifact, mode appsv1.GitVerificationMode, content string) error {
	keep := []string{next.Digest}
	before := obj.Status.Artifact
	if before != nil {
		keep = append(keep, before.Digest)
	}
	if err := s.Storage.Keep(client.ObjectKeyFromObject(obj), keep...); err != nil {
		return &storageError{err}
	}
	if same(before, next) { // checked anew, by other keys
		next.LastUpdateTime = before.LastUpdateTime
	}
	obj.Status.Artifact = next
	obj.Status.SourceVerificationMode, obj.Status.ObservedContent = mode, content
	return nil
}

// same is true for artifacts of the same revision with the same content.
func same(a, b *fluxmeta.Artifact) bool {
	return a != nil && a.Revision == b.Revision && a.Digest == b.Digest && a.URL == b.URL
}

// store keeps files as an artifact, but for what is left out.
func (s *Steps) store(ctx context.Context, obj *appsv1.KsctlSource, fsys fs.FS) (*fluxmeta.Artifact, error) {
	ignore, err := artifact.NewIgnore(ctx, fsys, obj.Spec.Ignore)
	if err != nil {
		return nil, err
	}
	skip := func(name string, d fs.DirEntry) bool { return ofGit(name, d) || ignore.Skips(name, d) }
	name, packed, err := s.Storage.Store(ctx, client.ObjectKeyFromObject(obj), fsys, artifact.PackOptions{Skip: skip, Limits: s.Limits})
	if err != nil {
		return nil, &storageError{err}
	}
	a := &fluxmeta.Artifact{Path: name, URL: s.Storage.URL(name), Digest: packed.Digest,
		LastUpdateTime: metav1.NewTime(s.Clock.Now()), Size: &packed.Size}
	if left := leftOut(packed.LeftOut, packed.LeftOutNames); left != "" {
		a.Metadata = map[string]string{leftOutKey: left}
	}
	return a, nil
}

// ofGit leaves out what is about the repository, as Flux does.
func ofGit(name string, _ fs.DirEntry) bool {
	switch path.Base(name) {
	case ".gitignore", ".gitmodules", ".gitattributes":
		return true
	}
	return false
}

// Finalize implements reconcile.Steps.
func (s *Steps) Finalize(_ context.Context, req *reconcile.Request[*appsv1.KsctlSource]) reconcile.Outcome {
	if err := s.Storage.Remove(client.ObjectKeyFromObject(req.Object)); err != nil {
		return outcome(&storageError{err}, "")
	}
	return reconcile.Done{Message: "the artifacts were removed"}
}

// Forget implements reconcile.Steps. Nothing is kept in memory of a source.
func (s *Steps) Forget(types.NamespacedName) {}

// storageError is a failure of our own disk, if no cause inside says better.
type storageError struct{ err error }

// Error implements error.
func (e *storageError) Error() string { return "keeping the artifact: " + e.err.Error() }

// Unwrap gives the cause.
func (e *storageError) Unwrap() error { return e.err }

// outcome tells what a person must mend from what another try may.
func outcome(err error, revision string) reconcile.Outcome {
	var terminal interface {
		error
		Terminal() bool
	}
	reason := reasonOf(err)
	if errors.As(err, &terminal) && terminal.Terminal() {
		return reconcile.Stalled{Err: err, Reason: reason, Revision: revision}
	}
	return reconcile.Retry{Err: err, Reason: reason, Revision: revision}
}

func reasonOf(err error) string {
	if reason, ok := reasonOfOCI(err); ok {
		return reason
	}
	if e, ok := errors.AsType[*git.Error](err); ok {
		return string(e.Reason)
	}
	if e, ok := errors.AsType[*artifact.Error](err); ok {
		return string(e.Reason)
	}
	if e, ok := errors.AsType[*secretError](err); ok {
		return e.Reason
	}
	if _, ok := errors.AsType[*storage.FullError](err); ok {
		return storage.FullReason
	}
	if _, ok := errors.AsType[*storageError](err); ok {
		return StorageOperationFailedReason
	}
	return fluxmeta.ReconciliationFailedReason
}
