package autoscaler

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
	"github.com/ksctl/gitops/internal/scaling/pki"
)

// pollTest is a controller with a KsctlAutoScaler whose Cluster Autoscaler is installed by the
// user.
type pollTest struct {
	*simulation
	steps *Steps
	clock *clocktesting.FakeClock
	wakes int
}

func newPollTest(t *testing.T) *pollTest {
	t.Helper()
	w := &pollTest{simulation: newSimulation(t, "s-1"), clock: clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))}
	w.obj.Spec.Autoscaler = &clusterv1.AutoscalerDeployment{Install: ptr.To(false)}
	authority, err := pki.NewAuthority(w.clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(pki.ClientSubject(client.ObjectKeyFromObject(&w.obj)), w.clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	data, err := authority.KeyPairSecretData(pair)
	if err != nil {
		t.Fatal(err)
	}
	name := tlsSecretName(&w.obj)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name,
		Annotations: map[string]string{OwnerAnnotation: ownerName(&w.obj)}}, Data: data}
	w.steps = &Steps{Client: newFakeClient(t, secret), Clock: w.clock, Published: nodegroup.NewClusters(),
		NodeWatches: &NodeWatches{}, AgentSessions: &session.Sessions{},
		Certificates: &Certificates{Address: "ksctl.example.com:9443", authority: authority}}
	w.steps.Published.Wake = func(types.NamespacedName) { w.wakes++ }
	return w
}

// reconcile runs a reconcile and returns the conditions of Cluster Autoscaler and the outcome.
func (w *pollTest) reconcile() (available, healthy *metav1.Condition, out reconcile.Outcome) {
	w.t.Helper()
	ctx, key, s := w.t.Context(), client.ObjectKeyFromObject(&w.obj), w.steps
	e := s.state.entry(key)
	e.status, e.statusReadAt = nil, w.clock.Now() // there is no ConfigMap
	var secret corev1.Secret
	if err := s.Client.Get(ctx, tlsSecretName(&w.obj), &secret); err != nil {
		w.t.Fatal(err)
	}
	e.secrets[secret.Name] = cachedSecret{version: secret.ResourceVersion, at: w.clock.Now(), secret: &secret}
	w.now = w.clock.Now()
	seen := &observation{machines: w.machines(), cluster: w.cluster()}
	seen.cluster.Status.KubernetesVersion = "v1.36.1"
	p, _ := s.plan(&w.obj, seen)
	if err := s.publish(ctx, &w.obj, seen, p); err != nil {
		w.t.Fatal(err)
	}
	r, err := s.installAutoscaler(ctx, &w.obj, nil, seen)
	if err != nil {
		w.t.Fatal(err)
	}
	s.checkPolling(&w.obj, &r)
	out = s.conclude(&w.obj, seen, p, r)
	conditions := w.obj.Status.Conditions
	return apimeta.FindStatusCondition(conditions, clusterv1.AutoscalerAvailableCondition),
		apimeta.FindStatusCondition(conditions, clusterv1.AutoscalerHealthyCondition), out
}

// poll sends the request that starts a loop of Cluster Autoscaler.
func (w *pollTest) poll() {
	w.t.Helper()
	caller := func(context.Context) (types.NamespacedName, error) { return client.ObjectKeyFromObject(&w.obj), nil }
	if _, err := nodegroup.NewServer(w.steps.Published, nil, w.clock, caller).Refresh(w.t.Context(), nil); err != nil {
		w.t.Fatal(err)
	}
}

// expectHealthy fails the test unless Cluster Autoscaler is healthy and the next check is at due.
// If due is zero, it fails the test unless Cluster Autoscaler is reported as not polling.
func (w *pollTest) expectHealthy(due time.Time) {
	w.t.Helper()
	_, healthy, out := w.reconcile()
	if due.IsZero() {
		x, ok := out.(reconcile.Waiting)
		if healthy.Status != metav1.ConditionFalse || healthy.Reason != clusterv1.AutoscalerNotPollingReason || !ok ||
			x.Reason != clusterv1.AutoscalerNotPollingReason {
			w.t.Fatalf("%+v, %+v", healthy, out)
		}
		return
	}
	if x, ok := out.(reconcile.Done); healthy.Status != metav1.ConditionTrue || !ok || !x.RequeueAt.Equal(due) {
		w.t.Fatalf("due at %s: %+v, %+v", due, healthy, out)
	}
}

func TestAutoscalerThatNeverPollsIsUnhealthy(t *testing.T) {
	w := newPollTest(t)
	start := w.clock.Now()
	w.expectHealthy(start.Add(inactivityTimeout))
	w.clock.Step(inactivityTimeout - time.Second)
	w.expectHealthy(start.Add(inactivityTimeout))
	w.clock.Step(time.Second)
	available, healthy, _ := w.reconcile()
	if healthy.Status != metav1.ConditionFalse || healthy.Reason != clusterv1.AutoscalerNotPollingReason ||
		!strings.Contains(healthy.Message, "has not sent a request since "+start.UTC().Format(time.RFC3339)+
			"; spec.autoscaler.install is false: check that your Cluster Autoscaler runs") ||
		!strings.Contains(healthy.Message, "ksctl.example.com:9443") {
		t.Errorf("%+v", healthy)
	}
	if available.Status != metav1.ConditionTrue ||
		!strings.HasPrefix(available.Message, "not installed by this controller") {
		t.Errorf("%+v", available)
	}
	w.expectHealthy(time.Time{})
	w.poll()
	w.poll()
	if w.wakes != 1 {
		t.Errorf("woken %d times by two requests, want 1", w.wakes)
	}
	w.expectHealthy(w.clock.Now().Add(inactivityTimeout))
}

func TestAutoscalerThatStopsPollingIsUnhealthy(t *testing.T) {
	w := newPollTest(t)
	w.reconcile()
	w.clock.Step(10 * time.Minute)
	w.poll()
	asked := w.clock.Now()
	w.clock.Step(10 * time.Minute)
	w.expectHealthy(asked.Add(inactivityTimeout))
	w.clock.Step(5 * time.Minute)
	w.expectHealthy(time.Time{})
	w.steps.state, w.steps.Published = state{}, nodegroup.NewClusters() // the controller restarts
	w.expectHealthy(w.clock.Now().Add(inactivityTimeout))
	w.obj.Spec.ScaleUp = &clusterv1.ScaleUp{ScanInterval: &metav1.Duration{Duration: time.Hour}}
	w.expectHealthy(w.clock.Now().Add(2 * time.Hour))
}

func TestPollingIsNotExpectedInModeOff(t *testing.T) {
	w := newPollTest(t)
	w.reconcile()
	w.clock.Step(time.Hour)
	w.obj.Spec.Mode = clusterv1.ScalingOff
	if _, healthy, out := w.reconcile(); healthy.Status != metav1.ConditionTrue {
		t.Fatalf("%+v, %+v", healthy, out)
	}
	w.obj.Spec.Mode = clusterv1.ScalingUpOnly
	w.expectHealthy(w.clock.Now().Add(inactivityTimeout))
	w.clock.Step(time.Hour)
	w.steps.Forget(client.ObjectKeyFromObject(&w.obj))
	w.expectHealthy(w.clock.Now().Add(inactivityTimeout))
}

func TestPollDeadlineStartsWhenInstalled(t *testing.T) {
	var e entry
	now := time.Unix(1_800_000_000, 0)
	notReady := reconcile.NewWaitingError(clusterv1.AutoscalerNotReadyReason, appsv1.WaitReference{},
		"not reconciled yet")
	for i, x := range []struct {
		r     autoscalerHealth
		ours  bool
		since time.Duration
	}{
		{autoscalerHealth{expected: true}, false, 0},
		{autoscalerHealth{expected: true, installErr: notReady}, true, -1}, // from now on the controller installs it
		{autoscalerHealth{expected: true}, true, 2 * time.Minute},
		// restarted by its liveness probe
		{autoscalerHealth{expected: true, installErr: notReady}, true, 2 * time.Minute},
		{autoscalerHealth{expected: true}, true, 2 * time.Minute},
		{autoscalerHealth{}, true, -1},
		{autoscalerHealth{expected: true}, true, 6 * time.Minute},
	} {
		got := e.expectedSince(&x.r, x.ours, now.Add(time.Duration(i)*time.Minute))
		if want := now.Add(x.since); x.since < 0 && !got.IsZero() || x.since >= 0 && !got.Equal(want) {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
}
