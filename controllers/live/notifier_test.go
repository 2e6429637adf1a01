package live

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A subscriber that hangs holds up no one who marks, and is told once of what
// was marked many times meanwhile.
func TestMarkingNeverWaits(t *testing.T) {
	n := newNotifier(&sync.Mutex{})
	entered, release := make(chan string, 100), make(chan struct{})
	n.subscribe(func(owner string) {
		entered <- owner
		<-release
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.run(ctx)
	}()
	n.mark("a")
	if got := next(t, entered); got != "a" {
		t.Fatalf("told of %q", got)
	}
	for range 1000 {
		n.mark("b", "", "a")
	}
	close(release)
	if first, second := next(t, entered), next(t, entered); first != "a" || second != "b" {
		t.Errorf("told of %q and %q", first, second)
	}
	n.mark("last")
	if got := next(t, entered); got != "last" {
		t.Errorf("told of %q: what was marked many times is told once", got)
	}
	cancel()
	<-ended
}

// gate is a lock that a bubble sees somebody wait for.
type gate chan struct{}

func (g gate) Lock()   { g <- struct{}{} }
func (g gate) Unlock() { <-g }

// A change that marks an owner more than once tells it once.
func TestAChangeIsToldAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changing := make(gate, 1)
		n := newNotifier(changing)
		var told []string
		n.subscribe(func(owner string) { told = append(told, owner) })
		go n.run(t.Context())
		changing.Lock()
		n.mark("a")
		synctest.Wait()
		n.mark("a", "b")
		synctest.Wait()
		if len(told) > 0 {
			t.Errorf("told %v while there was more to mark", told)
		}
		changing.Unlock()
		synctest.Wait()
		if !slices.Equal(told, []string{"a", "b"}) {
			t.Errorf("told %v, want each once", told)
		}
	})
}

func TestUnsubscribe(t *testing.T) {
	n := newNotifier(&sync.Mutex{})
	told := make(chan string, 10)
	unsubscribe := n.subscribe(func(string) { t.Error("told after unsubscribing") })
	n.subscribe(func(owner string) { told <- owner })
	unsubscribe()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.run(ctx)
	}()
	n.mark("a")
	next(t, told)
	cancel()
	<-ended
}

func next(t *testing.T, c <-chan string) string {
	t.Helper()
	select {
	case s := <-c:
		return s
	case <-time.After(time.Minute):
		t.Fatal("nothing was told")
		return ""
	}
}

// What only has new words to say is told a turn later, and not at all to an
// owner who was told of something else meanwhile.
func TestNewWordsAreToldLater(t *testing.T) {
	ix, _ := idle(t)
	rv := 0
	hear := func(ready Readiness, message string) {
		rv++
		ix.put(Object{Ref: testRef, UID: uid1, Version: "v1", ResourceVersion: strconv.Itoa(rv), Mark: Mark{Owner: testOwner, ID: testRef.ID()}, Ready: ready, Message: message}, "v1", nil)
	}
	for _, s := range []struct {
		name string
		do   func()
		want int
	}{
		{"a new object is told of at once", func() { hear(InProgress, "0 of 3") }, 1},
		{"new words are not", func() { hear(InProgress, "1 of 3") }, 0},
		{"nor at the next turn", ix.tidyOnce, 0},
		{"but at the one after it", ix.tidyOnce, 1},
		{"once", ix.tidyOnce, 0},
		{"new words", func() { hear(InProgress, "2 of 3") }, 0},
		{"that waited for a turn", ix.tidyOnce, 0},
		{"go with what matters", func() { hear(Current, "3 of 3") }, 1},
		{"so that nothing is left to tell", ix.tidyOnce, 0},
		{"words of what is ready", func() { hear(Current, "all 3") }, 0},
		{"are nobody's business", ix.tidyOnce, 0},
		{"now", ix.tidyOnce, 0},
		{"or later", ix.tidyOnce, 0},
	} {
		s.do()
		if owners, _ := ix.notify.take(); len(owners) != s.want {
			t.Errorf("%s: told %q, want %d", s.name, owners, s.want)
		}
	}
}
