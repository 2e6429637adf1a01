package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// Object is an object that a Reconciler can reconcile.
type Object interface {
	client.Object
	CommonStatus() *appsv1.CommonStatus
	Schedule() *appsv1.Schedule
}

// Steps implements the reconciliation of one kind. Its methods may change the status of
// Request.Object; the Reconciler writes that status once, after they return.
type Steps[T Object] interface {
	// Reconcile takes the next possible step towards the spec. It must not block until
	// something happens in the cluster; it returns Waiting instead.
	Reconcile(ctx context.Context, req *Request[T]) Outcome
	// Finalize takes the next possible step of the teardown. When it returns Done, the
	// Reconciler removes the finalizer.
	Finalize(ctx context.Context, req *Request[T]) Outcome
	// Forget drops in-memory state of an object that is gone, or whose status was changed by
	// another writer.
	Forget(key types.NamespacedName)
}

// Request is one reconcile of one object.
type Request[T Object] struct {
	// Object is a copy. The steps may change its status.
	Object T
	// Requested is true if the requestedAt annotation has a value that is not handled yet.
	Requested bool
	// Persist writes the status immediately, with doing as the message of the conditions; ""
	// leaves the conditions unchanged. It is for facts that must be recorded before they are
	// acted on. The outcome is written without it.
	Persist func(ctx context.Context, doing string) error
	// Event records an event on the object.
	Event func(kind, reason, message string)
}

// Metrics records the metrics of the reconciled objects.
type Metrics interface {
	// RecordDuration records the duration of a reconcile that started at start.
	RecordDuration(kind string, key types.NamespacedName, start time.Time)
	// RecordStatus records the status of an object.
	RecordStatus(kind string, o Object)
	// Forget drops all metrics of an object that is gone.
	Forget(kind string, key types.NamespacedName)
}

// Reconciler reconciles the objects of one kind with its Steps.
type Reconciler[T Object] struct {
	// Client reads from the cache and writes to the API server; Reader reads
	// from the API server.
	Client client.Client
	Reader client.Reader
	// New returns an empty object of the kind, NewList an empty list. Only Requests and ByIndex
	// need NewList.
	New     func() T
	NewList func() client.ObjectList
	Kind    string
	Steps   Steps[T]
	// Events and Metrics of the controller.
	Events  record.EventRecorder
	Metrics Metrics
	Clock   clock.PassiveClock
	// Options of the controller.
	Options controller.Options
	// FieldOwner is the field manager of status and finalizer writes.
	FieldOwner string
	// MayWait reports whether a change of the status may be written a second after the previous
	// write, as progress is. It may be nil.
	MayWait func(before, after T) bool
	// Selector restricts the objects that are reconciled; nil: all objects in the cache.
	Selector predicate.Predicate
	// Jitter randomizes intervals, so that objects which were created together are not
	// reconciled together forever.
	Jitter func(time.Duration) time.Duration

	recent recentWrites[T]
}

// Defaults of a schedule.
const (
	DefaultInterval      = 10 * time.Minute
	DefaultRetryInterval = time.Minute
	DefaultTimeout       = 5 * time.Minute
)

// Interval returns the maximum time between two reconciles of an object.
func Interval(s *appsv1.Schedule) time.Duration { return durationOr(s.Interval, DefaultInterval) }

// RetryInterval returns the time until a failed reconcile is retried.
func RetryInterval(s *appsv1.Schedule) time.Duration {
	return durationOr(s.RetryInterval, DefaultRetryInterval)
}

// Timeout returns the maximum duration of a wave, or of a reconcile of a kind without waves.
func Timeout(s *appsv1.Schedule) time.Duration { return durationOr(s.Timeout, DefaultTimeout) }

// WithTimeout returns a context that ends after the timeout of an object, for kinds without waves:
// the timeout bounds each of their reconciles.
func WithTimeout(ctx context.Context, s *appsv1.Schedule) (context.Context, context.CancelFunc) {
	timeout := Timeout(s)
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not finished within the timeout of %s", timeout))
}

func durationOr(d *metav1.Duration, fallback time.Duration) time.Duration {
	if d == nil || d.Duration <= 0 {
		return fallback
	}
	return d.Duration
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler[T]) Reconcile(ctx context.Context, ctrlReq ctrl.Request) (ctrl.Result, error) {
	key := ctrlReq.NamespacedName
	// Before the read: when the cache gets our write, the in-memory copy is dropped.
	lastWritten, written := r.recent.get(key)
	obj := r.New()
	// The object is shared with the cache. runSteps makes a copy before it changes anything.
	if err := r.Client.Get(ctx, key, obj, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(key)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, err
	}
	if r.recent.isFinalized(key, obj.GetUID()) {
		return ctrl.Result{}, nil
	}
	if !r.selects(obj) { // its labels changed; requests from before the change are still queued
		r.forget(key)
		return ctrl.Result{}, nil
	}
	if r.recent.dropIfCached(key, obj); written && isNewer(lastWritten, obj) {
		obj = lastWritten
	}
	deleting := !obj.GetDeletionTimestamp().IsZero()
	if deleting && !controllerutil.ContainsFinalizer(obj, appsv1.Finalizer) {
		r.Metrics.Forget(r.Kind, key) // only finalizers of others remain
		return ctrl.Result{}, nil
	}
	start := r.Clock.Now()
	defer func() {
		if !r.recent.isFinalized(key, obj.GetUID()) {
			r.Metrics.RecordDuration(r.Kind, key, start)
		}
	}()
	// Also without a status write later: a new process has no metrics yet.
	r.Metrics.RecordStatus(r.Kind, obj)

	switch {
	case !deleting && obj.Schedule().Suspend:
		return ctrl.Result{}, nil
	case !deleting && !controllerutil.ContainsFinalizer(obj, appsv1.Finalizer):
		var err error
		if obj, err = r.setFinalizers(ctx, obj,
			slices.Concat(obj.GetFinalizers(), []string{appsv1.Finalizer})); err != nil {
			return resultForError(err)
		}
		r.recent.keep(key, obj)
	}
	return r.runSteps(ctx, key, obj, deleting)
}

// runSteps calls the steps of the kind and writes their outcome.
func (r *Reconciler[T]) runSteps(ctx context.Context, key types.NamespacedName, before T,
	deleting bool) (ctrl.Result, error) {
	after := before.DeepCopyObject().(T)
	requestedAt, hasRequest := after.GetAnnotations()[appsv1.RequestedAtAnnotation]
	requested := hasRequest && requestedAt != "" && requestedAt != after.CommonStatus().LastHandledReconcileAt
	req := &Request[T]{Object: after, Requested: requested}
	req.Event = func(kind, reason, message string) {
		r.Events.Event(before, kind, reason, Truncate(message, maxMessageBytes))
	}
	req.Persist = func(ctx context.Context, doing string) (err error) {
		before, err = r.persist(ctx, key, before, after, doing)
		return err
	}
	step := r.Steps.Reconcile
	if deleting {
		step = r.Steps.Finalize
	}
	out := step(ctx, req)
	if err := ctx.Err(); err != nil {
		return ctrl.Result{}, err // the process is shutting down: the outcome is not reliable
	}
	if d, ok := out.(Deferred); ok {
		return r.requeueResult(after, outcomeEffects{requeueAt: d.RequeueAt}), nil
	}
	effects := effectsOf(out)
	if deleting && effects.removeFinalizer {
		return r.removeFinalizer(ctx, key, before)
	}
	if hasRequest {
		after.CommonStatus().LastHandledReconcileAt = requestedAt
	}
	effects.next = nextReconcile(out, after.Schedule(), r.Clock.Now())
	setConditions(after.CommonStatus(), effects, after.GetGeneration(), metav1.NewTime(r.Clock.Now()))
	if wait := r.progressDelay(key, before, after, requested); wait > 0 {
		next := r.requeueResult(after, effects) // the requeue of the outcome may be due before the status write
		if wait < next.RequeueAfter {
			// progress is less urgent than other objects
			next = ctrl.Result{RequeueAfter: wait, Priority: ptr.To(handler.LowPriority)}
		}
		return next, nil
	}
	if effects.revisionOnly && !requested && r.recent.yield(key) {
		return ctrl.Result{RequeueAfter: time.Millisecond, Priority: ptr.To(handler.LowPriority)}, nil
	}
	stored, wrote, err := r.writeStatus(ctx, before, after)
	if err != nil {
		return r.handleStatusError(key, err)
	}
	r.Metrics.RecordStatus(r.Kind, stored)
	if wrote {
		r.recent.recordWrite(key, stored, r.Clock.Now())
		r.emitEvent(before, stored, effects)
	}
	r.recent.resetYield(key)
	return r.requeueResult(after, effects), nil
}

func (r *Reconciler[T]) handleStatusError(key types.NamespacedName, err error) (ctrl.Result, error) {
	if _, conflict := errors.AsType[*ConflictError](err); conflict || apierrors.IsNotFound(err) {
		// The in-memory state is based on an outdated status.
		r.recent.drop(key)
		r.Steps.Forget(key)
	}
	return resultForError(err)
}

// resultForError returns a short requeue without an error for a conflict, nothing for an object
// that is gone, and the error otherwise.
func resultForError(err error) (ctrl.Result, error) {
	if _, conflict := errors.AsType[*ConflictError](err); conflict || apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: 100 * time.Millisecond}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// requeueResult returns when to reconcile the object again.
func (r *Reconciler[T]) requeueResult(o T, v outcomeEffects) ctrl.Result {
	interval := r.Jitter(Interval(o.Schedule()))
	switch {
	case v.useRetryInterval:
		interval = min(interval, r.Jitter(RetryInterval(o.Schedule())))
	case v.requeueAfter > 0:
		interval = min(interval, v.requeueAfter)
	}
	if !v.requeueAt.IsZero() {
		interval = min(interval, max(v.requeueAt.Sub(r.Clock.Now()), time.Millisecond))
	}
	return ctrl.Result{RequeueAfter: interval, Priority: ptr.To(0)} // resets the low priority of a deferred write
}

// nextReconcile describes when an object that waits or has failed is reconciled again. It names no
// time, which would change with each reconcile, so that each would write the status.
func nextReconcile(o Outcome, s *appsv1.Schedule, now time.Time) string {
	within := Interval(s)
	var text string
	var at time.Time
	switch o := o.(type) {
	case Waiting:
		text, at = "checked on each change, and", o.RequeueAt
	case Retry:
		text, at = "retried", o.RequeueAt
		if o.RequeueAfter > 0 {
			within = min(within, roundUp(o.RequeueAfter))
		} else {
			within = min(within, RetryInterval(s))
		}
	default:
		return ""
	}
	if !at.IsZero() {
		within = min(within, roundUp(at.Sub(now)))
	}
	return fmt.Sprintf(" (%s within about %s)", text, within)
}

// roundUp rounds a delay up, so that the description of a delay that elapses rarely changes.
func roundUp(d time.Duration) time.Duration {
	for _, step := range []time.Duration{time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute,
		10 * time.Minute, 30 * time.Minute} {
		if d <= step {
			return step
		}
	}
	return d.Truncate(time.Hour) + time.Hour
}

// emitEvent records an event if the outcome changed.
func (r *Reconciler[T]) emitEvent(before, after T, v outcomeEffects) {
	b, a := readyCondition(before.CommonStatus()), readyCondition(after.CommonStatus())
	progress := a.Status == metav1.ConditionUnknown // the message changes with each step
	sameMessage := QuotedMessage(before.CommonStatus().Conditions) == QuotedMessage(after.CommonStatus().Conditions)
	if b.Status == a.Status && b.Reason == a.Reason && (progress || sameMessage) {
		return
	}
	kind := corev1.EventTypeNormal
	if v.warning {
		kind = corev1.EventTypeWarning
	}
	ann := map[string]string{}
	if v.revision != "" {
		ann[appsv1.GroupVersion.Group+"/"+eventv1.MetaRevisionKey] = v.revision
	}
	r.Events.AnnotatedEventf(after, ann, kind, v.reason, "%s", Truncate(v.message, maxMessageBytes))
}

func (r *Reconciler[T]) forget(key types.NamespacedName) {
	r.recent.drop(key)
	r.recent.resetYield(key)
	r.Steps.Forget(key)
	r.Metrics.Forget(r.Kind, key)
}
