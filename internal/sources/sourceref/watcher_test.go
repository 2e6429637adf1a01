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

// flux is a cluster into which Flux comes, and what its sources' watcher did.
type flux struct {
	mu       sync.Mutex
	groups   []string
	unknown  string // a group that does not answer
	settling bool
	asked    int
	watched  []string
	woken    int
	refuses  error
}

func (f *flux) Serves(_ context.Context, gk schema.GroupKind) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if gk.Group == f.unknown {
		return false, errors.New("no answer")
	}
	return slices.Contains(f.groups, gk.Group), nil
}

func (f *flux) Settling() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.settling
}

// becomes changes the cluster.
func (f *flux) becomes(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *flux) watch(kind string, _ client.Object) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuses == nil {
		f.watched = append(f.watched, kind)
	}
	return f.refuses
}

// asks is how often it was asked so far.
func (f *flux) asks() int {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// running starts the watcher of sources in a bubble; stop waits until it ended.
func (f *flux) running(t *testing.T) (s *Watches, stop func()) {
	t.Helper()
	s = NewWatches(f, f.watch, func(context.Context) { f.becomes(func() { f.woken++ }) })
	_ = s.Ask(t.Context()) // as Register does
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

func (f *flux) expect(t *testing.T, why string, woken int, watched ...string) {
	t.Helper()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.watched, watched) || f.woken != woken {
		t.Errorf("%s: woken %d times, watched %s", why, f.woken, strings.Join(f.watched, ", "))
	}
}

var fluxKinds = []string{"GitRepository", "OCIRepository", "Bucket", "ExternalArtifact"}

func TestSourcesAreWatchedOnceTheyAreServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flux{groups: []string{appsv1.GroupVersion.Group}}
		s, stop := f.running(t)
		defer stop()
		f.expect(t, "at the start", 1, "KsctlSource")
		asked := f.asks()
		time.Sleep(time.Hour) // the bubble's time
		if f.asks() != asked {
			t.Error("it is asked though nothing changed")
		}
		f.becomes(func() { f.settling = true })
		s.Changed()
		f.expect(t, "it is not served yet", 1, "KsctlSource")
		f.becomes(func() { f.groups = append(f.groups, sourcev1.GroupVersion.Group) })
		time.Sleep(settlingStep)
		all := append([]string{"KsctlSource"}, fluxKinds...)
		f.expect(t, "it is served", 2, all...)
		time.Sleep(10 * settlingStep)
		f.expect(t, "nothing more came", 2, all...)
		f.becomes(func() { f.settling = false })
		time.Sleep(settlingStep)
		asked = f.asks()
		time.Sleep(time.Hour)
		if f.asks() != asked {
			t.Error("it is asked though it has settled")
		}
		f.becomes(func() { f.groups = f.groups[:1] })
		s.Changed()
		f.expect(t, "Flux went", 3, all...)
		f.becomes(func() { f.groups = append(f.groups, sourcev1.GroupVersion.Group) })
		s.Changed()
		f.expect(t, "Flux is back, and watched still", 4, all...)
	})
}

// What is not known is no change, and asked for again by itself.
func TestSourcesOfWhichNothingIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flux{groups: []string{appsv1.GroupVersion.Group, sourcev1.GroupVersion.Group}, unknown: sourcev1.GroupVersion.Group}
		s, stop := f.running(t)
		f.expect(t, "one group does not answer", 1, "KsctlSource")
		f.becomes(func() { f.unknown = "" })
		time.Sleep(unknownStep)
		all := append([]string{"KsctlSource"}, fluxKinds...)
		f.expect(t, "it answers", 2, all...)
		f.becomes(func() { f.unknown = sourcev1.GroupVersion.Group })
		s.Changed()
		f.expect(t, "it does not any more", 2, all...)
		stop()
	})
	synctest.Test(t, func(t *testing.T) {
		f := &flux{groups: []string{appsv1.GroupVersion.Group}, refuses: errors.New("no watch")}
		_, stop := f.running(t)
		f.becomes(func() { f.refuses = nil })
		time.Sleep(unknownStep)
		f.expect(t, "a watch that failed is begun again", 1, "KsctlSource")
		stop()
	})
}

// Who tells of a change never waits: it is the goroutine that events come by.
func TestWhoTellsOfAChangeDoesNotWait(*testing.T) {
	s := NewWatches(&flux{}, nil, nil)
	for range 3 {
		s.Changed()
	}
}
