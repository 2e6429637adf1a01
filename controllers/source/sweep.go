package source

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// sweepEvery is how often artifacts of sources that are gone are looked for.
// Sources that are deleted clean up after themselves: this is for those whose
// finalizer somebody took away, and for what another process left.
const sweepEvery = 10 * time.Minute

// sweeper removes artifacts of sources that do not exist.
type sweeper struct {
	reader  client.Reader
	storage *Storage
	every   time.Duration
}

// NeedLeaderElection keeps replicas that do not fetch from sweeping.
func (s *sweeper) NeedLeaderElection() bool { return true }

// Start sweeps until ctx ends. It is a runnable of a controller manager.
func (s *sweeper) Start(ctx context.Context) error {
	t := time.NewTicker(s.every)
	defer t.Stop()
	for {
		if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "artifacts of sources that are gone were not removed")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// sweep removes what no source uses. What is on disk is read first: a source
// that is made meanwhile keeps what it stores.
func (s *sweeper) sweep(ctx context.Context) error {
	folders, err := s.storage.folders()
	if err != nil || len(folders) == 0 {
		return err
	}
	var list appsv1.KsctlSourceList
	if err := s.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	known := map[types.NamespacedName]bool{}
	for i := range list.Items {
		known[client.ObjectKeyFromObject(&list.Items[i])] = true
	}
	var errs []error
	for _, source := range folders {
		if !known[source] {
			errs = append(errs, s.storage.Remove(source))
		}
	}
	return errors.Join(errs...)
}

// folders are the sources that artifacts are kept of.
func (s *Storage) folders() ([]types.NamespacedName, error) {
	namespaces, err := fs.ReadDir(s.root.FS(), space)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []types.NamespacedName
	for _, namespace := range namespaces {
		names, nerr := fs.ReadDir(s.root.FS(), path.Join(space, namespace.Name()))
		err = errors.Join(err, nerr)
		for _, name := range names {
			all = append(all, types.NamespacedName{Namespace: namespace.Name(), Name: name.Name()})
		}
	}
	return all, err
}
