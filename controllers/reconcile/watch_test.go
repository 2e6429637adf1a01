package reconcile

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// forgetMetrics collects the names of objects whose metrics were dropped.
type forgetMetrics []string

func (*forgetMetrics) RecordDuration(string, types.NamespacedName, time.Time) {}
func (*forgetMetrics) RecordStatus(string, Object)                            {}
func (f *forgetMetrics) Forget(_ string, key types.NamespacedName)            { *f = append(*f, key.Name) }

// forgetSteps implements only Forget of Steps.
type forgetSteps struct {
	Steps[*appsv1.KsctlInstall]
	forgotten bool
}

func (s *forgetSteps) Forget(types.NamespacedName) { s.forgotten = true }

func shard(labels map[string]string) *appsv1.KsctlInstall {
	in := installVersion("a", "1")
	in.Name, in.Labels = "i", labels
	return in
}

func TestObjectThatLeavesShardIsForgotten(t *testing.T) {
	mine, theirs := map[string]string{"shard": "a"}, map[string]string{"shard": "b"}
	for name, tc := range map[string]struct {
		from, to map[string]string
		wakes    bool
		forgets  []string
	}{
		"moves to us":     {theirs, mine, true, nil},
		"stays with us":   {mine, map[string]string{"shard": "a", "team": "x"}, true, nil},
		"moves to others": {mine, theirs, true, []string{"i"}},
		"stays elsewhere": {theirs, map[string]string{"shard": "c"}, false, []string{"i"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got forgetMetrics
			in := shard(tc.to)
			in.Spec.Suspend = true // so that the reconcile does nothing else
			scheme := runtime.NewScheme()
			if err := appsv1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			steps := &forgetSteps{}
			r := &Reconciler[*appsv1.KsctlInstall]{Metrics: &got, Steps: steps, Clock: clock.RealClock{},
				Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(in).Build(),
				New:    func() *appsv1.KsctlInstall { return &appsv1.KsctlInstall{} },
				Selector: predicate.NewPredicateFuncs(func(o client.Object) bool {
					return o.GetLabels()["shard"] == "a"
				})}
			if passes := r.SpecChanged().
				Update(event.UpdateEvent{ObjectOld: shard(tc.from), ObjectNew: shard(tc.to)}); passes != tc.wakes {
				t.Errorf("SpecChanged is %t, want %t", passes, tc.wakes)
			}
			// A reconcile may also come from an earlier requeue.
			if _, err := r.Reconcile(t.Context(),
				crreconcile.Request{NamespacedName: client.ObjectKeyFromObject(in)}); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, tc.forgets) || steps.forgotten != (tc.forgets != nil) {
				t.Errorf("forgotten metrics %v, forgotten by the steps %t", got, steps.forgotten)
			}
		})
	}
}

func TestFuncResults(t *testing.T) {
	gone := apierrors.NewNotFound(schema.GroupResource{}, "x")
	for name, tc := range map[string]struct {
		next   time.Duration
		err    error
		cancel bool
		want   time.Duration
		failed bool
	}{
		"nothing":           {},
		"the next time":     {next: time.Minute, want: time.Minute},
		"an error":          {next: time.Minute, err: errors.New("no"), failed: true},
		"an object is gone": {err: gone},
		"a conflict": {err: apierrors.NewConflict(schema.GroupResource{}, "x", nil),
			want: 100 * time.Millisecond},
		"process ends": {err: gone, cancel: true, failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tc.cancel {
				cancel()
			}
			key := types.NamespacedName{Namespace: "a", Name: "b"}
			reconcile := Func(func(_ context.Context, got types.NamespacedName) (time.Duration, error) {
				if got != key {
					t.Errorf("got %s", got)
				}
				return tc.next, tc.err
			})
			res, err := reconcile.Reconcile(ctx, crreconcile.Request{NamespacedName: key})
			if res.RequeueAfter != tc.want || (err != nil) != tc.failed {
				t.Errorf("got %s, %v; want %s, failed %t", res.RequeueAfter, err, tc.want, tc.failed)
			}
		})
	}
}
