package reconcile

import (
	"errors"
	"reflect"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// outcomes holds every kind of outcome and its effects.
var outcomes = map[string]struct {
	outcome Outcome
	want    outcomeEffects
	// wait is the time until the next reconcile, for an interval of 10m and a
	// retryInterval of 1m.
	wait time.Duration
}{
	"done": {Done{Message: "all well", Revision: "r1"},
		outcomeEffects{ready: "True", reason: fluxmeta.ReconciliationSucceededReason, message: "all well",
			revision: "r1", removeFinalizer: true}, 10 * time.Minute},
	"done with a reason": {Done{Message: "all well", Reason: "RemovedByRequest"},
		outcomeEffects{ready: "True", reason: "RemovedByRequest", message: "all well", removeFinalizer: true},
		10 * time.Minute},
	"waiting for an event": {Waiting{On: "a pod", For: []appsv1.WaitReference{{Kind: "Pod", Name: "a"}},
		Revision: "r1"},
		outcomeEffects{ready: "Unknown", waitsFor: []appsv1.WaitReference{{Kind: "Pod", Name: "a"}},
			reason: fluxmeta.ProgressingReason, message: "a pod", reconciling: fluxmeta.ProgressingReason,
			revision: "r1"}, 10 * time.Minute},
	"waiting with a requeue time": {Waiting{On: "a pod", RequeueAt: noon.Add(3 * time.Second)},
		outcomeEffects{ready: "Unknown", reason: fluxmeta.ProgressingReason, message: "a pod",
			reconciling: fluxmeta.ProgressingReason, requeueAt: noon.Add(3 * time.Second)}, 3 * time.Second},
	"waiting with a requeue time in the past": {Waiting{On: "a pod", RequeueAt: noon.Add(-time.Hour)},
		outcomeEffects{ready: "Unknown", reason: fluxmeta.ProgressingReason, message: "a pod",
			reconciling: fluxmeta.ProgressingReason, requeueAt: noon.Add(-time.Hour)}, time.Millisecond},
	"waiting with a requeue time after the interval": {Waiting{On: "a pod", RequeueAt: noon.Add(time.Hour)},
		outcomeEffects{ready: "Unknown", reason: fluxmeta.ProgressingReason, message: "a pod",
			reconciling: fluxmeta.ProgressingReason, requeueAt: noon.Add(time.Hour)}, 10 * time.Minute},
	"timed out": {Waiting{On: "a pod", TimedOut: true},
		outcomeEffects{ready: "False", reason: appsv1.TimeoutReason, message: "a pod",
			reconciling: fluxmeta.ProgressingReason, warning: true}, 10 * time.Minute},
	"timed out with a reason": {Waiting{On: "a pod", TimedOut: true, Reason: fluxmeta.HealthCheckFailedReason},
		outcomeEffects{ready: "False", reason: fluxmeta.HealthCheckFailedReason, message: "a pod",
			reconciling: fluxmeta.ProgressingReason, warning: true}, 10 * time.Minute},
	"failed": {Retry{Err: errors.New("boom"), Revision: "r1"},
		outcomeEffects{ready: "False", reason: fluxmeta.ReconciliationFailedReason, message: "boom",
			reconciling: fluxmeta.ProgressingWithRetryReason, revision: "r1", warning: true, useRetryInterval: true},
		time.Minute},
	"failed with a wait": {Retry{Err: errors.New("boom"), RequeueAfter: 7 * time.Second, Reason: "X"},
		outcomeEffects{ready: "False", reason: "X", message: "boom", reconciling: fluxmeta.ProgressingWithRetryReason,
			warning: true, requeueAfter: 7 * time.Second}, 7 * time.Second},
	"failed with a wait longer than the interval": {Retry{Err: errors.New("boom"), RequeueAfter: time.Hour},
		outcomeEffects{ready: "False", reason: fluxmeta.ReconciliationFailedReason, message: "boom",
			reconciling: fluxmeta.ProgressingWithRetryReason, warning: true, requeueAfter: time.Hour},
		10 * time.Minute},
	"stalled": {Stalled{Err: errors.New("a typo"), Reason: "InvalidStack", Revision: "r1"},
		outcomeEffects{ready: "False", reason: "InvalidStack", message: "a typo", stalled: true, revision: "r1",
			warning: true}, 10 * time.Minute},
	"stalled with a requeue time": {Stalled{Err: errors.New("a typo"), RequeueAt: noon.Add(time.Second)},
		outcomeEffects{ready: "False", reason: fluxmeta.ReconciliationFailedReason, message: "a typo", stalled: true,
			warning: true, requeueAt: noon.Add(time.Second)}, time.Second},
	"failed with a requeue time before the retryInterval": {
		Retry{Err: errors.New("boom"), RequeueAt: noon.Add(time.Second)},
		outcomeEffects{ready: "False", reason: fluxmeta.ReconciliationFailedReason, message: "boom",
			reconciling: fluxmeta.ProgressingWithRetryReason, warning: true, useRetryInterval: true,
			requeueAt: noon.Add(time.Second)}, time.Second},
	"failed with a requeue time after the retryInterval": {
		Retry{Err: errors.New("boom"), RequeueAt: noon.Add(time.Hour)},
		outcomeEffects{ready: "False", reason: fluxmeta.ReconciliationFailedReason, message: "boom",
			reconciling: fluxmeta.ProgressingWithRetryReason, warning: true, useRetryInterval: true,
			requeueAt: noon.Add(time.Hour)}, time.Minute},
	// The API server rejects a condition without a reason.
	"stalled without a reason": {Stalled{Err: errors.New("a typo")},
		outcomeEffects{ready: "False", reason: fluxmeta.ReconciliationFailedReason, message: "a typo", stalled: true,
			warning: true}, 10 * time.Minute},
}

func TestEffectsOf(t *testing.T) {
	r := &Reconciler[*appsv1.KsctlInstall]{Clock: clocktesting.NewFakePassiveClock(noon), Jitter: noJitter}
	in := &appsv1.KsctlInstall{}
	for name, tc := range outcomes {
		t.Run(name, func(t *testing.T) {
			got := effectsOf(tc.outcome)
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
			if wait := r.requeueResult(in, got).RequeueAfter; wait != tc.wait {
				t.Errorf("next reconcile after %s, want %s", wait, tc.wait)
			}
		})
	}
}

func TestRequeueBy(t *testing.T) {
	wrong, sooner, later := errors.New("wrong"), noon.Add(time.Second), noon.Add(time.Hour)
	for name, tc := range map[string]struct {
		of   Outcome
		at   time.Time
		want Outcome
	}{
		"waiting":            {Waiting{On: "a pod"}, sooner, Waiting{On: "a pod", RequeueAt: sooner}},
		"waiting for longer": {Waiting{RequeueAt: later}, sooner, Waiting{RequeueAt: sooner}},
		"waiting for less":   {Waiting{RequeueAt: sooner}, later, Waiting{RequeueAt: sooner}},
		"failed": {Retry{Err: wrong, RequeueAfter: time.Minute}, sooner,
			Retry{Err: wrong, RequeueAfter: time.Minute, RequeueAt: sooner}},
		"stalled":  {Stalled{Err: wrong}, later, Stalled{Err: wrong, RequeueAt: later}},
		"deferred": {Deferred{RequeueAt: later}, sooner, Deferred{RequeueAt: sooner}},
		"done":     {Done{Message: "x"}, sooner, Done{Message: "x"}},
		"zero time": {Stalled{Err: wrong, RequeueAt: later}, time.Time{},
			Stalled{Err: wrong, RequeueAt: later}},
	} {
		if got := RequeueBy(tc.of, tc.at); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
	}
}

func noJitter(d time.Duration) time.Duration { return d }

func TestEffectsOfUnknownOutcomePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("effectsOf does not panic on an unknown outcome")
		}
	}()
	effectsOf(Deferred{}) // has no effects: nothing is written for it
}

func TestScheduleDefaults(t *testing.T) {
	d := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	for name, tc := range map[string]struct {
		schedule                 appsv1.Schedule
		interval, retry, timeout time.Duration
	}{
		"unset": {appsv1.Schedule{}, DefaultInterval, DefaultRetryInterval, DefaultTimeout},
		"set": {appsv1.Schedule{Interval: d(time.Hour), RetryInterval: d(time.Second), Timeout: d(time.Minute)},
			time.Hour, time.Second, time.Minute},
		// The CRD rejects these; an older CRD may have accepted them.
		"zero": {appsv1.Schedule{Interval: d(0), RetryInterval: d(0), Timeout: d(0)}, DefaultInterval,
			DefaultRetryInterval, DefaultTimeout},
		"negative": {appsv1.Schedule{Interval: d(-1), RetryInterval: d(-1), Timeout: d(-1)}, DefaultInterval,
			DefaultRetryInterval, DefaultTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Interval(&tc.schedule); got != tc.interval {
				t.Errorf("interval %s, want %s", got, tc.interval)
			}
			if got := RetryInterval(&tc.schedule); got != tc.retry {
				t.Errorf("retryInterval %s, want %s", got, tc.retry)
			}
			if got := Timeout(&tc.schedule); got != tc.timeout {
				t.Errorf("timeout %s, want %s", got, tc.timeout)
			}
		})
	}
}

// If the interval is shorter than the retryInterval, it bounds the time until the retry.
func TestRetryIntervalIsBoundedByInterval(t *testing.T) {
	r := &Reconciler[*appsv1.KsctlInstall]{Clock: clocktesting.NewFakePassiveClock(noon), Jitter: noJitter}
	in := &appsv1.KsctlInstall{}
	in.Spec.Interval = &metav1.Duration{Duration: 5 * time.Second}
	if got := r.requeueResult(in, effectsOf(Retry{Err: errors.New("x")})).RequeueAfter; got != 5*time.Second {
		t.Errorf("got %s, want the interval of 5s", got)
	}
}

// Jitter applies to both intervals, so that objects which were created together spread over time.
func TestJitterAppliesToIntervals(t *testing.T) {
	r := &Reconciler[*appsv1.KsctlInstall]{Clock: clocktesting.NewFakePassiveClock(noon),
		Jitter: func(d time.Duration) time.Duration { return d + d/10 }}
	in := &appsv1.KsctlInstall{}
	in.Spec.Interval = &metav1.Duration{Duration: 10 * time.Minute}
	in.Spec.RetryInterval = &metav1.Duration{Duration: time.Minute}
	if got := r.requeueResult(in, effectsOf(Done{})).RequeueAfter; got != 11*time.Minute {
		t.Errorf("next reconcile after %s, want 11m: 10m with jitter", got)
	}
	if got := r.requeueResult(in, effectsOf(Retry{Err: errors.New("x")})).RequeueAfter; got != 66*time.Second {
		t.Errorf("retry after %s, want 66s: 1m with jitter", got)
	}
}

// The description of the next reconcile has no time: the same outcome, later, writes nothing.
func TestNextReconcileOfOutcomes(t *testing.T) {
	boom := errors.New("boom")
	in := noon.Add
	every10m := &appsv1.Schedule{Interval: &metav1.Duration{Duration: 10 * time.Minute},
		RetryInterval: &metav1.Duration{Duration: 20 * time.Second}}
	const checked = " (checked on each change, and within about "
	for name, tc := range map[string]struct {
		outcome  Outcome
		schedule *appsv1.Schedule
		want     string
	}{
		"done":                    {Done{Message: "all well"}, every10m, ""},
		"stalled":                 {Stalled{Err: boom}, every10m, ""},
		"deferred":                {Deferred{}, every10m, ""},
		"waiting":                 {Waiting{On: "a pod"}, every10m, checked + "10m0s)"},
		"waiting for a deadline":  {Waiting{RequeueAt: in(25 * time.Second)}, every10m, checked + "30s)"},
		"a bit later":             {Waiting{RequeueAt: in(11 * time.Second)}, every10m, checked + "30s)"},
		"waiting, due":            {Waiting{RequeueAt: in(-time.Second), TimedOut: true}, every10m, checked + "1s)"},
		"deadline after interval": {Waiting{RequeueAt: in(90 * time.Minute)}, every10m, checked + "10m0s)"},
		"deadline and long interval": {Waiting{RequeueAt: in(90 * time.Minute)}, &appsv1.Schedule{
			Interval: &metav1.Duration{Duration: 24 * time.Hour}}, checked + "2h0m0s)"},
		"failed": {Retry{Err: boom}, every10m, " (retried within about 20s)"},
		"failed, with a backoff": {Retry{Err: boom, RequeueAfter: 45 * time.Second}, every10m,
			" (retried within about 1m0s)"},
		"failed, other matter": {Retry{Err: boom, RequeueAt: in(time.Second)}, every10m,
			" (retried within about 1s)"},
		"failed, by default": {Retry{Err: boom}, &appsv1.Schedule{}, " (retried within about 1m0s)"},
		"retries are too rare": {Retry{Err: boom}, &appsv1.Schedule{
			Interval: &metav1.Duration{Duration: 5 * time.Second}}, " (retried within about 5s)"},
	} {
		if got := nextReconcile(tc.outcome, tc.schedule, noon); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
