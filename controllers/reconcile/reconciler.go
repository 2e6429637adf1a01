package reconcile

import (
	"context"
	"errors"
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
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// Object is a kind that the skeleton reconciles.
type Object interface {
	client.Object
	CommonStatus() *appsv1.CommonStatus
	Schedule() *appsv1.Schedule
}

// Steps are what one kind does. They may change the status of the object that
// they are given, which the skeleton writes once, when they return.
type Steps[T Object] interface {
	// Reconcile takes the next possible step towards the spec. It never waits.
	Reconcile(ctx context.Context, req *Request[T]) Outcome
	// Finalize takes the next possible step towards owning nothing. The object
	// may go when it returns Done.
	Finalize(ctx context.Context, req *Request[T]) Outcome
	// Forget drops what is kept in memory of an object that is gone, or whose
	// status was changed by somebody else.
	Forget(key types.NamespacedName)
}

// Request is one reconcile of one object.
type Request[T Object] struct {
	// Object is a copy. Its status may be changed.
	Object T
	// Requested is true when a person asked for this reconcile and has no answer yet.
	Requested bool
	// Persist writes the status now, with what is being done as the message of its
	// conditions; with "" they stay as they are. It is for what must be recorded before it is done; the outcome is
	// written without it.
	Persist func(ctx context.Context, doing string) error
	// Event records what happened to the object.
	Event func(kind, reason, message string)
}

// Metrics are what the skeleton records of each object.
type Metrics interface {
	// Took records how long a reconcile took that began then.
	Took(kind string, key types.NamespacedName, start time.Time)
	// Stands records how an object stands.
	Stands(kind string, o Object)
	// Forget drops everything of an object that is gone.
	Forget(kind string, key types.NamespacedName)
}

// Reconciler runs the steps of one kind.
type Reconciler[T Object] struct {
	// Client reads from the cache and writes to the API server; Reader reads
	// from the API server.
	Client client.Client
	Reader client.Reader
	// New returns an empty object of the kind.
	New   func() T
	Kind  string
	Steps Steps[T]
	// Events and Metrics of the controller.
	Events  record.EventRecorder
	Metrics Metrics
	Clock   clock.PassiveClock
	// FieldOwner of status and finalizer writes.
	FieldOwner string
	// Selector restricts the objects that are reconciled; nil: all that the cache has.
	Selector predicate.Predicate
	// Jitter spreads intervals, so that objects made together part.
	Jitter func(time.Duration) time.Duration

	memory memory[T]
}

// Defaults of a schedule.
const (
	DefaultInterval      = 10 * time.Minute
	DefaultRetryInterval = time.Minute
	DefaultTimeout       = 5 * time.Minute
)

// Interval is the longest time until an object is verified again.
func Interval(s *appsv1.Schedule) time.Duration { return duration(s.Interval, DefaultInterval) }

// RetryInterval is the time until a failed attempt is repeated.
func RetryInterval(s *appsv1.Schedule) time.Duration {
	return duration(s.RetryInterval, DefaultRetryInterval)
}

// Timeout is how long a wave may take.
func Timeout(s *appsv1.Schedule) time.Duration { return duration(s.Timeout, DefaultTimeout) }

func duration(d *metav1.Duration, fallback time.Duration) time.Duration {
	if d == nil || d.Duration <= 0 {
		return fallback
	}
	return d.Duration
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler[T]) Reconcile(ctx context.Context, q ctrl.Request) (ctrl.Result, error) {
	// First, for the cache may get it meanwhile, and then it is forgotten.
	ours, written := r.memory.recall(q.NamespacedName)
	obj := r.New()
	// Not a copy of the cache's: what is changed is one, made below.
	if err := r.Client.Get(ctx, q.NamespacedName, obj, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(q.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, err
	}
	if r.memory.hasEnded(q.NamespacedName, obj.GetUID()) {
		return ctrl.Result{}, nil
	}
	if !r.selects(obj) { // any more: what was asked for before it left comes still
		r.forget(q.NamespacedName)
		return ctrl.Result{}, nil
	}
	if r.memory.cached(q.NamespacedName, obj); written && newerThan(ours, obj) {
		obj = ours
	}
	deleting := !obj.GetDeletionTimestamp().IsZero()
	if deleting && !controllerutil.ContainsFinalizer(obj, appsv1.Finalizer) {
		r.Metrics.Forget(r.Kind, q.NamespacedName) // it goes at others' pace
		return ctrl.Result{}, nil
	}
	start := r.Clock.Now()
	defer func() {
		if !r.memory.hasEnded(q.NamespacedName, obj.GetUID()) {
			r.Metrics.Took(r.Kind, q.NamespacedName, start)
		}
	}()
	// Also when nothing is written later: a new process has no metrics yet.
	r.Metrics.Stands(r.Kind, obj)

	switch {
	case !deleting && obj.Schedule().Suspend:
		return ctrl.Result{}, nil
	case !deleting && !controllerutil.ContainsFinalizer(obj, appsv1.Finalizer):
		var err error
		if obj, err = r.setFinalizers(ctx, obj, slices.Concat(obj.GetFinalizers(), []string{appsv1.Finalizer})); err != nil {
			return requeue(err)
		}
		r.memory.keep(q.NamespacedName, obj)
	}
	return r.run(ctx, q.NamespacedName, obj, deleting)
}

// run does the kind's steps and writes their outcome.
func (r *Reconciler[T]) run(ctx context.Context, key types.NamespacedName, before T, deleting bool) (ctrl.Result, error) {
	after := before.DeepCopyObject().(T)
	asked, isAsked := after.GetAnnotations()[appsv1.RequestedAtAnnotation]
	requested := isAsked && asked != "" && asked != after.CommonStatus().LastHandledReconcileAt
	req := &Request[T]{Object: after, Requested: requested}
	req.Event = func(kind, reason, message string) { r.Events.Event(before, kind, reason, trim(message)) }
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
		return ctrl.Result{}, err // the process ends: nothing said now would hold
	}
	if d, ok := out.(Deferred); ok {
		return r.next(after, verdict{requeueAt: d.Until}), nil
	}
	v := judge(out)
	if deleting && v.removeFinalizer {
		return r.release(ctx, key, before)
	}
	if isAsked {
		after.CommonStatus().LastHandledReconcileAt = asked
	}
	setConditions(after.CommonStatus(), v, after.GetGeneration(), metav1.NewTime(r.Clock.Now()))
	if wait := r.tooSoon(key, before, after, requested); wait > 0 {
		next := r.next(after, v) // what is waited for may be due before the status is
		if wait < next.RequeueAfter {
			next = ctrl.Result{RequeueAfter: wait, Priority: ptr.To(handler.LowPriority)} // others have more to say
		}
		return next, nil
	}
	if v.minor && !requested && r.memory.yield(key) {
		return ctrl.Result{RequeueAfter: time.Millisecond, Priority: ptr.To(handler.LowPriority)}, nil
	}
	stored, wrote, err := r.writeStatus(ctx, before, after)
	if err != nil {
		return r.statusFailed(key, err)
	}
	r.Metrics.Stands(r.Kind, stored)
	if wrote {
		r.memory.keep(key, stored)
		r.memory.wrote(key, r.Clock.Now())
		r.announce(before, stored, v)
	}
	r.memory.resume(key)
	return r.next(after, v), nil
}

func (r *Reconciler[T]) statusFailed(key types.NamespacedName, err error) (ctrl.Result, error) {
	var conflict *ConflictError
	if errors.As(err, &conflict) || apierrors.IsNotFound(err) {
		// What is in memory was planned on a status that is no more.
		r.memory.drop(key)
		r.Steps.Forget(key)
	}
	return requeue(err)
}

// requeue makes conflicts a quiet retry.
func requeue(err error) (ctrl.Result, error) {
	var conflict *ConflictError
	if errors.As(err, &conflict) || apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: 100 * time.Millisecond}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// next says when to look again.
func (r *Reconciler[T]) next(o T, v verdict) ctrl.Result {
	interval := r.Jitter(Interval(o.Schedule()))
	switch {
	case v.atRetryInterval:
		interval = min(interval, r.Jitter(RetryInterval(o.Schedule())))
	case v.requeueAfter > 0:
		interval = min(interval, v.requeueAfter)
	}
	if !v.requeueAt.IsZero() {
		interval = min(interval, max(v.requeueAt.Sub(r.Clock.Now()), time.Millisecond))
	}
	return ctrl.Result{RequeueAfter: interval, Priority: ptr.To(0)} // else it would keep that of having stood back
}

// announce records one event, when the outcome is another one than before.
func (r *Reconciler[T]) announce(before, after T, v verdict) {
	b, a := readyOf(before.CommonStatus()), readyOf(after.CommonStatus())
	progress := a.Status == metav1.ConditionUnknown // its messages change with each step
	if b.Status == a.Status && b.Reason == a.Reason && (progress || b.Message == a.Message) {
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
	r.Events.AnnotatedEventf(after, ann, kind, v.reason, "%s", trim(v.message))
}

func (r *Reconciler[T]) forget(key types.NamespacedName) {
	r.memory.drop(key)
	r.memory.resume(key)
	r.Steps.Forget(key)
	r.Metrics.Forget(r.Kind, key)
}
