// Package repository commits changes of single objects to a branch of a Git repository.
//
// The changes of one Repository are made one after the other. Each is a commit on the tip of the
// branch, pushed without force. A push that was lost to another one is made again on the new tip;
// the object is edited again only if its document is another one there.
package repository

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/ksctl/gitops/internal/restapi/manifests"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

// Options configures a Repository. Client, Open and Branch are required.
type Options struct {
	Client *git.Client
	// Open returns the URL and the current credentials. It is called for each change.
	Open   func(context.Context) (git.Repository, error)
	Branch string
	// Path is the folder of the objects, the root of the repository if empty.
	Path string
	// Attempts is the maximum number of pushes for one change, by default 20.
	Attempts int
	// Clock is the real one by default.
	Clock clock.Clock
}

// Defaults of Options, and the waiting time before another attempt: at random, up to the base,
// which doubles with each attempt up to the maximum.
const (
	defaultAttempts = 20
	backoffBase     = 25 * time.Millisecond
	backoffMax      = 2 * time.Second
)

// maxAdvances bounds the commits for which one checkout is used. Its objects stay on the disk.
const maxAdvances = 200

// Repository is a folder on a branch of a Git repository. It is safe for concurrent use.
type Repository struct {
	options Options
	// queue has one element while the fields below are in use. Goroutines acquire it in order.
	queue chan struct{}
	// checkout has the tip of the branch as of the last call; nil without one. cancel ends its
	// context.
	checkout *git.Checkout
	cancel   context.CancelCauseFunc
	advances int
}

// New returns a Repository. The caller closes it.
func New(o Options) *Repository {
	if o.Attempts <= 0 {
		o.Attempts = defaultAttempts
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	o.Path = path.Clean(strings.TrimPrefix(o.Path, "/"))
	return &Repository{options: o, queue: make(chan struct{}, 1)}
}

// Close removes temporary files, after the change that is being made.
func (r *Repository) Close() error {
	r.queue <- struct{}{}
	defer r.release()
	return r.discard()
}

// acquire waits for the changes before this one.
func (r *Repository) acquire(ctx context.Context) error {
	select {
	case r.queue <- struct{}{}:
		if ctx.Err() == nil {
			return nil
		}
		r.release()
	case <-ctx.Done():
	}
	return fmt.Errorf("waiting for other changes of the repository: %w", context.Cause(ctx))
}

func (r *Repository) release() { <-r.queue }

// Get returns the document of an object on the tip of the branch. The error is a
// *manifests.ConflictError, also if there is no document, or a *git.Error.
func (r *Repository) Get(ctx context.Context, key manifests.Key) (*manifests.Document, error) {
	if err := r.acquire(ctx); err != nil {
		return nil, err
	}
	defer r.release()
	if _, err := r.readTip(ctx); err != nil {
		return nil, err
	}
	return manifests.Find(ctx, r.checkout.FS(), r.options.Path, key)
}

// readTip reads the tip of the branch. It downloads files only if the branch has moved.
func (r *Repository) readTip(ctx context.Context) (*git.Branch, error) {
	at, err := r.options.Open(ctx)
	if err != nil {
		return nil, err
	}
	branch, err := r.options.Client.Branch(ctx, at, r.options.Branch)
	if err != nil {
		return nil, err
	}
	if branch.Tip == "" && branch.Base != "" { // a push would create it, from the default branch
		return nil, &git.Error{Reason: git.BranchNotFound, Message: fmt.Sprintf("the repository has no branch %s: "+
			"create it, or correct the branch of the source or of the controller's --rest-git-branch",
			r.options.Branch)}
	}
	if r.checkout != nil && r.checkout.Commit == branch.Base && r.advances < maxAdvances {
		return branch, nil
	}
	_ = r.discard()
	// The checkout outlives the request, and its context is that of the checkout.
	lasting, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	checkout, err := branch.Checkout(lasting)
	r.checkout, r.cancel = checkout, cancel
	if canceled := !stop(); err != nil || canceled {
		_ = r.discard()
		if err == nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("reading the branch %s: %w", r.options.Branch, err)
	}
	return branch, nil
}

// discard removes the checkout.
func (r *Repository) discard() error {
	var err error
	if r.checkout != nil {
		err = r.checkout.Close()
	}
	if r.cancel != nil {
		r.cancel(context.Canceled)
	}
	r.checkout, r.cancel, r.advances = nil, nil, 0
	return err
}

// advance makes a pushed commit the tip of the checkout.
func (r *Repository) advance(ctx context.Context, commit string) {
	r.advances++
	if r.checkout.Advance(ctx, commit) != nil {
		_ = r.discard()
	}
}

// find returns the document of an object in the checkout, and nil without one.
func (r *Repository) find(ctx context.Context, key manifests.Key) (*manifests.Tree, *manifests.Document, error) {
	tree, err := manifests.Load(ctx, r.checkout.FS(), r.options.Path)
	if e, ok := errors.AsType[*manifests.ConflictError](err); ok {
		e.Key = key
	}
	if err != nil {
		return nil, nil, err
	}
	doc, err := tree.Find(key)
	if e, ok := errors.AsType[*manifests.ConflictError](err); ok && e.NotFound {
		err = nil
	}
	return tree, doc, err
}
