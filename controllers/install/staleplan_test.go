package install

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	testclock "k8s.io/utils/clock/testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
)

// cacheOf knows installs, by the fields that Finalize asks for.
func cacheOf(t *testing.T, installs ...*appsv1.KsctlInstall) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := appsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&appsv1.KsctlRemove{}, byInstallRef, func(client.Object) []string { return nil }).
		WithIndex(&appsv1.KsctlInstall{}, byTakeOver, func(o client.Object) []string { return takesOver(o.(*appsv1.KsctlInstall)) }).
		WithIndex(&appsv1.KsctlInstall{}, byDependency, func(o client.Object) (out []string) {
			for _, d := range dependencyNames(o.(*appsv1.KsctlInstall)) {
				out = append(out, reconcile.FieldValue(Kind, d.Namespace, d.Name))
			}
			return out
		})
	for _, in := range installs {
		b = b.WithObjects(in)
	}
	return b.Build()
}

// The deletion of an install may be heard of before the install that takes over from
// it, though it was made after it: nothing goes until both are known.
func TestWhoTakesOverIsHeardOfBeforeAnythingGoes(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	needs := func(in *appsv1.KsctlInstall) { in.Spec.DependsOn = []appsv1.Dependency{{Name: "me"}} }
	heir, needing := install("heir", "src2", nil, follows("me")), install("needing", "src", nil, needs)
	other := install("other", "src2", nil, follows("you"))
	rig := func() (*Steps, *reconcile.Request[*appsv1.KsctlInstall]) {
		c := cacheOf(t, heir.DeepCopy(), needing.DeepCopy(), other.DeepCopy())
		s := &Steps{Client: c, Plans: NewPlans(), Chunks: &engine.ChunkStore{Reader: c, Direct: c},
			Engine: engine.New(engine.Options{}), Targets: &target.Targets{Local: &engine.Target{ClusterID: engine.LocalCluster}}, Clock: testclock.NewFakePassiveClock(now)}
		return s, &reconcile.Request[*appsv1.KsctlInstall]{Object: install("me", "src", []string{"ns"}, goes)}
	}
	for name, tell := range map[string]func(*Plans){
		"nothing":                  func(*Plans) {},
		"all but that":             func(p *Plans) { p.seen(other); p.seen(needing) },
		"it, before it took over":  func(p *Plans) { p.seen(install("heir", "src2", nil)) },
		"it, that it goes":         func(p *Plans) { p.seen(install("heir", "src2", nil, follows("me"), goes)) },
		"it, and that it went":     func(p *Plans) { p.seen(heir); p.gone(key("heir")) },
		"it, with another to take": func(p *Plans) { p.seen(install("heir", "src2", nil, follows("you"))) },
	} {
		t.Run(name+" was told", func(t *testing.T) {
			s, req := rig()
			tell(s.Plans)
			if out := s.Finalize(t.Context(), req); out != (reconcile.Deferred{Until: now.Add(toldWithin)}) {
				t.Fatalf("Finalize: %+v", out)
			}
			req.Object.DeletionTimestamp = nil
			if out := s.Reconcile(t.Context(), req); out != (reconcile.Deferred{Until: now.Add(toldWithin)}) {
				t.Errorf("Reconcile: %+v", out)
			}
		})
	}
	t.Run("all was told", func(t *testing.T) {
		s, req := rig()
		s.Plans.seen(heir)
		// Who needs it is the next thing to be waited for.
		if out, ok := s.Finalize(t.Context(), req).(reconcile.Waiting); !ok || out.Reason != DependentsReason {
			t.Errorf("%+v", out)
		}
	})
}
