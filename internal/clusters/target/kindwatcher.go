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

// definitions bring kinds.
var definitions = []schema.GroupVersionResource{
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
}

const (
	// toldWithin is how long changes of kinds are gathered before users are told: one stack
	// brings many.
	toldWithin = time.Second
	// unseenReset is how often it is asked anew what a cluster serves where definitions may
	// not be watched.
	unseenReset = time.Minute
)

// kinds notices what a cluster serves from now on, or no more.
type kinds struct {
	client metadata.Interface
	served *engine.ServerDiscovery
	index  *live.Index
	// tell tells everybody who uses the cluster.
	tell func()
	// changed and opened have room for one word.
	changed, opened chan struct{}
}

func newKinds(cfg *rest.Config, served *engine.ServerDiscovery, index *live.Index, tell func()) (*kinds, error) {
	cfg = metadata.ConfigFor(cfg)
	cfg.Timeout = 0 // it would end the watches, too
	c, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &kinds{client: c, served: served, index: index, tell: tell, changed: make(chan struct{}, 1), opened: make(chan struct{}, 1)}, nil
}

// run watches until ctx ends, anew each time that the cluster answers again: what was waited
// for in vain is not waited for any longer.
func (k *kinds) run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-k.opened:
	}
	for again := true; again; {
		again = k.session(ctx)
	}
}

// session watches until the cluster answers again, and is true then; false: ctx has ended.
func (k *kinds) session(ctx context.Context) (again bool) {
	within, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var synced []cache.InformerSynced
	for _, d := range definitions {
		informer := metadatainformer.NewFilteredMetadataInformer(k.client, d, "", 0, cache.Indexers{}, nil).Informer()
		reg, err := k.watch(informer)
		if err != nil {
			continue // it was stopped
		}
		synced = append(synced, reg.HasSynced)
		wg.Go(func() { informer.RunWithContext(within) })
	}
	unseen := time.NewTicker(unseenReset)
	defer unseen.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-k.opened:
			return true
		case <-unseen.C:
			if slices.ContainsFunc(synced, func(ok cache.InformerSynced) bool { return !ok() }) {
				k.served.Reset()
				k.tell() // who waits for a kind looks whether it is there
			}
		case <-k.changed:
			if !sleep(ctx, toldWithin) {
				return false
			}
			k.served.Reset()
			k.tell()
		}
	}
}

// open says that the cluster answers, for the first time or again.
func (k *kinds) open() { signal(k.opened) }

// signal leaves a word in a channel that has room for one: more would say the same.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (k *kinds) watch(informer cache.SharedIndexInformer) (cache.ResourceEventHandlerRegistration, error) {
	// Of many definitions nothing is needed but that they changed, and where their list ends.
	err := informer.SetTransform(func(o any) (any, error) {
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
	if err != nil {
		return nil, err
	}
	// That it may not be watched, or does not answer, is said elsewhere.
	if err := informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
		return nil, err
	}
	return informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, listed bool) {
			if listed { // it may have come after the cluster was asked what it serves
				signal(k.changed)
				return
			}
			k.note(o)
		},
		UpdateFunc: func(before, after any) {
			if b, ok := before.(metav1.Object); !ok || b.GetResourceVersion() != after.(metav1.Object).GetResourceVersion() {
				k.note(after)
			}
		},
		DeleteFunc: k.note,
	})
}

// note takes note of a definition that changed.
func (k *kinds) note(o any) {
	k.served.Changed()
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

// sleep is false when ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
