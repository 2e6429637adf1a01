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
)

// Kinds that may be named as a source.
var Kinds = []string{sourcev1.GitRepositoryKind, sourcev1.OCIRepositoryKind, sourcev1.BucketKind, sourcev1.ExternalArtifactKind, KsctlSourceKind}

// Served tells which kinds a cluster serves.
type Served interface {
	// Serves is true when the cluster serves a kind, so that it can be watched; the
	// error says why that is not known.
	Serves(ctx context.Context, gk schema.GroupKind) (bool, error)
	// Settling is true while an answer may be out of date.
	Settling() bool
}

// Watches watches each kind of source from the moment that the cluster
// serves it: Flux may be installed later, or never. One goroutine asks at a time.
type Watches struct {
	cluster Served
	// watch begins to watch a kind; wake is called when other kinds are served than before.
	watch func(kind string, object client.Object) error
	wake  func(ctx context.Context)
	// news has room for one: that something changed says all.
	news chan struct{}

	watched, served map[string]bool
}

// NewWatches returns what calls watch for each kind once the cluster serves it, and wake
// whenever the cluster serves other kinds than before.
func NewWatches(cluster Served, watch func(kind string, object client.Object) error, wake func(ctx context.Context)) *Watches {
	return &Watches{cluster: cluster, watch: watch, wake: wake, news: make(chan struct{}, 1), watched: map[string]bool{}, served: map[string]bool{}}
}

// What is served lags behind the event that tells of it: it is asked for again every
// settlingStep until it has settled, and after unknownStep when it could not be told.
const (
	settlingStep = 250 * time.Millisecond
	unknownStep  = 5 * time.Second
)

// Changed takes note that a definition of a source changed. It does not wait.
func (s *Watches) Changed() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// Start implements manager.Runnable: it asks when something changed, until ctx ends.
func (s *Watches) Start(ctx context.Context) error {
	for {
		var again <-chan time.Time
		// Before it is asked: what settles meanwhile may not be in the answer.
		settling := s.cluster.Settling()
		switch err := s.Ask(ctx); {
		case settling:
			again = time.After(settlingStep)
		case err != nil:
			again = time.After(unknownStep)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.news:
		case <-again:
		}
	}
}

// Ask watches what is served now and not watched yet, and wakes who may have
// waited for it. The error is also logged.
func (s *Watches) Ask(ctx context.Context) error {
	var errs []error
	other := false
	for _, kind := range Kinds {
		object, gvk, _ := New(kind)
		serves, err := s.cluster.Serves(ctx, gvk.GroupKind())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		other = other || serves != s.served[kind]
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
		log.FromContext(ctx).Error(err, "source kinds not watched")
	}
	if other {
		s.wake(ctx)
	}
	return err
}

// ArtifactChanged lets events of a source through that carry another artifact,
// and all while there is none: they may say another reason why.
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
