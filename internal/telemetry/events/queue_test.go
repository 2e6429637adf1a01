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
	"k8s.io/utils/clock"
)

// notes keeps what it is told, and when.
type notes struct {
	mu    sync.Mutex
	began time.Time
	told  []string
	at    []time.Duration
	with  []map[string]string
	about []runtime.Object
	// hold, when set, is waited for with each event.
	hold chan struct{}
}

func (n *notes) AnnotatedEventf(object runtime.Object, annotations map[string]string, kind, reason, format string, args ...any) {
	if n.hold != nil {
		<-n.hold
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told = append(n.told, fmt.Sprintf("%s %s "+format, append([]any{kind, reason}, args...)...))
	n.at = append(n.at, time.Since(n.began))
	n.with = append(n.with, annotations)
	n.about = append(n.about, object)
}

func (n *notes) Event(object runtime.Object, kind, reason, message string) {
	n.AnnotatedEventf(object, nil, kind, reason, "%s", message)
}

func (n *notes) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	n.AnnotatedEventf(object, nil, kind, reason, format, args...)
}

func (n *notes) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.told)
}

var object = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "u", ResourceVersion: "7",
	Annotations: map[string]string{"event.toolkit.fluxcd.io/branch": "main", "other": "x"}}}

// running starts a queue; stop ends it and waits.
func running(t *testing.T, to *notes, q *Queue) (stop func()) {
	t.Helper()
	to.began = time.Now()
	q.To, q.Scheme, q.Clock = to, scheme.Scheme, clock.RealClock{}
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

func TestWhatIsHandedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, q := &notes{}, &Queue{}
		stop := running(t, to, q)
		q.AnnotatedEventf(object, map[string]string{"apps.ksctl.com/revision": "main@1"}, "Normal", "Done", "%d%% of %s", 100, "it")
		q.Event(object, "Warning", "Failed", "100%")
		q.Eventf(object, "Normal", "Done", "%d", 3)
		synctest.Wait()
		stop()
		if want := []string{"Normal Done 100% of it", "Warning Failed 100%", "Normal Done 3"}; !slices.Equal(to.told, want) {
			t.Errorf("told %q, want %q", to.told, want)
		}
		if got := fmt.Sprint(to.with[0]); got != "map[apps.ksctl.com/revision:main@1 event.toolkit.fluxcd.io/branch:main]" {
			t.Errorf("annotations %s", got)
		}
		ref, ok := to.about[0].(*corev1.ObjectReference)
		if !ok || ref.Kind != "ConfigMap" || ref.Namespace != "team" || ref.Name != "web" || ref.UID != "u" {
			t.Errorf("about %v", to.about[0])
		}
	})
}

func TestManyStandBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, q := &notes{}, &Queue{}
		stop := running(t, to, q)
		defer stop()
		// A change of 200 objects, one each 20 ms.
		for range 200 {
			q.Event(object, "Normal", "Done", "")
			time.Sleep(20 * time.Millisecond)
		}
		if n := to.count(); n < few+30 || n > few+45 {
			t.Errorf("after four seconds of events %d were told, want some %d", n, few+40)
		}
		time.Sleep(2 * time.Second)
		if n := to.count(); n != 200 {
			t.Errorf("two seconds after the last %d were told, want all", n)
		}
		q.Event(object, "Normal", "Done", "")
		synctest.Wait()
		if n := to.count(); n != 201 {
			t.Error("one event after a while has to wait")
		}
	})
}

func TestStandBack(t *testing.T) {
	for _, c := range []struct {
		name      string
		row, held int
		since     time.Duration
		want      time.Duration
	}{
		{"the first", 1, 0, 0, 0},
		{"the last of few", few - 1, 5, 0, 0},
		{"one more", few, 5, 0, slowly},
		{"when it is quiet", few, 5, quiet, quickly},
		{"when many wait", few, many + 1, 0, quickly},
	} {
		if got := standBack(c.row, c.held, c.since); got != c.want {
			t.Errorf("%s waits %s, want %s", c.name, got, c.want)
		}
	}
}

func TestNobodyWaitsForAReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dropped := 0
		to, q := &notes{hold: make(chan struct{})}, &Queue{Dropped: func() { dropped++ }}
		stop := running(t, to, q)
		q.Event(object, "Normal", "Done", "first")
		synctest.Wait() // it is being handed on
		for i := range Capacity + 5 {
			q.Event(object, "Normal", "Done", fmt.Sprint(i))
		}
		if dropped != 5 {
			t.Errorf("%d gave way, want 5", dropped)
		}
		close(to.hold)
		time.Sleep(Capacity * slowly)
		stop()
		if len(to.told) != 1+Capacity || to.told[1] != "Normal Done 5" {
			t.Errorf("%d were told, the second %q", len(to.told), to.told[1])
		}
	})
}

func TestTheEnd(t *testing.T) {
	for _, c := range []struct {
		linger time.Duration
		want   int
	}{{time.Second, 100}, {0, few}} {
		synctest.Test(t, func(t *testing.T) {
			to, q := &notes{}, &Queue{Linger: c.linger}
			stop := running(t, to, q)
			for range 100 {
				q.Event(object, "Normal", "Done", "")
			}
			synctest.Wait()
			stop()
			if len(to.told) != c.want {
				t.Errorf("with %s to go on %d were told, want %d", c.linger, len(to.told), c.want)
			}
			q.Event(object, "Normal", "Done", "late")
			if got := to.told[len(to.told)-1]; got != "Normal Done late" {
				t.Errorf("what is said after the end is not told: the last is %q", got)
			}
		})
	}
}

func TestWhatHasNoKindIsLeftOut(t *testing.T) {
	q := &Queue{Scheme: runtime.NewScheme(), Clock: clock.RealClock{}}
	q.Event(object, "Normal", "Done", "")
	if len(q.held) != 0 {
		t.Error("an event about nothing is held")
	}
}

func TestTee(t *testing.T) {
	a, b := &notes{}, &notes{}
	both := Tee{a, b}
	both.Event(object, "Normal", "Done", "1")
	both.Eventf(object, "Normal", "Done", "%d", 2)
	both.AnnotatedEventf(object, nil, "Normal", "Done", "%d", 3)
	for _, n := range []*notes{a, b} {
		if want := []string{"Normal Done 1", "Normal Done 2", "Normal Done 3"}; !slices.Equal(n.told, want) {
			t.Errorf("told %q", n.told)
		}
	}
}
