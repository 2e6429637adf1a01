package sourceref

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// fakeCluster is a Discovery into which a test installs Flux. It records the calls of the Watcher.
type fakeCluster struct {
	mu       sync.Mutex
	groups   []string
	unknown  string // a group whose discovery fails
	settling bool
	asked    int
	watched  []string
	woken    int
	watchErr error
}

func (f *fakeCluster) Serves(_ context.Context, gk schema.GroupKind) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if gk.Group == f.unknown {
		return false, errors.New("no answer")
	}
	return slices.Contains(f.groups, gk.Group), nil
}

func (f *fakeCluster) Settling() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.settling
}

// update changes the cluster.
func (f *fakeCluster) update(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeCluster) watch(kind string, _ client.Object) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watchErr == nil {
		f.watched = append(f.watched, kind)
	}
	return f.watchErr
}

// calls returns the number of calls of Serves so far.
func (f *fakeCluster) calls() int {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// startWatcher starts a Watcher inside a synctest bubble. stop waits until it has ended.
func (f *fakeCluster) startWatcher(t *testing.T) (s *Watcher, stop func()) {
	t.Helper()
	s = NewWatcher(f, f.watch, func(context.Context) { f.update(func() { f.woken++ }) })
	_ = s.Sync(t.Context()) // as Register does
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	synctest.Wait()
	return s, func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func (f *fakeCluster) expect(t *testing.T, why string, woken int, watched ...string) {
	t.Helper()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.watched, watched) || f.woken != woken {
		t.Errorf("%s: woken %d times, watched %s", why, f.woken, strings.Join(f.watched, ", "))
	}
}

var fluxKinds = []string{"GitRepository", "OCIRepository", "Bucket", "ExternalArtifact"}

func TestWatcherWatchesKindsOnceServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeCluster{groups: []string{appsv1.GroupVersion.Group}}
		s, stop := f.startWatcher(t)
		defer stop()
		f.expect(t, "after the start", 1, "KsctlSource")
		asked := f.calls()
		time.Sleep(time.Hour) // of synctest's fake clock
		if f.calls() != asked {
			t.Error("discovery is called although nothing changed")
		}
		f.update(func() { f.settling = true })
		s.DefinitionChanged()
		f.expect(t, "before Flux is served", 1, "KsctlSource")
		f.update(func() { f.groups = append(f.groups, sourcev1.GroupVersion.Group) })
		time.Sleep(settlingInterval)
		all := append([]string{"KsctlSource"}, fluxKinds...)
		f.expect(t, "after Flux is served", 2, all...)
		time.Sleep(10 * settlingInterval)
		f.expect(t, "while discovery is settling", 2, all...)
		f.update(func() { f.settling = false })
		time.Sleep(settlingInterval)
		asked = f.calls()
		time.Sleep(time.Hour)
		if f.calls() != asked {
			t.Error("discovery is called although it has settled")
		}
		f.update(func() { f.groups = f.groups[:1] })
		s.DefinitionChanged()
		f.expect(t, "after Flux was removed", 3, all...)
		f.update(func() { f.groups = append(f.groups, sourcev1.GroupVersion.Group) })
		s.DefinitionChanged()
		f.expect(t, "after Flux was installed again, the watches stay", 4, all...)
	})
}

// A failed discovery is not a change, and is retried.
func TestWatcherRetriesAfterErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeCluster{groups: []string{appsv1.GroupVersion.Group, sourcev1.GroupVersion.Group},
			unknown: sourcev1.GroupVersion.Group}
		s, stop := f.startWatcher(t)
		f.expect(t, "discovery of one group fails", 1, "KsctlSource")
		f.update(func() { f.unknown = "" })
		time.Sleep(retryInterval)
		all := append([]string{"KsctlSource"}, fluxKinds...)
		f.expect(t, "discovery succeeds", 2, all...)
		f.update(func() { f.unknown = sourcev1.GroupVersion.Group })
		s.DefinitionChanged()
		f.expect(t, "discovery fails again", 2, all...)
		stop()
	})
	synctest.Test(t, func(t *testing.T) {
		f := &fakeCluster{groups: []string{appsv1.GroupVersion.Group}, watchErr: errors.New("no watch")}
		_, stop := f.startWatcher(t)
		f.update(func() { f.watchErr = nil })
		time.Sleep(retryInterval)
		f.expect(t, "a failed watch is retried", 1, "KsctlSource")
		stop()
	})
}

// DefinitionChanged never blocks: it runs in the goroutine that delivers events.
func TestDefinitionChangedDoesNotBlock(*testing.T) {
	s := NewWatcher(&fakeCluster{}, nil, nil)
	for range 3 {
		s.DefinitionChanged()
	}
}
