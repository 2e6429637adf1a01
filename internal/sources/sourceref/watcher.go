package sourceref

import (
	"context"
	"errors"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// Kinds are the kinds of sources.
var Kinds = []string{sourcev1.GitRepositoryKind, sourcev1.OCIRepositoryKind, sourcev1.BucketKind,
	sourcev1.ExternalArtifactKind, appsv1.KsctlSourceKind}

// Discovery reports which kinds a cluster serves.
type Discovery interface {
	// Serves reports whether the cluster serves a kind, so that it can be watched. An error means
	// that this is unknown.
	Serves(ctx context.Context, gk schema.GroupKind) (bool, error)
	// Settling reports whether the result of Serves may be out of date.
	Settling() bool
}

// Watcher starts a watch for each kind of source once the cluster serves the kind: Flux may be
// installed later, or never. It must not be used by more than one goroutine at a time, except for
// DefinitionChanged.
type Watcher struct {
	discovery Discovery
	// watch starts the watch of a kind. wake is called when the set of served kinds has changed.
	watch func(kind string, object client.Object) error
	wake  func(ctx context.Context)
	// changed signals that a definition changed. Its buffer of one is enough: it carries no data.
	changed chan struct{}

	watched, served map[string]bool
}

// NewWatcher returns a Watcher that calls watch for each kind once the cluster serves it, and wake
// whenever the set of served kinds has changed.
func NewWatcher(discovery Discovery, watch func(kind string, object client.Object) error,
	wake func(ctx context.Context)) *Watcher {
	return &Watcher{discovery: discovery, watch: watch, wake: wake, changed: make(chan struct{}, 1),
		watched: map[string]bool{}, served: map[string]bool{}}
}

// Discovery lags behind the event of a definition: Watcher syncs every settlingInterval until it
// has settled, and retryInterval after an error.
const (
	settlingInterval = 250 * time.Millisecond
	retryInterval    = 5 * time.Second
)

// DefinitionChanged signals that the definition of a kind of source changed. It does not block.
func (s *Watcher) DefinitionChanged() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Start implements manager.Runnable: it syncs after each change, until ctx is done.
func (s *Watcher) Start(ctx context.Context) error {
	for {
		var retry <-chan time.Time
		// Read before Sync: if discovery settles during Sync, Sync may have used the older result.
		settling := s.discovery.Settling()
		switch err := s.Sync(ctx); {
		case settling:
			retry = time.After(settlingInterval)
		case err != nil:
			retry = time.After(retryInterval)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
		case <-retry:
		}
	}
}

// Sync starts the watches of kinds that are served but not watched yet, and calls wake if the set
// of served kinds has changed. It also logs the error.
func (s *Watcher) Sync(ctx context.Context) error {
	var errs []error
	servedChanged := false
	for _, kind := range Kinds {
		object, gvk, _ := NewObject(kind)
		serves, err := s.discovery.Serves(ctx, gvk.GroupKind())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		servedChanged = servedChanged || serves != s.served[kind]
		s.served[kind] = serves
		if s.watched[kind] || !serves {
			continue
		}
		if err := s.watch(kind, object); err != nil {
			errs = append(errs, err)
			continue
		}
		s.watched[kind] = true
	}
	err := errors.Join(errs...)
	if err != nil && ctx.Err() == nil {
		log.FromContext(ctx).Error(err, "failed to watch source kinds")
	}
	if servedChanged {
		s.wake(ctx)
	}
	return err
}

// ArtifactChanged is a predicate for updates of a source: it passes updates that change the
// artifact, and all updates while there is no artifact, because the cause of that may have changed.
func ArtifactChanged(e event.UpdateEvent) bool {
	before, after := artifactOf(e.ObjectOld), artifactOf(e.ObjectNew)
	if before == nil || after == nil {
		return true
	}
	return before.Digest != after.Digest || before.Revision != after.Revision || before.URL != after.URL
}

func artifactOf(o client.Object) *fluxmeta.Artifact {
	if s, ok := o.(interface{ GetArtifact() *fluxmeta.Artifact }); ok {
		return s.GetArtifact()
	}
	return nil
}
