package reconcile

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/golden"
)

// Others, such as kstatus and Argo CD, read these conditions.
func TestGoldenConditions(t *testing.T) {
	boom := errors.New("boom")
	stored := map[string]appsv1.CommonStatus{}
	for name, outcome := range map[string]Outcome{
		"done": Done{},
		"done, every field": Done{Message: "all well", Reason: "Removed", Revision: "r1", Until: noon,
			Minor: true},
		"waiting":                     Waiting{},
		"waiting, every field":        Waiting{On: "a pod", Reason: "DependencyNotReady", Until: noon, Revision: "r1"},
		"waiting too long":            Waiting{On: "a pod", Late: true},
		"waiting too long, a reason":  Waiting{On: "a pod", Late: true, Reason: "HealthCheckFailed"},
		"retry":                       Retry{Err: boom},
		"retry, every field":          Retry{Err: boom, Reason: "IndexStale", After: 1, Until: noon, Revision: "r1"},
		"stalled":                     Stalled{Err: boom},
		"stalled, every field":        Stalled{Err: boom, Reason: "InvalidStack", Until: noon, Revision: "r1"},
		"an error":                    Failed(boom),
		"an error to mend":            Failed(Fail("InvalidStack", "stack %s", "web")),
		"an error that an event ends": Failed(Wait("DependencyNotReady", "stack %s", "web")),
		"an error that may end":       Failed(TryAgain("IndexStale", "stack %s", "web")),
	} {
		var st appsv1.CommonStatus
		setConditions(&st, judge(outcome), 1, metav1.NewTime(noon))
		if strings.HasSuffix(name, "every field") {
			golden.Complete(t, st.Conditions)
		}
		stored[name] = st
	}
	golden.JSON(t, "conditions.json", &stored)
}

// A status that an earlier version wrote changes as one of this version does.
func TestGoldenConditionsAreReplaced(t *testing.T) {
	stored := map[string]appsv1.CommonStatus{}
	for name, outcome := range map[string]Outcome{
		"retry, then done":    Done{Message: "all well"},
		"retry, then waiting": Waiting{On: "a pod"},
		"retry, then stalled": Stalled{Err: errors.New("a typo")},
	} {
		st := appsv1.CommonStatus{LastHandledReconcileAt: "2026-05-01T11:00:00Z"}
		setConditions(&st, judge(Retry{Err: errors.New("boom")}), 1, metav1.NewTime(noon))
		setConditions(&st, judge(outcome), 2, metav1.NewTime(noon.AddDate(0, 0, 1)))
		golden.Complete(t, &st)
		stored[name] = st
	}
	golden.JSON(t, "conditions-replaced.json", &stored)
}
