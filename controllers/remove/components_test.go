package remove

import (
	"cmp"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/controllers/remove/match"
)

func TestUnknownComponents(t *testing.T) {
	rendered := func(in *appsv1.KsctlInstall) {
		in.Generation = 3
		in.Status.Components = []appsv1.ComponentStatus{{Name: "base"}, {Name: "dash"}}
		in.Status.LastAttemptedRevision = "r2"
		in.Status.Conditions = []metav1.Condition{{Type: appsv1.ReadyCondition, Status: metav1.ConditionTrue, ObservedGeneration: 3}}
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
		newest  string // r2 when empty
		lost    error  // the source is
		stalled string
		waits   string
	}{
		"all of it":            {},
		"one of the stack":     {names: []string{"dash"}, in: []func(*appsv1.KsctlInstall){rendered}},
		"misspelt":             {names: []string{"dsh"}, in: []func(*appsv1.KsctlInstall){rendered}, stalled: `KsctlInstall web has no component "dsh" (did you mean "dash"?); it has base, dash`},
		"one of several":       {names: []string{"dash", "xyzzy"}, in: []func(*appsv1.KsctlInstall){rendered}, stalled: `no component "xyzzy"; it has`},
		"left the stack":       {names: []string{"old"}, in: []func(*appsv1.KsctlInstall){rendered}, entries: []appsv1.InventoryEntry{{Component: "old"}}},
		"not rendered":         {names: []string{"dsh"}, waits: "KsctlInstall web has not said yet which components it has"},
		"not rendered, so far": {names: []string{"dsh"}, entries: []appsv1.InventoryEntry{{Component: "dash"}}, waits: "has not said yet"},
		"chosen not to be there": {names: []string{"off"}, in: []func(*appsv1.KsctlInstall){rendered, func(in *appsv1.KsctlInstall) {
			in.Spec.Components = []appsv1.ComponentChoice{{Name: "off"}}
		}}},
		"never rendered, and suspended":            {names: []string{"dash"}, waits: "is suspended", in: []func(*appsv1.KsctlInstall){suspended}},
		"never rendered, and leaving":              {names: []string{"dash"}, in: []func(*appsv1.KsctlInstall){leaving}},
		"never rendered, all of it is asked to go": {names: []string{"dash"}, in: []func(*appsv1.KsctlInstall){emptied}},
		"a newer revision is there":                {names: []string{"new"}, in: []func(*appsv1.KsctlInstall){rendered}, newest: "r3", waits: `no component "new"; it has base, dash, so far: it is not done with revision r3`},
		"that, and suspended":                      {names: []string{"new"}, in: []func(*appsv1.KsctlInstall){rendered, suspended}, newest: "r3", waits: "KsctlInstall web is suspended: resume it"},
		"suspended, and up to date":                {names: []string{"dsh"}, in: []func(*appsv1.KsctlInstall){rendered, suspended}, stalled: `no component "dsh"`},
		"that it has counts, old or not":           {names: []string{"dash"}, in: []func(*appsv1.KsctlInstall){rendered}, newest: "r3"},
		"at work on the newest revision":           {names: []string{"new"}, in: []func(*appsv1.KsctlInstall){rendered, ready(metav1.ConditionUnknown, "what is asked to go is not gone")}, stalled: `no component "new"`},
		"it failed to":                             {names: []string{"new"}, in: []func(*appsv1.KsctlInstall){rendered, ready(metav1.ConditionFalse, "no such chart")}, waits: "KsctlInstall web says: no such chart"},
		"its spec has changed":                     {names: []string{"new"}, in: []func(*appsv1.KsctlInstall){rendered, func(in *appsv1.KsctlInstall) { in.Generation++ }}, waits: "not done with revision r2"},
		"nobody knows what its source has":         {names: []string{"new"}, in: []func(*appsv1.KsctlInstall){rendered}, lost: errors.New("no source"), waits: "is not known: no source"},
		"it leaves, and takes in nothing more":     {names: []string{"new"}, in: []func(*appsv1.KsctlInstall){rendered, leaving}, newest: "r3", stalled: `no component "new"`},
		"all of it goes, it takes in nothing":      {names: []string{"new"}, in: []func(*appsv1.KsctlInstall){rendered, emptied}, newest: "r3", stalled: `no component "new"`},
	} {
		t.Run(name, func(t *testing.T) {
			in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
			for _, f := range tc.in {
				f(in)
			}
			out := unknown(&appsv1.KsctlRemove{Spec: appsv1.KsctlRemoveSpec{Components: tc.names}}, in, tc.entries, func() (string, error) { return cmp.Or(tc.newest, "r2"), tc.lost })
			switch x := out.(type) {
			case nil:
				if tc.stalled != "" || tc.waits != "" {
					t.Error("nothing is wrong")
				}
			case reconcile.Stalled:
				if tc.stalled == "" || x.Reason != match.NoSuchComponentReason || !strings.Contains(x.Err.Error(), tc.stalled) {
					t.Errorf("%+v", x)
				}
			case reconcile.Waiting:
				if tc.waits == "" || !strings.Contains(x.On, tc.waits) || x.Late {
					t.Errorf("%+v", x)
				}
			default:
				t.Errorf("%+v", x)
			}
		})
	}
}
