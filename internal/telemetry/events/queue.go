package events

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/reference"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Capacity is how many events a Queue holds; the oldest give way to new ones.
const Capacity = 10000

const (
	// few events are handed on at once. More in a row come of a change of many
	// objects, whose writes they would delay.
	few = 10
	// slowly the others are handed on while more keep coming,
	slowly = 100 * time.Millisecond
	// and quickly when none has come for so long, or when so many wait. Not at once:
	// the recorder of client-go drops what comes faster than it is written.
	quiet   = 500 * time.Millisecond
	many    = 1000
	quickly = 5 * time.Millisecond
)

// Queue is an event recorder that hands on from a goroutine of its own, in order.
// It has to be started; what it still holds when it is to end, it hands on without
// pauses, but for no longer than Linger. What comes after that is handed on by who
// says it: reconciles that end together with the queue still have something to say.
type Queue struct {
	// To gets the events. It gets references instead of objects.
	To     record.EventRecorder
	Scheme *runtime.Scheme
	Clock  clock.Clock
	// Linger is how long the end may take; an event that is being handed on is
	// waited for in any case.
	Linger time.Duration
	// Dropped is called for each event that gave way; nil for nobody.
	Dropped func()
	// Held is called with how many events wait, each time that it changes; nil for
	// nobody. It must not wait.
	Held func(int)

	mu   sync.Mutex
	held []event
	last time.Time // when the latest came
	row  int       // how many were handed on since it was quiet
	over bool      // nobody takes what is held any more
	wake chan struct{}
	init sync.Once
}

var (
	_ record.EventRecorder           = (*Queue)(nil)
	_ manager.LeaderElectionRunnable = (*Queue)(nil)
)

type event struct {
	about                 *corev1.ObjectReference
	annotations           map[string]string
	kind, reason, message string
}

// Event implements record.EventRecorder.
func (q *Queue) Event(object runtime.Object, kind, reason, message string) {
	q.add(object, nil, kind, reason, message)
}

// Eventf implements record.EventRecorder.
func (q *Queue) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	q.add(object, nil, kind, reason, fmt.Sprintf(format, args...))
}

// AnnotatedEventf implements record.EventRecorder.
func (q *Queue) AnnotatedEventf(object runtime.Object, annotations map[string]string, kind, reason, format string, args ...any) {
	q.add(object, annotations, kind, reason, fmt.Sprintf(format, args...))
}

func (q *Queue) add(object runtime.Object, annotations map[string]string, kind, reason, message string) {
	about, err := reference.GetReference(q.Scheme, object)
	if err != nil {
		return // no kind of ours: nobody could find the event
	}
	e := event{about: about, annotations: annotationsOf(object, annotations), kind: kind, reason: reason, message: message}
	q.mu.Lock()
	if q.over {
		q.mu.Unlock()
		q.hand(e)
		return
	}
	if len(q.held) == Capacity {
		q.held = q.held[1:]
		if q.Dropped != nil {
			q.Dropped()
		}
	}
	now := q.Clock.Now()
	if len(q.held) == 0 && now.Sub(q.last) >= quiet {
		q.row = 0
	}
	q.held, q.last = append(q.held, e), now
	q.tell()
	q.mu.Unlock()
	select {
	case q.woken() <- struct{}{}:
	default: // it knows
	}
}

// annotationsOf an event are also those of the object that are for whoever
// receives events (https://fluxcd.io/flux/components/notification/events/).
func annotationsOf(object runtime.Object, annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	if o, err := meta.Accessor(object); err == nil {
		for k, v := range o.GetAnnotations() {
			if strings.HasPrefix(k, eventv1.Group+"/") {
				if out == nil {
					out = map[string]string{}
				}
				out[k] = v
			}
		}
	}
	return out
}

func (q *Queue) woken() chan struct{} {
	q.init.Do(func() { q.wake = make(chan struct{}, 1) })
	return q.wake
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: it ends together
// with the reconciles, which a manager ends after everything that needs no leader.
func (*Queue) NeedLeaderElection() bool { return true }

// Start hands on until ctx ends.
func (q *Queue) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		e, ok := q.take()
		if !ok {
			select {
			case <-ctx.Done():
			case <-q.woken():
			}
			continue
		}
		q.hand(e)
		q.pause(ctx)
	}
	for until := q.Clock.Now().Add(q.Linger); ; {
		e, ok := q.final(until)
		if !ok {
			return nil
		}
		q.hand(e)
	}
}

func (q *Queue) take() (event, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pop()
}

// final is take until so late; then, or when nothing is held, the queue is over.
func (q *Queue) final(until time.Time) (event, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.Clock.Now().Before(until) {
		if e, ok := q.pop(); ok {
			return e, true
		}
	}
	q.over = true
	return event{}, false
}

// pop is called with the lock held.
func (q *Queue) pop() (event, bool) {
	if len(q.held) == 0 {
		q.held = nil // with what was taken from its front
		return event{}, false
	}
	e := q.held[0]
	q.held[0] = event{}
	q.held = q.held[1:]
	q.row++
	q.tell()
	return e, true
}

// tell is called with the lock held.
func (q *Queue) tell() {
	if q.Held != nil {
		q.Held(len(q.held))
	}
}

func (q *Queue) hand(e event) {
	q.To.AnnotatedEventf(e.about, e.annotations, e.kind, e.reason, "%s", e.message)
}

// pause waits as long as the next event is to stand back.
func (q *Queue) pause(ctx context.Context) {
	q.mu.Lock()
	d := standBack(q.row, len(q.held), q.Clock.Since(q.last))
	q.mu.Unlock()
	if d == 0 {
		return
	}
	t := q.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C():
	}
}

// standBack is how long the next of so many events that are held waits, after so
// many in a row, when the latest came so long ago.
func standBack(row, held int, since time.Duration) time.Duration {
	switch {
	case row < few:
		return 0
	case since < quiet && held <= many:
		return slowly
	default:
		return quickly
	}
}
