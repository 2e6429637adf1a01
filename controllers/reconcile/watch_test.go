package reconcile

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// forgotten are the names of objects whose metrics were dropped.
type forgotten []string

func (*forgotten) Took(string, types.NamespacedName, time.Time) {}
func (*forgotten) Stands(string, Object)                        {}
func (f *forgotten) Forget(_ string, key types.NamespacedName)  { *f = append(*f, key.Name) }

// forgetting steps do nothing else.
type forgetting struct {
	Steps[*appsv1.KsctlInstall]
	forgot bool
}

func (s *forgetting) Forget(types.NamespacedName) { s.forgot = true }

func shard(labels map[string]string) *appsv1.KsctlInstall {
	in := version("a", "1")
	in.Name, in.Labels = "i", labels
	return in
}

func TestWhatLeavesTheShardIsForgotten(t *testing.T) {
	mine, theirs := map[string]string{"shard": "a"}, map[string]string{"shard": "b"}
	for name, tc := range map[string]struct {
		from, to map[string]string
		wakes    bool
		forgets  []string
	}{
		"it comes":        {theirs, mine, true, nil},
		"it stays":        {mine, map[string]string{"shard": "a", "team": "x"}, true, nil},
		"it leaves":       {mine, theirs, true, []string{"i"}},
		"it is of others": {theirs, map[string]string{"shard": "c"}, false, []string{"i"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got forgotten
			in := shard(tc.to)
			in.Spec.Suspend = true // nothing else is done
			scheme := runtime.NewScheme()
			if err := appsv1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			steps := &forgetting{}
			r := &Reconciler[*appsv1.KsctlInstall]{Metrics: &got, Steps: steps, Clock: clock.RealClock{},
				Client:   fake.NewClientBuilder().WithScheme(scheme).WithObjects(in).Build(),
				New:      func() *appsv1.KsctlInstall { return &appsv1.KsctlInstall{} },
				Selector: predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()["shard"] == "a" })}
			if wakes := r.Wishes().Update(event.UpdateEvent{ObjectOld: shard(tc.from), ObjectNew: shard(tc.to)}); wakes != tc.wakes {
				t.Errorf("it wakes is %t", wakes)
			}
			// Whatever wakes it: a timer of before may, too.
			if _, err := r.Reconcile(t.Context(), crreconcile.Request{NamespacedName: client.ObjectKeyFromObject(in)}); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, tc.forgets) || steps.forgot != (tc.forgets != nil) {
				t.Errorf("forgotten are %v, by the steps %t", got, steps.forgot)
			}
		})
	}
}
