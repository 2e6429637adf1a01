package install

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/install/handover"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
)

// cacheOf returns a client with installs, and with the indexes that Finalize needs.
func cacheOf(t *testing.T, installs ...*appsv1.KsctlInstall) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := appsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&appsv1.KsctlRemove{}, removeInstallIndex, func(client.Object) []string { return nil }).
		WithIndex(&appsv1.KsctlInstall{}, takeOverIndex, func(o client.Object) []string {
			return takeOverKeys(o.(*appsv1.KsctlInstall))
		}).
		WithIndex(&appsv1.KsctlInstall{}, dependsOnIndex, func(o client.Object) []string {
			return dependsOnValues(o.(*appsv1.KsctlInstall))
		})
	for _, in := range installs {
		b = b.WithObjects(in)
	}
	return b.Build()
}

// The event that an install is deleted may arrive before the event of its successor, although the
// successor is older than the deletion. No object is removed until Plans has both.
func TestReconcileIsDeferredOnStalePlan(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	dependsOnMe := func(in *appsv1.KsctlInstall) { in.Spec.DependsOn = []appsv1.Dependency{{Name: "me"}} }
	successor, dependentInstall := install("successor", "src2", nil, takesOverFrom("me")),
		install("needing", "src", nil, dependsOnMe)
	other := install("other", "src2", nil, takesOverFrom("you"))
	newSteps := func() (*Steps, *reconcile.Request[*appsv1.KsctlInstall]) {
		c := cacheOf(t, successor.DeepCopy(), dependentInstall.DeepCopy(), other.DeepCopy())
		s := &Steps{Client: c, Plans: handover.NewPlans(clock.RealClock{}),
			Chunks:  &engine.ChunkStore{Reader: c, APIReader: c},
			Engine:  engine.New(engine.Options{}),
			Targets: &target.Resolver{Local: &engine.Target{ClusterID: plan.LocalCluster}},
			Clock:   testclock.NewFakePassiveClock(now)}
		return s, &reconcile.Request[*appsv1.KsctlInstall]{Object: install("me", "src", []string{"ns"}, deleting)}
	}
	for name, record := range map[string]func(*handover.Plans){
		"no install":                     func(*handover.Plans) {},
		"other installs":                 func(p *handover.Plans) { p.Update(other); p.Update(dependentInstall) },
		"the successor without takeOver": func(p *handover.Plans) { p.Update(install("successor", "src2", nil)) },
		"the successor being deleted": func(p *handover.Plans) {
			p.Update(install("successor", "src2", nil, takesOverFrom("me"), deleting))
		},
		"the successor and its deletion": func(p *handover.Plans) { p.Update(successor); p.Remove(key("successor")) },
		"the successor of another install": func(p *handover.Plans) {
			p.Update(install("successor", "src2", nil, takesOverFrom("you")))
		},
	} {
		t.Run("Plans has "+name, func(t *testing.T) {
			s, req := newSteps()
			record(s.Plans)
			if out := s.Finalize(t.Context(), req); out != (reconcile.Deferred{RequeueAt: now.Add(stalePlanRetry)}) {
				t.Fatalf("Finalize: %+v", out)
			}
			req.Object.DeletionTimestamp = nil
			if out := s.Reconcile(t.Context(), req); out != (reconcile.Deferred{RequeueAt: now.Add(stalePlanRetry)}) {
				t.Errorf("Reconcile: %+v", out)
			}
		})
	}
	t.Run("Plans has the successor", func(t *testing.T) {
		s, req := newSteps()
		s.Plans.Update(successor)
		// The removal continues, and waits for the dependents next.
		if out, ok := s.Finalize(t.Context(), req).(reconcile.Waiting); !ok ||
			out.Reason != appsv1.DependentsExistReason {
			t.Errorf("%+v", out)
		}
	})
}

func TestPlanWaitsEndWhenNoPlanIsNeeded(t *testing.T) {
	for reason, waits := range map[plan.Reason]bool{plan.ReasonHandoverPending: true, plan.ReasonBackingOff: false} {
		woken := false
		s := &Steps{Plans: handover.NewPlans(clock.RealClock{})}
		s.Plans.Subscribe(func(types.NamespacedName) { woken = true })
		me, other := install("me", "src", []string{"ns"}), install("o", "src", []string{"ns"})
		s.Plans.Update(other)
		if d := s.Plans.NewHandover(me, plan.OwnerKey{Cluster: plan.LocalCluster}, "b").
			Decide(idOf("ns", "x")); d.Wait == "" {
			t.Fatal("the install does not wait")
		}
		o := &owner{req: &reconcile.Request[*appsv1.KsctlInstall]{Object: me}}
		s.endPlanWaits(o, &engine.Report{Plan: plan.Plan{Waits: []plan.Action{{Reason: reason}}}})
		s.Plans.RecordPlan(other, "b", nil, false)
		if woken != waits {
			t.Errorf("after %s, the plan of the other install enqueues: %t, want %t", reason, woken, waits)
		}
	}
}
