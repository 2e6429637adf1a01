package storage

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// sweepInterval is the interval between sweeps. The finalizer of a deleted object removes its
// artifacts; the Sweeper handles objects whose finalizer a user removed, and artifacts that another
// process left.
const sweepInterval = 10 * time.Minute

// Sweeper removes artifacts of owners that do not exist.
type Sweeper struct {
	Space *Space
	// Owners lists the objects that may have artifacts.
	Owners func(context.Context) ([]types.NamespacedName, error)
}

// NeedLeaderElection returns true: only the leader stores artifacts.
func (s *Sweeper) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable: it sweeps until ctx is done.
func (s *Sweeper) Start(ctx context.Context) error {
	wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
		if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "failed to remove artifacts of deleted objects", "space", s.Space.name)
		}
	}, sweepInterval)
	return nil
}

// sweep removes the artifacts of owners that do not exist. It reads the disk before it lists the
// owners, so that an owner that is created meanwhile keeps its artifacts.
func (s *Sweeper) sweep(ctx context.Context) error {
	stored, err := s.Space.storedOwners()
	if err != nil || len(stored) == 0 {
		return err
	}
	owners, err := s.Owners(ctx)
	if err != nil {
		return err
	}
	exists := map[types.NamespacedName]bool{}
	for _, owner := range owners {
		exists[owner] = true
	}
	var errs []error
	for _, owner := range stored {
		if !exists[owner] {
			errs = append(errs, s.Space.Remove(owner))
		}
	}
	return errors.Join(errs...)
}

// storedOwners returns the owners with artifacts on disk.
func (s *Space) storedOwners() ([]types.NamespacedName, error) {
	namespaces, err := fs.ReadDir(s.root.FS(), s.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []types.NamespacedName
	for _, namespace := range namespaces {
		names, nerr := fs.ReadDir(s.root.FS(), path.Join(s.name, namespace.Name()))
		err = errors.Join(err, nerr)
		for _, name := range names {
			all = append(all, types.NamespacedName{Namespace: namespace.Name(), Name: name.Name()})
		}
	}
	return all, err
}
