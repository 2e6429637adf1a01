package install

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
)

func TestComponentMessagesAreTruncated(t *testing.T) {
	var states []plan.ComponentState
	message := "\xff" + strings.Repeat("é", 1<<19)
	for range 256 {
		states = append(states, plan.ComponentState{Message: message})
	}
	total := 0
	for _, c := range (&owner{}).componentStatuses(states) {
		if !utf8.ValidString(c.Message) {
			t.Fatal("the message is not UTF-8")
		}
		total += len(c.Message)
	}
	if total > 512<<10 {
		t.Errorf("%d bytes of messages", total)
	}
	if got := (&owner{}).componentStatuses([]plan.ComponentState{{Message: "waits"}})[0].Message; got != "waits" {
		t.Errorf("a short message is %q", got)
	}
}

func TestWarningsAreBounded(t *testing.T) {
	long := slices.Repeat([]string{strings.Repeat("é", 1<<19)}, 1000)
	got := boundWarnings(long)
	if len(got) != maxWarnings || got[maxWarnings-1] != "and 991 more" || len(strings.Join(got, "")) > 16<<10 {
		t.Errorf("%d warnings of %d bytes; the last is %q", len(got), len(strings.Join(got, "")), got[len(got)-1])
	}
	if got := boundWarnings(long[:maxWarnings]); len(got) != maxWarnings ||
		strings.HasPrefix(got[maxWarnings-1], "and") {
		t.Errorf("the maximum number of warnings: the last is %q", got[len(got)-1])
	}
	if got := boundWarnings(nil); got != nil {
		t.Errorf("no warnings: %v", got)
	}
}

func TestJoinNamesCountsNamesBeyondLimit(t *testing.T) {
	if got := reconcile.JoinNames([]string{"a", "b", "c", "d", "e", "f", "g"}); got != "a, b, c, d, e and 2 more" {
		t.Error(got)
	}
	if got := reconcile.JoinNames([]string{"a", "b", "c", "d", "e"}); got != "a, b, c, d, e" {
		t.Error(got)
	}
}

func TestOutcomeIsMinorForNewRevisionOnly(t *testing.T) {
	for name, c := range map[string]struct {
		was      string // the recorded revision
		ready    metav1.ConditionStatus
		acted    bool
		observed int64
		want     bool
	}{
		"new revision":                                 {"r1", metav1.ConditionTrue, false, 1, true},
		"same revision":                                {"r2", metav1.ConditionTrue, false, 1, false},
		"first revision":                               {"", metav1.ConditionTrue, false, 1, false},
		"new revision with changed objects":            {"r1", metav1.ConditionTrue, true, 1, false},
		"recorded revision with changed objects":       {"r2", metav1.ConditionTrue, true, 1, false},
		"new revision of an install that is not ready": {"r1", metav1.ConditionUnknown, false, 1, false},
		"new revision and new spec":                    {"r1", metav1.ConditionTrue, false, 0, false},
	} {
		in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
		in.Status.LastAppliedRevision = c.was
		in.Status.Conditions = []metav1.Condition{{Type: appsv1.ReadyCondition, Status: c.ready,
			ObservedGeneration: c.observed}}
		o := &owner{inv: plan.NewInventory(nil, nil), req: &reconcile.Request[*appsv1.KsctlInstall]{Object: in},
			changedObjects: c.acted}
		done, ok := o.outcome(&engine.Report{}, "r2", time.Now()).(reconcile.Done)
		if !ok || done.RevisionOnly != c.want || o.changedObjects != (c.acted && c.was != "r2") ||
			in.Status.LastAppliedRevision != "r2" {
			t.Errorf("%s: %+v, acted %v", name, done, o.changedObjects)
		}
	}
}
