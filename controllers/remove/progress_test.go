package remove

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/stacks"
)

func testRemark(name, message string, wave int32) engine.RemovalItem {
	ref := stacks.Ref{Kind: "ConfigMap", Namespace: "ns", Name: name}
	return engine.RemovalItem{Ref: ref, Reason: plan.ReasonPending, Message: message,
		Entry: appsv1.InventoryEntry{ID: ref.ID(), Wave: wave}}
}

func many(n int) (out []engine.RemovalItem) {
	for i := range n {
		out = append(out, testRemark(fmt.Sprintf("c%03d", i), "holds", 0))
	}
	return out
}

func TestRehearsalIsBounded(t *testing.T) {
	steps := make([][]engine.RemovalItem, 0, 100)
	for range 100 {
		steps = append(steps, many(100))
	}
	r := removalStatus(&engine.RemovalPreview{Steps: steps, Kept: many(200), Blockers: many(200)}, 3, "d", 10200)
	total := int32(0)
	for _, s := range r.Order {
		total += s.Count
		if len(s.Objects) > maxObjects {
			t.Errorf("a step names %d objects", len(s.Objects))
		}
	}
	if len(r.Order) != maxSteps || total != 10000 || len(r.Kept) != maxRemarks || len(r.Blockers) != maxRemarks ||
		r.Count != 10200 {
		t.Errorf("%d steps of %d objects, %d kept, %d blockers of %d", len(r.Order), total, len(r.Kept),
			len(r.Blockers), r.Count)
	}
	if m := removalObjects([]engine.RemovalItem{testRemark("a", strings.Repeat("ä", maxMessageBytes),
		0)})[0].Message; len(m) > maxMessageBytes+3 {
		t.Errorf("a message of %d bytes", len(m))
	}
}

func TestMessages(t *testing.T) {
	rm := &appsv1.KsctlRemove{Status: appsv1.KsctlRemoveStatus{Removal: &appsv1.Removal{Count: 4}}}
	in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	setReady := func(status metav1.ConditionStatus, reason string) {
		in.Status.Conditions = []metav1.Condition{{Type: appsv1.ReadyCondition, Status: status, Reason: reason,
			Message: "why"}}
	}
	left := []engine.RemovalItem{testRemark("a", "", 0), testRemark("b", "b is held", 0)}
	kept := []appsv1.RemovalObject{{ID: "ns_data__PersistentVolumeClaim", Message: "spec.keep"}}
	reportProgress(&rm.Status, left, kept)
	if *rm.Status.Removed != 1 || *rm.Status.Left != 3 || len(rm.Status.Remaining) != 3 {
		t.Errorf("%d removed, %d left, %v", *rm.Status.Removed, *rm.Status.Left, rm.Status.Remaining)
	}
	want := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	want(progressMessage(rm, in, left), "1 of 4 objects removed, 2 remaining: b is held")
	want(progressMessage(rm, in, left[:1]), "1 of 4 objects removed, 1 remaining")
	setReady(metav1.ConditionFalse, "ServiceAccountNotFound")
	want(progressMessage(rm, in, left[:1]), "1 of 4 objects removed, 1 remaining: KsctlInstall web reports: why")
	setReady(metav1.ConditionUnknown, "Progressing")
	want(progressMessage(rm, in, left[:1]), "1 of 4 objects removed, 1 remaining")
	setReady(metav1.ConditionUnknown, "DependentsExist")
	want(progressMessage(rm, in, left[:1]), "1 of 4 objects removed, 1 remaining: KsctlInstall web reports: why")
	reportProgress(&rm.Status, nil, kept)
	want(doneMessage(rm, kept), "3 objects removed, 1 kept: PersistentVolumeClaim ns/data (spec.keep)")
	rm.Status.Removed = ptr.To[int32](1)
	want(doneMessage(rm, nil), "1 object removed, nothing is left")
	rm.Status.Removal.Count = 0
	want(doneMessage(rm, nil), "there was nothing to remove")
	rm.Status.Removal = &appsv1.Removal{Count: 3, Order: []appsv1.RemovalStep{{Count: 2}}, Kept: kept,
		Blockers: []appsv1.RemovalObject{{Message: "it is held"}}}
	want(rehearsalMessage(rm), "2 objects to be removed in 1 step, 1 kept; 1 blocked: it is held")
}

func TestDependents(t *testing.T) {
	install := func(name string, on ...string) appsv1.KsctlInstall {
		x := appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		for _, d := range on {
			x.Spec.DependsOn = append(x.Spec.DependsOn, appsv1.Dependency{Name: d})
		}
		return x
	}
	self := install("me", "me")
	self.Status.Components = []appsv1.ComponentStatus{{Name: "a"}, {Name: "b", DependsOn: []string{"a"}},
		{Name: "c", DependsOn: []string{"b"}}}
	elsewhere := install("other", "me")
	elsewhere.Namespace = "elsewhere"
	going := install("going", "me")
	going.DeletionTimestamp = &metav1.Time{}
	object := install("object")
	object.Spec.DependsOn = []appsv1.Dependency{{APIVersion: "apps/v1", Kind: "Deployment", Name: "db"}}
	child := install("child", "me")
	goes := func(id string) bool {
		return id == "ns_db_apps_Deployment" || id == "ns_child_apps.ksctl.com_KsctlInstall"
	}
	all := []appsv1.KsctlInstall{self, install("x", "me"), install("y", "x"), elsewhere, going, object, child}
	for name, tc := range map[string]struct {
		components []string
		want       []string
	}{
		"whole install": {nil, []string{"KsctlInstall ns/going depends on the install and is being removed",
			"KsctlInstall ns/object depends on Deployment ns/db and must be removed first",
			"KsctlInstall ns/x depends on the install and must be removed first"}},
		"one component": {[]string{"a"}, []string{"KsctlInstall ns/going depends on the install and is not waited",
			"KsctlInstall ns/object depends on Deployment ns/db and is not waited",
			"KsctlInstall ns/x depends on the install and is not waited", "component b stays and depends on a"}},
		"last component": {[]string{"c"},
			[]string{"KsctlInstall ns/going", "KsctlInstall ns/object", "KsctlInstall ns/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := dependentMessages(&appsv1.KsctlRemoveSpec{Components: tc.components}, &self, all, goes)
			if !slices.EqualFunc(got, tc.want, strings.HasPrefix) {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestAcceptedRemoval(t *testing.T) {
	rm := &appsv1.KsctlRemove{ObjectMeta: metav1.ObjectMeta{Name: "rm", UID: "u", Generation: 2}}
	rm.Status.Removal = &appsv1.Removal{Generation: 2, Digest: "d"}
	record := appsv1.InstallRemoval{Name: "rm", UID: "u", Generation: 2, Digest: "d"}
	for name, tc := range map[string]struct {
		change func(*appsv1.InstallRemoval)
		want   bool
	}{
		"accepted":         {func(*appsv1.InstallRemoval) {}, true},
		"not accepted":     {func(r *appsv1.InstallRemoval) { r.Digest = "" }, false},
		"other generation": {func(r *appsv1.InstallRemoval) { r.Generation = 1 }, false},
		"other UID":        {func(r *appsv1.InstallRemoval) { r.UID = "v" }, false},
		"other name":       {func(r *appsv1.InstallRemoval) { r.Name = "x" }, false},
	} {
		r := record
		tc.change(&r)
		in := &appsv1.KsctlInstall{Status: appsv1.KsctlInstallStatus{Removals: []appsv1.InstallRemoval{r}}}
		if got := acceptedRemoval(in, rm) != nil; got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
