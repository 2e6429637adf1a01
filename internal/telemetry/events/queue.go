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
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Capacity is the maximum number of events in a Queue. When it is full, the oldest event is
// dropped.
const Capacity = 10000

const (
	// burst is the number of events that are forwarded without delay. More events in a row result
	// from a change of many objects, and would delay the writes of these objects.
	burst = 10
	// slowInterval is the pause after each further event while new events arrive.
	slowInterval = 100 * time.Millisecond
	// fastInterval is the pause if no event arrived for quietPeriod, or if more than backlog events
	// wait. It is not zero, because the recorder of client-go drops events that arrive faster than
	// it writes them.
	quietPeriod  = 500 * time.Millisecond
	backlog      = 1000
	fastInterval = 5 * time.Millisecond
)

// Queue is an event recorder that forwards events in order, from its own goroutine, which Start
// runs. When the context of Start ends, it forwards the remaining events without pauses, for at
// most DrainTimeout. Later events are forwarded synchronously by their caller: reconciles that end
// together with the queue still record events.
type Queue struct {
	// Recorder receives the events, with references instead of objects.
	Recorder record.EventRecorder
	Scheme   *runtime.Scheme
	// DrainTimeout is the maximum time to forward the remaining events. An event that is being
	// forwarded is not interrupted.
	DrainTimeout time.Duration
	// OnDrop, if not nil, is called for each dropped event.
	OnDrop func()
	// OnLength, if not nil, is called with the number of waiting events whenever it changes. It
	// must not block.
	OnLength func(int)

	mu        sync.Mutex
	waiting   []event
	latest    time.Time // time of the latest event
	forwarded int       // number of events forwarded since the last quiet period
	closed    bool      // Start has returned, or is about to
	wake      chan struct{}
	init      sync.Once
}

var _ manager.LeaderElectionRunnable = (*Queue)(nil)

type event struct {
	ref                   *corev1.ObjectReference
	annotations           map[string]string
	kind, reason, message string
}

// Event implements record.EventRecorder.
func (q *Queue) Event(object runtime.Object, kind, reason, message string) {
	q.AnnotatedEventf(object, nil, kind, reason, "%s", message)
}

// Eventf implements record.EventRecorder.
func (q *Queue) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	q.AnnotatedEventf(object, nil, kind, reason, format, args...)
}

// AnnotatedEventf implements record.EventRecorder.
func (q *Queue) AnnotatedEventf(object runtime.Object, annotations map[string]string, kind, reason, format string,
	args ...any) {
	ref, err := reference.GetReference(q.Scheme, object)
	if err != nil {
		return // the scheme does not have the type, so the event could not reference the object
	}
	e := event{ref: ref, annotations: annotationsOf(object, annotations), kind: kind, reason: reason,
		message: fmt.Sprintf(format, args...)}
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		q.forward(e)
		return
	}
	if len(q.waiting) == Capacity {
		q.waiting = q.waiting[1:]
		if q.OnDrop != nil {
			q.OnDrop()
		}
	}
	if len(q.waiting) == 0 && time.Since(q.latest) >= quietPeriod {
		q.forwarded = 0
	}
	q.waiting, q.latest = append(q.waiting, e), time.Now()
	q.reportLength()
	q.mu.Unlock()
	select {
	case q.wakeup() <- struct{}{}:
	default: // a wakeup is pending
	}
}

// annotationsOf returns the annotations of an event, together with those of the object that are
// meant for event receivers (https://fluxcd.io/flux/components/notification/events/).
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

func (q *Queue) wakeup() chan struct{} {
	q.init.Do(func() { q.wake = make(chan struct{}, 1) })
	return q.wake
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. It is true, so that the queue ends
// together with the reconciles: a manager ends runnables that need no leader before these.
func (*Queue) NeedLeaderElection() bool { return true }

// Start forwards events until ctx ends, and then the remaining ones.
func (q *Queue) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		e, ok := q.next()
		if !ok {
			select {
			case <-ctx.Done():
			case <-q.wakeup():
			}
			continue
		}
		q.forward(e)
		q.pause(ctx)
	}
	for deadline := time.Now().Add(q.DrainTimeout); ; {
		e, ok := q.popUntil(deadline)
		if !ok {
			return nil
		}
		q.forward(e)
	}
}

func (q *Queue) next() (event, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.popLocked()
}

// popUntil returns the next event before a deadline. After the deadline, or if no event is left, it
// closes the queue.
func (q *Queue) popUntil(deadline time.Time) (event, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if time.Now().Before(deadline) {
		if e, ok := q.popLocked(); ok {
			return e, true
		}
	}
	q.closed = true
	return event{}, false
}

// popLocked removes the first event. The caller holds the lock.
func (q *Queue) popLocked() (event, bool) {
	if len(q.waiting) == 0 {
		q.waiting = nil // frees the array, including the removed front
		return event{}, false
	}
	e := q.waiting[0]
	q.waiting[0] = event{}
	q.waiting = q.waiting[1:]
	q.forwarded++
	q.reportLength()
	return e, true
}

// reportLength calls OnLength. The caller holds the lock.
func (q *Queue) reportLength() {
	if q.OnLength != nil {
		q.OnLength(len(q.waiting))
	}
}

func (q *Queue) forward(e event) {
	q.Recorder.AnnotatedEventf(e.ref, e.annotations, e.kind, e.reason, "%s", e.message)
}

// pause waits before the next event, for the time that delay returns.
func (q *Queue) pause(ctx context.Context) {
	q.mu.Lock()
	d := delay(q.forwarded, len(q.waiting), time.Since(q.latest))
	q.mu.Unlock()
	if d == 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// delay returns the pause before the next event. forwarded is the number of events since the last
// quiet period, waiting the number of events in the queue, and since the time since the latest
// event arrived.
func delay(forwarded, waiting int, since time.Duration) time.Duration {
	switch {
	case forwarded < burst:
		return 0
	case since < quietPeriod && waiting <= backlog:
		return slowInterval
	default:
		return fastInterval
	}
}
