package storage

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// SweepEvery is how often artifacts of owners that are gone are looked for.
// Objects that are deleted clean up after themselves: this is for those whose
// finalizer somebody took away, and for what another process left.
const SweepEvery = 10 * time.Minute

// Sweeper removes artifacts of owners that do not exist.
type Sweeper struct {
	Space *Space
	// Owners lists those that may have artifacts.
	Owners func(context.Context) ([]types.NamespacedName, error)
	Every  time.Duration
}

// NeedLeaderElection keeps replicas that store nothing from sweeping.
func (s *Sweeper) NeedLeaderElection() bool { return true }

// Start sweeps until ctx ends. It is a runnable of a controller manager.
func (s *Sweeper) Start(ctx context.Context) error {
	t := time.NewTicker(s.Every)
	defer t.Stop()
	for {
		if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "artifacts of objects that are gone were not removed", "space", s.Space.name)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// sweep removes what no owner uses. What is on disk is read first: an owner
// that is made meanwhile keeps what it stores.
func (s *Sweeper) sweep(ctx context.Context) error {
	folders, err := s.Space.folders()
	if err != nil || len(folders) == 0 {
		return err
	}
	owners, err := s.Owners(ctx)
	if err != nil {
		return err
	}
	known := map[types.NamespacedName]bool{}
	for _, owner := range owners {
		known[owner] = true
	}
	var errs []error
	for _, owner := range folders {
		if !known[owner] {
			errs = append(errs, s.Space.Remove(owner))
		}
	}
	return errors.Join(errs...)
}

// folders are the owners that artifacts are kept of.
func (s *Space) folders() ([]types.NamespacedName, error) {
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
