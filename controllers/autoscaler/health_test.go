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

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
	"github.com/ksctl/gitops/internal/scaling/pki"
)

// listener is a controller with a KsctlAutoScaler whose Cluster Autoscaler is somebody's own.
type listener struct {
	*world
	steps *Steps
	clock *clocktesting.FakeClock
	woken int
}

func newListener(t *testing.T) *listener {
	t.Helper()
	w := &listener{world: newWorld(t, "s-1"), clock: clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))}
	w.obj.Spec.Autoscaler = &clusterv1.AutoscalerDeployment{Install: ptr.To(false)}
	authority, err := pki.NewAuthority(w.clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(pki.Client(client.ObjectKeyFromObject(&w.obj)), w.clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	data, err := authority.PairData(pair)
	if err != nil {
		t.Fatal(err)
	}
	name := tlsSecret(&w.obj)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, Annotations: map[string]string{OfAnnotation: of(&w.obj)}}, Data: data}
	w.steps = &Steps{Client: cacheWith(t, secret), Clock: w.clock, Published: nodegroup.NewClusters(), Watches: &Watches{}, Links: &Links{},
		Provider: &Provider{Address: "ksctl.example.com:9443", authority: authority}}
	w.steps.Published.Wake = func(types.NamespacedName) { w.woken++ }
	return w
}

// reconcile says what is said of Cluster Autoscaler.
func (w *listener) reconcile() (available, healthy *metav1.Condition, out reconcile.Outcome) {
	w.t.Helper()
	ctx, key, s := w.t.Context(), client.ObjectKeyFromObject(&w.obj), w.steps
	s.board.keepProbe(key, nil, w.clock.Now()) // it has no ConfigMap
	var secret corev1.Secret
	if err := s.Client.Get(ctx, tlsSecret(&w.obj), &secret); err != nil {
		w.t.Fatal(err)
	}
	s.board.keepMemo(key, secret.Name, memo{version: secret.ResourceVersion, at: w.clock.Now(), secret: &secret})
	w.now = w.clock.Now()
	seen := &sight{fleet: w.fleet(), cluster: w.cluster()}
	seen.cluster.Status.KubernetesVersion = "v1.36.1"
	p, _ := s.plan(&w.obj, seen)
	if err := s.publish(ctx, &w.obj, seen, p); err != nil {
		w.t.Fatal(err)
	}
	r, err := s.run(ctx, &w.obj, nil, seen)
	if err != nil {
		w.t.Fatal(err)
	}
	out = s.conclude(&w.obj, seen, p, r)
	conditions := w.obj.Status.Conditions
	return apimeta.FindStatusCondition(conditions, clusterv1.AutoscalerAvailableCondition), apimeta.FindStatusCondition(conditions, clusterv1.AutoscalerHealthyCondition), out
}

// asks is Cluster Autoscaler in one of its loops.
func (w *listener) asks() {
	w.t.Helper()
	caller := func(context.Context) (types.NamespacedName, error) { return client.ObjectKeyFromObject(&w.obj), nil }
	if _, err := nodegroup.NewServer(w.steps.Published, nil, w.clock, caller).Refresh(w.t.Context(), nil); err != nil {
		w.t.Fatal(err)
	}
}

// is fails unless Cluster Autoscaler is taken for well, and looked at again at a time; or, where there is none, is not.
func (w *listener) is(due time.Time) {
	w.t.Helper()
	_, healthy, out := w.reconcile()
	if due.IsZero() {
		x, ok := out.(reconcile.Waiting)
		if healthy.Status != metav1.ConditionFalse || healthy.Reason != AutoscalerSilentReason || !ok || x.Reason != AutoscalerSilentReason {
			w.t.Fatalf("%+v, %+v", healthy, out)
		}
		return
	}
	if x, ok := out.(reconcile.Done); healthy.Status != metav1.ConditionTrue || !ok || !x.Until.Equal(due) {
		w.t.Fatalf("due at %s: %+v, %+v", due, healthy, out)
	}
}

func TestOneThatNeverAsksIsNotWell(t *testing.T) {
	w := newListener(t)
	start := w.clock.Now()
	w.is(start.Add(staleProbe))
	w.clock.Step(staleProbe - time.Second)
	w.is(start.Add(staleProbe))
	w.clock.Step(time.Second)
	available, healthy, _ := w.reconcile()
	if healthy.Status != metav1.ConditionFalse || healthy.Reason != AutoscalerSilentReason ||
		!strings.Contains(healthy.Message, "has not asked since "+start.UTC().Format(time.RFC3339)+"; spec.autoscaler.install is false: look whether one of yours runs") || !strings.Contains(healthy.Message, "ksctl.example.com:9443") {
		t.Errorf("%+v", healthy)
	}
	if available.Status != metav1.ConditionTrue || !strings.HasPrefix(available.Message, "nothing is to be installed") {
		t.Errorf("%+v", available)
	}
	w.is(time.Time{})
	w.asks()
	w.asks()
	if w.woken != 1 {
		t.Errorf("woken %d times when it asked", w.woken)
	}
	w.is(w.clock.Now().Add(staleProbe))
}

func TestOneThatCeasesToAskIsNotWell(t *testing.T) {
	w := newListener(t)
	w.reconcile()
	w.clock.Step(10 * time.Minute)
	w.asks()
	asked := w.clock.Now()
	w.clock.Step(10 * time.Minute)
	w.is(asked.Add(staleProbe))
	w.clock.Step(5 * time.Minute)
	w.is(time.Time{})
	w.steps.vigils, w.steps.Published = vigils{}, nodegroup.NewClusters() // the controller starts anew
	w.is(w.clock.Now().Add(staleProbe))
	w.obj.Spec.ScaleUp = &clusterv1.ScaleUp{ScanInterval: &metav1.Duration{Duration: time.Hour}}
	w.is(w.clock.Now().Add(2 * time.Hour))
}

func TestWhoNeedNotAskIsNotAwaited(t *testing.T) {
	w := newListener(t)
	w.reconcile()
	w.clock.Step(time.Hour)
	w.obj.Spec.Mode = clusterv1.ScalingOff
	if _, healthy, out := w.reconcile(); healthy.Status != metav1.ConditionTrue {
		t.Fatalf("%+v, %+v", healthy, out)
	}
	w.obj.Spec.Mode = clusterv1.ScalingUpOnly
	w.is(w.clock.Now().Add(staleProbe))
	w.clock.Step(time.Hour)
	w.steps.Forget(client.ObjectKeyFromObject(&w.obj))
	w.is(w.clock.Now().Add(staleProbe))
}

func TestOneThatIsInstalledHasTime(t *testing.T) {
	var v vigils
	now := time.Unix(1_800_000_000, 0)
	notReady := reconcile.Wait(AutoscalerNotReadyReason, "it is new")
	for i, x := range []struct {
		r     running
		ours  bool
		since time.Duration
	}{
		{running{wanted: true}, false, 0},
		{running{wanted: true, installed: notReady}, true, -1}, // it is installed from now on
		{running{wanted: true}, true, 2 * time.Minute},
		{running{wanted: true, installed: notReady}, true, 2 * time.Minute}, // its liveness probe has it started anew
		{running{wanted: true}, true, 2 * time.Minute},
		{running{}, true, -1},
		{running{wanted: true}, true, 6 * time.Minute},
	} {
		got := v.since(testKey, &x.r, x.ours, now.Add(time.Duration(i)*time.Minute))
		if want := now.Add(x.since); x.since < 0 && !got.IsZero() || x.since >= 0 && !got.Equal(want) {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
}
