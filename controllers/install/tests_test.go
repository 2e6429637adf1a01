package install

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ksctl/gitops/controllers/engine/plan"
)

func TestTestResult(t *testing.T) {
	passed := plan.ComponentState{Name: "web" + testSuffix, Objects: 2, Ready: true}
	failed := plan.ComponentState{Name: "db" + testSuffix, Objects: 1, Unhealthy: true, Message: "Job ns/t is Failed"}
	refused := plan.ComponentState{Name: "db" + testSuffix, Objects: 1, Failed: true, Message: "forbidden"}
	running := plan.ComponentState{Name: "cache" + testSuffix, Objects: 1, Message: "Job ns/u is InProgress"}
	for name, tc := range map[string]struct {
		states []plan.ComponentState
		want   metav1.ConditionStatus
		says   string
	}{
		"all succeeded":  {[]plan.ComponentState{passed}, "True", `test "x": 2 hooks have succeeded`},
		"one failed":     {[]plan.ComponentState{passed, failed}, "False", `component "db": Job ns/t is Failed`},
		"one is refused": {[]plan.ComponentState{refused, passed}, "False", `component "db": forbidden`},
		"one runs": {[]plan.ComponentState{passed, running}, "Unknown",
			`component "cache": Job ns/u is InProgress`},
		"one failed, one runs": {[]plan.ComponentState{failed, running}, "Unknown", `Failed; component "cache"`},
		"none":                 {nil, "True", "no charts with tests"},
	} {
		t.Run(name, func(t *testing.T) {
			if c := testResult("x", tc.states); c.Status != tc.want || !strings.Contains(c.Message, tc.says) {
				t.Errorf("got %s: %s", c.Status, c.Message)
			}
		})
	}
}
