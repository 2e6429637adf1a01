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

// A subscriber that hangs does not block mark. It is notified once of an owner that was marked many
// times meanwhile.
func TestMarkDoesNotBlockOnSlowSubscriber(t *testing.T) {
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
	if got := receive(t, entered); got != "a" {
		t.Fatalf("notified of %q, want a", got)
	}
	for range 1000 {
		n.mark("b", "", "a")
	}
	close(release)
	if first, second := receive(t, entered), receive(t, entered); first != "a" || second != "b" {
		t.Errorf("notified of %q and %q, want a and b", first, second)
	}
	n.mark("last")
	if got := receive(t, entered); got != "last" {
		t.Errorf("notified of %q, want last: an owner that was marked many times is notified once", got)
	}
	cancel()
	<-ended
}

// channelLock is a lock on which a goroutine of a synctest bubble blocks durably.
type channelLock chan struct{}

func (g channelLock) Lock()   { g <- struct{}{} }
func (g channelLock) Unlock() { <-g }

// A change that marks an owner several times notifies it once.
func TestNotifierBatchesMarksOfOneChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changing := make(channelLock, 1)
		n := newNotifier(changing)
		var notified []string
		n.subscribe(func(owner string) { notified = append(notified, owner) })
		go n.run(t.Context())
		changing.Lock()
		n.mark("a")
		synctest.Wait()
		n.mark("a", "b")
		synctest.Wait()
		if len(notified) > 0 {
			t.Errorf("notified %v while the change was still marking owners", notified)
		}
		changing.Unlock()
		synctest.Wait()
		if !slices.Equal(notified, []string{"a", "b"}) {
			t.Errorf("notified %v, want each owner once", notified)
		}
	})
}

func TestUnsubscribeStopsNotifications(t *testing.T) {
	n := newNotifier(&sync.Mutex{})
	notified := make(chan string, 10)
	unsubscribe := n.subscribe(func(string) { t.Error("notified after unsubscribe") })
	n.subscribe(func(owner string) { notified <- owner })
	unsubscribe()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.run(ctx)
	}()
	n.mark("a")
	receive(t, notified)
	cancel()
	<-ended
}

func receive(t *testing.T, c <-chan string) string {
	t.Helper()
	select {
	case s := <-c:
		return s
	case <-time.After(time.Minute):
		t.Fatal("no notification within a minute")
		return ""
	}
}

// A change of only the message notifies the owner at the second flush, unless the owner was
// notified of another change meanwhile.
func TestMessageChangesAreNotifiedWithDelay(t *testing.T) {
	ix, _ := idleIndex(t)
	rv := 0
	observe := func(ready Readiness, message string) {
		rv++
		ix.put(Object{Ref: testRef, UID: uid1, Version: "v1", ResourceVersion: strconv.Itoa(rv),
			Mark: Mark{Owner: testOwner, ID: testRef.ID()}, Readiness: ready, Message: message}, "v1", nil)
	}
	for _, s := range []struct {
		name string
		do   func()
		want int
	}{
		{"a new object notifies immediately", func() { observe(InProgress, "0 of 3") }, 1},
		{"a new message does not", func() { observe(InProgress, "1 of 3") }, 0},
		{"nor does the next flush", ix.cleanup, 0},
		{"the second flush notifies", ix.cleanup, 1},
		{"the third does not", ix.cleanup, 0},
		{"another new message does not notify", func() { observe(InProgress, "2 of 3") }, 0},
		{"nor does the next flush", ix.cleanup, 0},
		{"a new readiness notifies immediately", func() { observe(Current, "3 of 3") }, 1},
		{"which clears the delayed message", ix.cleanup, 0},
		{"a new message of a ready object does not notify", func() { observe(Current, "all 3") }, 0},
		{"not at the first flush", ix.cleanup, 0},
		{"not at the second flush", ix.cleanup, 0},
		{"not at the third flush", ix.cleanup, 0},
	} {
		s.do()
		if owners, _ := ix.notify.drain(); len(owners) != s.want {
			t.Errorf("%s: notified %q, want %d owners", s.name, owners, s.want)
		}
	}
}
