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
	"github.com/ksctl/gitops/controllers/reconcile"
)

func TestComponentMessagesFitAStatus(t *testing.T) {
	var states []engine.ComponentState
	message := "\xff" + strings.Repeat("é", 1<<19)
	for range 256 {
		states = append(states, engine.ComponentState{Message: message})
	}
	total := 0
	for _, c := range (&owner{}).components(states) {
		if !utf8.ValidString(c.Message) {
			t.Fatal("the message is not UTF-8")
		}
		total += len(c.Message)
	}
	if total > 512<<10 {
		t.Errorf("%d bytes of messages", total)
	}
	if got := (&owner{}).components([]engine.ComponentState{{Message: "waits"}})[0].Message; got != "waits" {
		t.Errorf("a short message is %q", got)
	}
}

func TestWarningsFitAStatus(t *testing.T) {
	long := slices.Repeat([]string{strings.Repeat("é", 1<<19)}, 1000)
	got := warnings(long)
	if len(got) != maxWarnings || got[maxWarnings-1] != "and 991 more" || len(strings.Join(got, "")) > 16<<10 {
		t.Errorf("%d warnings of %d bytes; the last is %q", len(got), len(strings.Join(got, "")), got[len(got)-1])
	}
	if got := warnings(long[:maxWarnings]); len(got) != maxWarnings || strings.HasPrefix(got[maxWarnings-1], "and") {
		t.Errorf("as many as fit: the last is %q", got[len(got)-1])
	}
	if got := warnings(nil); got != nil {
		t.Errorf("none: %v", got)
	}
}

func TestNamesAreCountedBeyondSome(t *testing.T) {
	if got := list([]string{"a", "b", "c", "d", "e", "f", "g"}); got != "a, b, c, d, e and 2 more" {
		t.Error(got)
	}
	if got := list([]string{"a", "b", "c", "d", "e"}); got != "a, b, c, d, e" {
		t.Error(got)
	}
}

func TestOnlyARevisionIsMinor(t *testing.T) {
	for name, c := range map[string]struct {
		was      string // the revision that is recorded
		ready    metav1.ConditionStatus
		acted    bool
		observed int64
		want     bool
	}{
		"another revision":            {"r1", metav1.ConditionTrue, false, 1, true},
		"the same":                    {"r2", metav1.ConditionTrue, false, 1, false},
		"the first":                   {"", metav1.ConditionTrue, false, 1, false},
		"something was done for it":   {"r1", metav1.ConditionTrue, true, 1, false},
		"what was done is said":       {"r2", metav1.ConditionTrue, true, 1, false},
		"it was not ready before":     {"r1", metav1.ConditionUnknown, false, 1, false},
		"the spec is another as well": {"r1", metav1.ConditionTrue, false, 0, false},
	} {
		in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
		in.Status.LastAppliedRevision = c.was
		in.Status.Conditions = []metav1.Condition{{Type: appsv1.ReadyCondition, Status: c.ready, ObservedGeneration: c.observed}}
		o := &owner{inv: engine.NewInventory(nil, nil), req: &reconcile.Request[*appsv1.KsctlInstall]{Object: in}, acted: c.acted}
		done, ok := o.outcome(&engine.Report{}, "r2", time.Now()).(reconcile.Done)
		if !ok || done.Minor != c.want || o.acted != (c.acted && c.was != "r2") || in.Status.LastAppliedRevision != "r2" {
			t.Errorf("%s: %+v, acted %v", name, done, o.acted)
		}
	}
}
