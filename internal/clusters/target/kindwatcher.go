package target

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/live"
)

// definitions are the resources that define kinds.
var definitions = []schema.GroupVersionResource{
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
}

const (
	// notifyDelay is how long changes of definitions are collected before users are notified: one
	// stack often adds many.
	notifyDelay = time.Second
	// unwatchedResetInterval is the interval at which discovery is reset if the definitions can't
	// be watched.
	unwatchedResetInterval = time.Minute
)

// kindWatcher watches the definitions of kinds in a cluster. When they change, it resets discovery
// and notifies the users of the cluster.
type kindWatcher struct {
	client    metadata.Interface
	discovery *engine.ServerDiscovery
	index     *live.Index
	// notifyUsers notifies every user of the cluster.
	notifyUsers func()
	// changed signals that definitions changed, available that the cluster answers, for the first
	// time or again. Both have a buffer of one.
	changed, available chan struct{}
}

func newKindWatcher(cfg *rest.Config, discovery *engine.ServerDiscovery, index *live.Index,
	notifyUsers func()) (*kindWatcher, error) {
	cfg = metadata.ConfigFor(cfg)
	cfg.Timeout = 0 // a timeout would also end watches
	c, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &kindWatcher{client: c, discovery: discovery, index: index, notifyUsers: notifyUsers,
		changed: make(chan struct{}, 1), available: make(chan struct{}, 1)}, nil
}

// run watches until ctx ends. It restarts the watches each time the cluster becomes available, so
// that they do not continue to wait in the backoff of their failed requests.
func (k *kindWatcher) run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-k.available:
	}
	for restart := true; restart; {
		restart = k.watchUntilAvailable(ctx)
	}
}

// watchUntilAvailable watches until the cluster becomes available again and returns true, or until
// ctx ends and returns false.
func (k *kindWatcher) watchUntilAvailable(ctx context.Context) (restart bool) {
	watchCtx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var synced []cache.InformerSynced
	for _, d := range definitions {
		informer := metadatainformer.NewFilteredMetadataInformer(k.client, d, "", 0, cache.Indexers{}, nil).Informer()
		reg, err := k.watch(informer)
		if err != nil {
			continue // the informer was stopped
		}
		synced = append(synced, reg.HasSynced)
		wg.Go(func() { informer.RunWithContext(watchCtx) })
	}
	resetTicker := time.NewTicker(unwatchedResetInterval)
	defer resetTicker.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-k.available:
			return true
		case <-resetTicker.C:
			if slices.ContainsFunc(synced, func(ok cache.InformerSynced) bool { return !ok() }) {
				k.discovery.Invalidate()
				k.notifyUsers() // users that wait for a kind check whether it exists
			}
		case <-k.changed:
			select {
			case <-ctx.Done():
				return false
			case <-time.After(notifyDelay):
			}
			k.discovery.Invalidate()
			k.notifyUsers()
		}
	}
}

// signal sends to a channel with a buffer of one, unless a signal is already pending.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (k *kindWatcher) watch(informer cache.SharedIndexInformer) (cache.ResourceEventHandlerRegistration, error) {
	// The setters fail only after the informer was started.
	//
	// To save memory, keep only the fields that show that a definition changed, and the annotation
	// that marks the end of a streamed list.
	_ = informer.SetTransform(func(o any) (any, error) {
		m, ok := o.(*metav1.PartialObjectMetadata)
		if !ok {
			return o, nil
		}
		m.Labels, m.ManagedFields, m.OwnerReferences = nil, nil, nil
		if m.Annotations[metav1.InitialEventsAnnotationKey] == "" {
			m.Annotations = nil
		}
		return m, nil
	})
	// Errors are ignored here: missing permissions and an unavailable cluster are reported
	// elsewhere.
	_ = informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {})
	return informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, listed bool) {
			if listed { // the definition may have been created after discovery was read
				signal(k.changed)
				return
			}
			k.definitionChanged(o)
		},
		UpdateFunc: func(before, after any) {
			if before.(metav1.Object).GetResourceVersion() != after.(metav1.Object).GetResourceVersion() {
				k.definitionChanged(after)
			}
		},
		DeleteFunc: k.definitionChanged,
	})
}

// definitionChanged handles a definition that was added, changed or deleted.
func (k *kindWatcher) definitionChanged(o any) {
	k.discovery.MarkChanged()
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	if m, ok := o.(metav1.Object); ok {
		// <plural>.<group> or <version>.<group>
		if _, group, ok := strings.Cut(m.GetName(), "."); ok {
			k.index.WakeGroup(group)
		}
	}
	signal(k.changed)
}
