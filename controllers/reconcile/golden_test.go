package reconcile

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/golden"
)

// Other tools, such as kstatus and Argo CD, read these conditions.
func TestGoldenConditions(t *testing.T) {
	boom := errors.New("boom")
	stored := map[string]appsv1.CommonStatus{}
	for name, outcome := range map[string]Outcome{
		"done": Done{},
		"done, every field": Done{Message: "all well", Reason: "Removed", Revision: "r1", RequeueAt: noon,
			RevisionOnly: true},
		"waiting": Waiting{},
		"waiting, every field": Waiting{On: "a pod", Reason: "DependencyNotReady", RequeueAt: noon,
			Revision: "r1"},
		"waiting too long":           Waiting{On: "a pod", TimedOut: true},
		"waiting too long, a reason": Waiting{On: "a pod", TimedOut: true, Reason: "HealthCheckFailed"},
		"retry":                      Retry{Err: boom},
		"retry, every field": Retry{Err: boom, Reason: "IndexStale", RequeueAfter: 1, RequeueAt: noon,
			Revision: "r1"},
		"stalled":              Stalled{Err: boom},
		"stalled, every field": Stalled{Err: boom, Reason: "InvalidStack", RequeueAt: noon, Revision: "r1"},
		"an error":             OutcomeOf(boom, ""),
		"an error to mend":     OutcomeOf(NewTerminalError("InvalidStack", "stack %s", "web"), ""),
		"an error that an event ends": OutcomeOf(NewWaitingError("DependencyNotReady",
			appsv1.WaitReference{Type: appsv1.WaitDependsOn, Kind: "KsctlInstall", Namespace: "team", Name: "web"},
			"stack %s", "web"), ""),
		"an error that may end": OutcomeOf(NewTransientError("IndexStale", "stack %s", "web"), ""),
	} {
		var st appsv1.CommonStatus
		setConditions(&st, effectsOf(outcome), 1, metav1.NewTime(noon))
		if strings.HasSuffix(name, "every field") {
			golden.Complete(t, st.Conditions)
		}
		stored[name] = st
	}
	golden.JSON(t, "conditions.json", &stored)
}

// A status that an earlier version wrote changes in the same way as a status of this version.
func TestGoldenConditionsAfterUpgrade(t *testing.T) {
	stored := map[string]appsv1.CommonStatus{}
	for name, outcome := range map[string]Outcome{
		"retry, then done": Done{Message: "all well"},
		"retry, then waiting": Waiting{On: "a pod",
			For: []appsv1.WaitReference{{Type: appsv1.WaitPruning, Kind: "KsctlInstall", Namespace: "team", Name: "web",
				Object: "ConfigMap team/a"}}},
		"retry, then stalled": Stalled{Err: errors.New("a typo")},
	} {
		st := appsv1.CommonStatus{LastHandledReconcileAt: "2026-05-01T11:00:00Z",
			ServiceAccount: &appsv1.AccountReference{Name: "deployer", UID: "5e8f"}}
		setConditions(&st, effectsOf(Retry{Err: errors.New("boom")}), 1, metav1.NewTime(noon))
		setConditions(&st, effectsOf(outcome), 2, metav1.NewTime(noon.AddDate(0, 0, 1)))
		if name == "retry, then waiting" { // the others wait for nothing
			golden.Complete(t, &st)
		}
		stored[name] = st
	}
	golden.JSON(t, "conditions-replaced.json", &stored)
}
