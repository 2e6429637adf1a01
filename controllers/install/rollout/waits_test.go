package rollout

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/install"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// A member install waits for an install that depends on the fleet.
func TestFleetReportsWaitCycle(t *testing.T) {
	waitsFor := func(name string) func(*appsv1.KsctlInstall) {
		return func(in *appsv1.KsctlInstall) {
			in.Status.WaitsFor = []appsv1.WaitReference{{Type: appsv1.WaitDependsOn, Kind: appsv1.KsctlInstallKind,
				Namespace: "ns", Name: name}}
		}
	}
	scheme := runtime.NewScheme()
	if err := appsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	fleet := newInstall("web", "src", nil)
	for state, want := range map[appsv1.ClusterState]bool{appsv1.ClusterUpdating: true, appsv1.ClusterFailed: true,
		appsv1.ClusterUnreachable: true, appsv1.ClusterWaiting: false, appsv1.ClusterRemoving: false} {
		t.Run(string(state), func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Now())
			steps := &install.Steps{Clock: clock, Client: fake.NewClientBuilder().WithScheme(scheme).
				WithObjects(newInstall("web-prod", "src", nil, waitsFor("app")),
					newInstall("app", "src", nil, waitsFor("web"))).Build()}
			r := rollout{clusters: []appsv1.InstalledCluster{{Name: "prod", Install: "web-prod", State: state}}}
			report := func() reconcile.Waiting {
				return steps.ReportWaitCycle(t.Context(), fleet,
					reconcile.Waiting{On: "0 of 1 clusters are ready", For: r.waits(fleet)}).(reconcile.Waiting)
			}
			if out := report(); out.TimedOut || out.RequeueAt.IsZero() == want {
				t.Errorf("at first: %+v", out)
			}
			clock.Step(time.Minute)
			out := report()
			if (out.Reason == appsv1.WaitCycleReason) != want ||
				out.TimedOut != want || want && !strings.Contains(out.On,
				"KsctlInstall ns/web waits for KsctlInstall ns/web-prod (Readiness)") {
				t.Errorf("after a minute: %+v", out)
			}
		})
	}
	if got := (&rollout{}).waits(fleet); len(got) != 1 || got[0].Kind != "KsctlCluster" {
		t.Errorf("without clusters: %v", got)
	}
}
