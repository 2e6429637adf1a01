package events

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// fakeRecorder records events, and when they were received.
type fakeRecorder struct {
	mu          sync.Mutex
	began       time.Time
	events      []string
	at          []time.Duration
	annotations []map[string]string
	objects     []runtime.Object
	// hold, if set, blocks each event until the channel is closed.
	block chan struct{}
}

func (n *fakeRecorder) AnnotatedEventf(object runtime.Object, annotations map[string]string,
	kind, reason, format string, args ...any) {
	if n.block != nil {
		<-n.block
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, fmt.Sprintf("%s %s "+format, append([]any{kind, reason}, args...)...))
	n.at = append(n.at, time.Since(n.began))
	n.annotations = append(n.annotations, annotations)
	n.objects = append(n.objects, object)
}

func (n *fakeRecorder) Event(object runtime.Object, kind, reason, message string) {
	n.AnnotatedEventf(object, nil, kind, reason, "%s", message)
}

func (n *fakeRecorder) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	n.AnnotatedEventf(object, nil, kind, reason, format, args...)
}

func (n *fakeRecorder) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.events)
}

var object = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "u",
	ResourceVersion: "7",
	Annotations:     map[string]string{"event.toolkit.fluxcd.io/branch": "main", "other": "x"}}}

// startQueue starts a queue; stop ends it and waits.
func startQueue(t *testing.T, to *fakeRecorder, q *Queue) (stop func()) {
	t.Helper()
	to.began = time.Now()
	q.Recorder, q.Scheme = to, scheme.Scheme
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- q.Start(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestQueueForwardsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, q := &fakeRecorder{}, &Queue{}
		stop := startQueue(t, to, q)
		q.AnnotatedEventf(object, map[string]string{"apps.ksctl.com/revision": "main@1"}, "Normal", "Done",
			"%d%% of %s", 100, "it")
		q.Event(object, "Warning", "Failed", "100%")
		q.Eventf(object, "Normal", "Done", "%d", 3)
		synctest.Wait()
		stop()
		if want := []string{"Normal Done 100% of it", "Warning Failed 100%", "Normal Done 3"}; !slices.Equal(to.events,
			want) {
			t.Errorf("got events %q, want %q", to.events, want)
		}
		if got := fmt.Sprint(to.annotations[0]); got != "map[apps.ksctl.com/revision:main@1 "+
			"event.toolkit.fluxcd.io/branch:main]" {
			t.Errorf("got annotations %s", got)
		}
		ref, ok := to.objects[0].(*corev1.ObjectReference)
		if !ok || ref.Kind != "ConfigMap" || ref.Namespace != "team" || ref.Name != "web" || ref.UID != "u" {
			t.Errorf("got reference %v", to.objects[0])
		}
	})
}

func TestQueueDelaysManyEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, q := &fakeRecorder{}, &Queue{}
		stop := startQueue(t, to, q)
		defer stop()
		// A change of 200 objects, one every 20 ms.
		for range 200 {
			q.Event(object, "Normal", "Done", "")
			time.Sleep(20 * time.Millisecond)
		}
		if n := to.count(); n < burst+30 || n > burst+45 {
			t.Errorf("got %d events after four seconds, want about %d", n, burst+40)
		}
		time.Sleep(2 * time.Second)
		if n := to.count(); n != 200 {
			t.Errorf("got %d events two seconds after the last one, want all 200", n)
		}
		q.Event(object, "Normal", "Done", "")
		synctest.Wait()
		if n := to.count(); n != 201 {
			t.Error("an event after a quiet period was delayed")
		}
	})
}

func TestDelay(t *testing.T) {
	for _, c := range []struct {
		name        string
		row, queued int
		since       time.Duration
		want        time.Duration
	}{
		{"first event", 1, 0, 0, 0},
		{"last of the burst", burst - 1, 5, 0, 0},
		{"first after the burst", burst, 5, 0, slowInterval},
		{"after a quiet period", burst, 5, quietPeriod, fastInterval},
		{"with a backlog", burst, backlog + 1, 0, fastInterval},
	} {
		if got := delay(c.row, c.queued, c.since); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestQueueDropsOldestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dropped := 0
		to, q := &fakeRecorder{block: make(chan struct{})}, &Queue{OnDrop: func() { dropped++ }}
		stop := startQueue(t, to, q)
		q.Event(object, "Normal", "Done", "first")
		synctest.Wait() // the event is being forwarded
		for i := range Capacity + 5 {
			q.Event(object, "Normal", "Done", fmt.Sprint(i))
		}
		if dropped != 5 {
			t.Errorf("dropped %d events, want 5", dropped)
		}
		close(to.block)
		time.Sleep(Capacity * slowInterval)
		stop()
		if len(to.events) != 1+Capacity || to.events[1] != "Normal Done 5" {
			t.Errorf("got %d events, the second %q", len(to.events), to.events[1])
		}
	})
}

func TestQueueDrainsAtEnd(t *testing.T) {
	for _, c := range []struct {
		linger time.Duration
		want   int
	}{{time.Second, 100}, {0, burst}} {
		synctest.Test(t, func(t *testing.T) {
			to, q := &fakeRecorder{}, &Queue{DrainTimeout: c.linger}
			stop := startQueue(t, to, q)
			for range 100 {
				q.Event(object, "Normal", "Done", "")
			}
			synctest.Wait()
			stop()
			if len(to.events) != c.want {
				t.Errorf("with a drain timeout of %s got %d events, want %d", c.linger, len(to.events), c.want)
			}
			q.Event(object, "Normal", "Done", "late")
			if got := to.events[len(to.events)-1]; got != "Normal Done late" {
				t.Errorf("the event after the end was not forwarded: the last one is %q", got)
			}
		})
	}
}

func TestQueueIgnoresObjectsWithoutKind(t *testing.T) {
	q := &Queue{Scheme: runtime.NewScheme()}
	q.Event(object, "Normal", "Done", "")
	if len(q.waiting) != 0 {
		t.Error("an event for an object without a registered type was queued")
	}
}

func TestTeeForwardsToAllRecorders(t *testing.T) {
	a, b := &fakeRecorder{}, &fakeRecorder{}
	both := Tee{a, b}
	both.Event(object, "Normal", "Done", "1")
	both.Eventf(object, "Normal", "Done", "%d", 2)
	both.AnnotatedEventf(object, nil, "Normal", "Done", "%d", 3)
	for _, n := range []*fakeRecorder{a, b} {
		if want := []string{"Normal Done 1", "Normal Done 2", "Normal Done 3"}; !slices.Equal(n.events, want) {
			t.Errorf("got events %q", n.events)
		}
	}
}
