package reconcile

import (
	"errors"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// outcomes is every outcome that the skeleton knows, and what becomes of it.
var outcomes = map[string]struct {
	outcome Outcome
	want    verdict
	// wait is when the object is looked at again, for an interval of 10m and a
	// retryInterval of 1m.
	wait time.Duration
}{
	"done": {Done{Message: "all well", Revision: "r1"},
		verdict{ready: "True", reason: fluxmeta.ReconciliationSucceededReason, message: "all well", revision: "r1", removeFinalizer: true}, 10 * time.Minute},
	"done for a reason": {Done{Message: "all well", Reason: "RemovedByRequest"},
		verdict{ready: "True", reason: "RemovedByRequest", message: "all well", removeFinalizer: true}, 10 * time.Minute},
	"waiting for an event": {Waiting{On: "a pod", Revision: "r1"},
		verdict{ready: "Unknown", reason: fluxmeta.ProgressingReason, message: "a pod", reconciling: fluxmeta.ProgressingReason, revision: "r1"}, 10 * time.Minute},
	"waiting until": {Waiting{On: "a pod", Until: noon.Add(3 * time.Second)},
		verdict{ready: "Unknown", reason: fluxmeta.ProgressingReason, message: "a pod", reconciling: fluxmeta.ProgressingReason, requeueAt: noon.Add(3 * time.Second)}, 3 * time.Second},
	"waiting until a time that is past": {Waiting{On: "a pod", Until: noon.Add(-time.Hour)},
		verdict{ready: "Unknown", reason: fluxmeta.ProgressingReason, message: "a pod", reconciling: fluxmeta.ProgressingReason, requeueAt: noon.Add(-time.Hour)}, time.Millisecond},
	"waiting until after the interval": {Waiting{On: "a pod", Until: noon.Add(time.Hour)},
		verdict{ready: "Unknown", reason: fluxmeta.ProgressingReason, message: "a pod", reconciling: fluxmeta.ProgressingReason, requeueAt: noon.Add(time.Hour)}, 10 * time.Minute},
	"waiting too long": {Waiting{On: "a pod", Late: true},
		verdict{ready: "False", reason: TimeoutReason, message: "a pod", reconciling: fluxmeta.ProgressingReason, warning: true}, 10 * time.Minute},
	"waiting too long, for a reason": {Waiting{On: "a pod", Late: true, Reason: fluxmeta.HealthCheckFailedReason},
		verdict{ready: "False", reason: fluxmeta.HealthCheckFailedReason, message: "a pod", reconciling: fluxmeta.ProgressingReason, warning: true}, 10 * time.Minute},
	"failed": {Retry{Err: errors.New("boom"), Revision: "r1"},
		verdict{ready: "False", reason: fluxmeta.ReconciliationFailedReason, message: "boom", reconciling: fluxmeta.ProgressingWithRetryReason, revision: "r1", warning: true, atRetryInterval: true}, time.Minute},
	"failed, and known when it may work": {Retry{Err: errors.New("boom"), After: 7 * time.Second, Reason: "X"},
		verdict{ready: "False", reason: "X", message: "boom", reconciling: fluxmeta.ProgressingWithRetryReason, warning: true, requeueAfter: 7 * time.Second}, 7 * time.Second},
	"failed, to be tried after the interval": {Retry{Err: errors.New("boom"), After: time.Hour},
		verdict{ready: "False", reason: fluxmeta.ReconciliationFailedReason, message: "boom", reconciling: fluxmeta.ProgressingWithRetryReason, warning: true, requeueAfter: time.Hour}, 10 * time.Minute},
	"stalled": {Stalled{Err: errors.New("a typo"), Reason: "InvalidStack", Revision: "r1"},
		verdict{ready: "False", reason: "InvalidStack", message: "a typo", stalled: true, revision: "r1", warning: true}, 10 * time.Minute},
	"stalled, with something else to look at": {Stalled{Err: errors.New("a typo"), Until: noon.Add(time.Second)},
		verdict{ready: "False", reason: fluxmeta.ReconciliationFailedReason, message: "a typo", stalled: true, warning: true, requeueAt: noon.Add(time.Second)}, time.Second},
	"failed, with something else to look at sooner": {Retry{Err: errors.New("boom"), Until: noon.Add(time.Second)},
		verdict{ready: "False", reason: fluxmeta.ReconciliationFailedReason, message: "boom", reconciling: fluxmeta.ProgressingWithRetryReason, warning: true, atRetryInterval: true, requeueAt: noon.Add(time.Second)}, time.Second},
	"failed, with something else to look at later": {Retry{Err: errors.New("boom"), Until: noon.Add(time.Hour)},
		verdict{ready: "False", reason: fluxmeta.ReconciliationFailedReason, message: "boom", reconciling: fluxmeta.ProgressingWithRetryReason, warning: true, atRetryInterval: true, requeueAt: noon.Add(time.Hour)}, time.Minute},
	// A condition without a reason is refused by the API server, for ever.
	"stalled for no reason": {Stalled{Err: errors.New("a typo")},
		verdict{ready: "False", reason: fluxmeta.ReconciliationFailedReason, message: "a typo", stalled: true, warning: true}, 10 * time.Minute},
}

func TestJudge(t *testing.T) {
	r := &Reconciler[*appsv1.KsctlInstall]{Clock: clocktesting.NewFakePassiveClock(noon), Jitter: same}
	in := &appsv1.KsctlInstall{}
	for name, tc := range outcomes {
		t.Run(name, func(t *testing.T) {
			got := judge(tc.outcome)
			if got != tc.want {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
			if wait := r.next(in, got).RequeueAfter; wait != tc.wait {
				t.Errorf("looked at again after %s, want %s", wait, tc.wait)
			}
		})
	}
}

func TestBy(t *testing.T) {
	wrong, sooner, later := errors.New("wrong"), noon.Add(time.Second), noon.Add(time.Hour)
	for name, tc := range map[string]struct {
		of   Outcome
		at   time.Time
		want Outcome
	}{
		"waiting":             {Waiting{On: "a pod"}, sooner, Waiting{On: "a pod", Until: sooner}},
		"waiting until later": {Waiting{Until: later}, sooner, Waiting{Until: sooner}},
		"waiting for less":    {Waiting{Until: sooner}, later, Waiting{Until: sooner}},
		"failed":              {Retry{Err: wrong, After: time.Minute}, sooner, Retry{Err: wrong, After: time.Minute, Until: sooner}},
		"stalled":             {Stalled{Err: wrong}, later, Stalled{Err: wrong, Until: later}},
		"deferred":            {Deferred{Until: later}, sooner, Deferred{Until: sooner}},
		"done":                {Done{Message: "x"}, sooner, Done{Message: "x"}},
		"at no time":          {Stalled{Err: wrong, Until: later}, time.Time{}, Stalled{Err: wrong, Until: later}},
	} {
		if got := By(tc.of, tc.at); got != tc.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
	}
}

func same(d time.Duration) time.Duration { return d }

func TestJudgeKnowsEveryOutcome(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("an outcome that judge does not know must not pass for another one")
		}
	}()
	judge(Deferred{}) // is never judged: it writes nothing
}

func TestSchedule(t *testing.T) {
	d := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	for name, tc := range map[string]struct {
		schedule                 appsv1.Schedule
		interval, retry, timeout time.Duration
	}{
		"unset": {appsv1.Schedule{}, DefaultInterval, DefaultRetryInterval, DefaultTimeout},
		"set":   {appsv1.Schedule{Interval: d(time.Hour), RetryInterval: d(time.Second), Timeout: d(time.Minute)}, time.Hour, time.Second, time.Minute},
		// Refused at admission; an older definition may have let them in.
		"zero":     {appsv1.Schedule{Interval: d(0), RetryInterval: d(0), Timeout: d(0)}, DefaultInterval, DefaultRetryInterval, DefaultTimeout},
		"negative": {appsv1.Schedule{Interval: d(-1), RetryInterval: d(-1), Timeout: d(-1)}, DefaultInterval, DefaultRetryInterval, DefaultTimeout},
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

// A failed attempt is never repeated later than an interval that is shorter.
func TestRetryIntervalIsBoundedByInterval(t *testing.T) {
	r := &Reconciler[*appsv1.KsctlInstall]{Clock: clocktesting.NewFakePassiveClock(noon), Jitter: same}
	in := &appsv1.KsctlInstall{}
	in.Spec.Interval = &metav1.Duration{Duration: 5 * time.Second}
	if got := r.next(in, judge(Retry{Err: errors.New("x")})).RequeueAfter; got != 5*time.Second {
		t.Errorf("got %s, want the interval of 5s", got)
	}
}

// Objects that were made together part: each interval is moved a little.
func TestIntervalsAreSpread(t *testing.T) {
	r := &Reconciler[*appsv1.KsctlInstall]{Clock: clocktesting.NewFakePassiveClock(noon), Jitter: func(d time.Duration) time.Duration { return d + d/10 }}
	in := &appsv1.KsctlInstall{}
	in.Spec.Interval = &metav1.Duration{Duration: 10 * time.Minute}
	in.Spec.RetryInterval = &metav1.Duration{Duration: time.Minute}
	if got := r.next(in, judge(Done{})).RequeueAfter; got != 11*time.Minute {
		t.Errorf("looked at again after %s, want what the jitter makes of 10m, 11m", got)
	}
	if got := r.next(in, judge(Retry{Err: errors.New("x")})).RequeueAfter; got != 66*time.Second {
		t.Errorf("tried again after %s, want what the jitter makes of 1m, 66s", got)
	}
}
