package remove

import (
	"cmp"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

func TestUnknownComponents(t *testing.T) {
	rendered := func(in *appsv1.KsctlInstall) {
		in.Generation = 3
		in.Status.Components = []appsv1.ComponentStatus{{Name: "base"}, {Name: "dash"}}
		in.Status.LastAttemptedRevision = "r2"
		in.Status.Conditions = []metav1.Condition{{Type: appsv1.ReadyCondition, Status: metav1.ConditionTrue,
			ObservedGeneration: 3}}
	}
	ready := func(status metav1.ConditionStatus, message string) func(*appsv1.KsctlInstall) {
		return func(in *appsv1.KsctlInstall) {
			in.Status.Conditions[0].Status, in.Status.Conditions[0].Message = status, message
		}
	}
	suspended := func(in *appsv1.KsctlInstall) { in.Spec.Suspend = true }
	leaving := func(in *appsv1.KsctlInstall) { in.DeletionTimestamp = &metav1.Time{} }
	emptied := func(in *appsv1.KsctlInstall) { in.Status.Removals = []appsv1.InstallRemoval{{Name: "whole"}} }
	for name, tc := range map[string]struct {
		names   []string
		in      []func(*appsv1.KsctlInstall)
		entries []appsv1.InventoryEntry
		newest  string // revision of the source; r2 if empty
		lost    error  // reading the source fails
		stalled string
		waits   string
	}{
		"no components named":    {},
		"component of the stack": {names: []string{"dash"}, in: []func(*appsv1.KsctlInstall){rendered}},
		"misspelled": {names: []string{"dsh"}, in: []func(*appsv1.KsctlInstall){rendered},
			stalled: `KsctlInstall web has no component "dsh" (did you mean "dash"?); it has base, dash`},
		"one of two unknown": {names: []string{"dash", "xyzzy"}, in: []func(*appsv1.KsctlInstall){rendered},
			stalled: `no component "xyzzy"; it has`},
		"removed from stack": {names: []string{"old"}, in: []func(*appsv1.KsctlInstall){rendered},
			entries: []appsv1.InventoryEntry{{Component: "old"}}},
		"not rendered": {names: []string{"dsh"},
			waits: "KsctlInstall web has not reported its components yet"},
		"not rendered, entries": {names: []string{"dsh"}, entries: []appsv1.InventoryEntry{{Component: "dash"}},
			waits: "has not reported its components"},
		"disabled component": {names: []string{
			"off"}, in: []func(*appsv1.KsctlInstall){rendered, func(in *appsv1.KsctlInstall) {
			in.Spec.Components = []appsv1.ComponentChoice{{Name: "off"}}
		}}},
		"never rendered and suspended": {names: []string{"dash"}, waits: "is suspended",
			in: []func(*appsv1.KsctlInstall){suspended}},
		"never rendered and being deleted":      {names: []string{"dash"}, in: []func(*appsv1.KsctlInstall){leaving}},
		"never rendered, whole install removed": {names: []string{"dash"}, in: []func(*appsv1.KsctlInstall){emptied}},
		"newer revision": {names: []string{"new"}, in: []func(*appsv1.KsctlInstall){rendered},
			newest: "r3", waits: `no component "new"; it has base, dash; revision r3 is not rendered yet`},
		"newer revision and suspended": {names: []string{"new"},
			in: []func(*appsv1.KsctlInstall){rendered, suspended}, newest: "r3",
			waits: "KsctlInstall web is suspended: resume it"},
		"suspended and up to date": {names: []string{"dsh"},
			in: []func(*appsv1.KsctlInstall){rendered, suspended}, stalled: `no component "dsh"`},
		"known component, newer revision": {names: []string{"dash"}, in: []func(*appsv1.KsctlInstall){rendered},
			newest: "r3"},
		"newest revision in progress": {names: []string{"new"},
			in:      []func(*appsv1.KsctlInstall){rendered, ready(metav1.ConditionUnknown, "waiting for a removal")},
			stalled: `no component "new"`},
		"newest revision failed": {names: []string{"new"},
			in:    []func(*appsv1.KsctlInstall){rendered, ready(metav1.ConditionFalse, "no such chart")},
			waits: "KsctlInstall web reports: no such chart"},
		"spec changed": {names: []string{"new"},
			in: []func(*appsv1.KsctlInstall){rendered, func(in *appsv1.KsctlInstall) {
				in.Generation++
			}}, waits: "revision r2 is not rendered yet"},
		"source not readable": {names: []string{"new"}, in: []func(*appsv1.KsctlInstall){rendered},
			lost: errors.New("no source"), waits: "reading the newest revision of its source failed: no source"},
		"being deleted": {names: []string{"new"},
			in: []func(*appsv1.KsctlInstall){rendered, leaving}, newest: "r3", stalled: `no component "new"`},
		"whole install removed": {names: []string{"new"},
			in: []func(*appsv1.KsctlInstall){rendered, emptied}, newest: "r3", stalled: `no component "new"`},
	} {
		t.Run(name, func(t *testing.T) {
			in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
			for _, f := range tc.in {
				f(in)
			}
			out := componentsOutcome(&appsv1.KsctlRemove{Spec: appsv1.KsctlRemoveSpec{Components: tc.names}}, in,
				tc.entries, func() (string, error) { return cmp.Or(tc.newest, "r2"), tc.lost })
			switch x := out.(type) {
			case nil:
				if tc.stalled != "" || tc.waits != "" {
					t.Error("got no outcome")
				}
			case reconcile.Stalled:
				if tc.stalled == "" || x.Reason != appsv1.NoSuchComponentReason ||
					!strings.Contains(x.Err.Error(), tc.stalled) {
					t.Errorf("%+v", x)
				}
			case reconcile.Waiting:
				if tc.waits == "" || !strings.Contains(x.On, tc.waits) || x.TimedOut {
					t.Errorf("%+v", x)
				}
			default:
				t.Errorf("%+v", x)
			}
		})
	}
}
