package handover

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
)

func dependsOn(names ...string) func(*appsv1.KsctlInstall) {
	return func(in *appsv1.KsctlInstall) {
		for _, n := range names {
			in.Spec.DependsOn = append(in.Spec.DependsOn, appsv1.Dependency{Name: n})
		}
	}
}

// appliedBy gives an install the mark of another install.
func appliedBy(parent string) func(*appsv1.KsctlInstall) {
	return func(in *appsv1.KsctlInstall) {
		owner := plan.OwnerKey{Installation: "x", Cluster: plan.LocalCluster, Kind: appsv1.KsctlInstallKind,
			Namespace: "ns", Name: parent}
		in.Annotations = map[string]string{live.MarkAnnotation: live.Mark{Owner: owner.String(), ID: "ns_" + in.Name +
			"_apps.ksctl.com_KsctlInstall"}.String()}
	}
}

// Two installs drop an object each. The possible new owner of one depends on the other one, and the
// other way around: their waits would close a cycle of four.
func TestHandoverWaitsDoNotCloseCycles(t *testing.T) {
	here := []string{"ns"}
	r := newPlansTest()
	one, two := install("one", "src", here), install("two", "src2", here)
	forOne, forTwo := install("forOne", "src", here, dependsOn("two")),
		install("forTwo", "src2", here, dependsOn("one"))
	for _, in := range []*appsv1.KsctlInstall{one, two, forOne, forTwo} {
		r.Update(in)
	}
	r.RecordPlan(forOne, "b", nil, true)
	r.RecordPlan(forTwo, "b", nil, true)
	key := plan.OwnerKey{Cluster: plan.LocalCluster}
	first, second := r.NewHandover(one, key, "b").Decide(idOf("ns", "x")),
		r.NewHandover(two, key, "b").Decide(idOf("ns", "y"))
	if first.Wait == "" || second.Leave == "" {
		t.Errorf("%+v, %+v: the second wait closes the cycle", first, second)
	}
}

// An install that may not patch an object which it has now does not lose it.
func TestHandoverWaitsForPermission(t *testing.T) {
	here := []string{"ns"}
	for source, want := range map[string]bool{"src": true, "src2": false} {
		r := newPlansTest()
		me, other := install("me", "src", here), install("o", source, here)
		r.Update(me)
		r.Update(other)
		r.RecordPlan(other, "b", componentsWith("x"), false)
		h := r.NewHandover(me, plan.OwnerKey{Cluster: plan.LocalCluster}, "b")
		if h.Decide(idOf("ns", "x")).To == nil {
			t.Fatal("no claim")
		}
		h.Deny(idOf("ns", "x"), key("o"))
		if d := h.Decide(idOf("ns", "x")); (d.Wait != "") != want || d.To != nil || want == h.RetryAt.IsZero() {
			t.Errorf("source %s: %+v, again at %s", source, d, h.RetryAt)
		}
	}
}

func inventoryOf(names ...string) *plan.Inventory {
	inv := plan.NewInventory(nil, nil)
	for _, n := range names {
		inv.Put(appsv1.InventoryEntry{ID: idOf("ns", n), State: appsv1.EntryApplied})
	}
	return inv
}

// An install whose dependencies are not ready has a plan nevertheless. Only if the plan may change
// with the dependencies, the releasing install waits for the final one, unless the dependencies
// wait for the releasing install.
func TestHandoverWithProvisionalPlans(t *testing.T) {
	here := []string{"ns"}
	for name, tc := range map[string]struct {
		other       *appsv1.KsctlInstall
		more        []*appsv1.KsctlInstall
		objects     []string
		provisional bool
		want        plan.HandoverDecision // with the text "x" for any
	}{
		"final, with the object": {install("o", "src", here), nil, []string{"x"}, false,
			plan.HandoverDecision{To: &plan.OwnerKey{}}},
		"final, without": {install("o", "src", here), nil, []string{"y"}, false,
			plan.HandoverDecision{}},
		"provisional, with the object": {install("o", "src", here), nil, []string{"x"}, true,
			plan.HandoverDecision{To: &plan.OwnerKey{}}},
		"provisional, without": {install("o", "src", here, dependsOn("p")), nil, []string{"y"}, true,
			plan.HandoverDecision{Wait: "x"}},
		"waits for the releasing one": {install("o", "src", here, dependsOn("me")), nil, []string{"y"}, true,
			plan.HandoverDecision{Leave: "x"}},
		"waits for its parent": {install("o", "src", here, dependsOn("root")),
			[]*appsv1.KsctlInstall{install("root", "src2", nil), install("me", "src", here, appliedBy("root"))}, nil,
			true, plan.HandoverDecision{Leave: "x"}},
		"waits for it through others": {install("o", "src", here, dependsOn("p")),
			[]*appsv1.KsctlInstall{install("p", "src2", nil, dependsOn("q")),
				install("q", "src2", nil, dependsOn("p", "me"))}, nil, true, plan.HandoverDecision{Leave: "x"}},
		"provisional, in another place": {install("o", "src", []string{"else"}), nil, nil, true,
			plan.HandoverDecision{}},
		"provisional, of another source": {install("o", "src2", here), nil, []string{"y"}, true,
			plan.HandoverDecision{}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPlansTest()
			r.Update(install("me", "src", here))
			for _, in := range append(tc.more, tc.other) {
				r.Update(in)
			}
			r.RecordPlan(tc.other, "b", componentsWith(tc.objects...), tc.provisional)
			h := r.NewHandover(install("me", "src", here), plan.OwnerKey{Cluster: plan.LocalCluster}, "b")
			got := h.Decide(idOf("ns", "x"))
			if (got.To == nil) != (tc.want.To == nil) || (got.Wait == "") != (tc.want.Wait == "") ||
				(got.Leave == "") != (tc.want.Leave == "") {
				t.Fatalf("got %+v, want %+v", got, tc.want)
			}
			r.enqueued = nil
			r.RecordPlan(tc.other, "b", componentsWith(tc.objects...), false)
			if waited := got.Wait != "" || got.Leave != ""; waited != (len(r.enqueued) > 0) {
				t.Errorf("the final plan enqueues %v", r.enqueued)
			}
			if again := h.Decide(idOf("ns", "x")); again.Wait != "" || again.Leave != "" {
				t.Errorf("after the final plan: %+v", again)
			}
		})
	}
}

// An install that cannot be rendered claims what it planned last, or what it has.
func TestHandoverWithInstallThatCannotRender(t *testing.T) {
	here := []string{"ns"}
	other := install("o", "src", here, func(in *appsv1.KsctlInstall) {
		in.Spec.Timeout = &metav1.Duration{Duration: time.Minute}
	})
	for name, tc := range map[string]struct {
		planned, inventory []string
		transient          bool
		want               plan.HandoverDecision
	}{
		"planned it last": {planned: []string{"x"}, want: plan.HandoverDecision{Leave: "x"}},
		"planned others":  {planned: []string{"y"}},
		"planned others, but has it": {planned: []string{"y"}, inventory: []string{"x"},
			want: plan.HandoverDecision{Leave: "x"}},
		"has it after a start":     {inventory: []string{"x"}, want: plan.HandoverDecision{Leave: "x"}},
		"has others after a start": {inventory: []string{"y"}},
		"fails for now":            {planned: []string{"y"}, transient: true, want: plan.HandoverDecision{Wait: "x"}},
		"has nothing yet":          {want: plan.HandoverDecision{Wait: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			clock := testclock.NewFakeClock(time.Unix(0, 0))
			r := &plansTest{Plans: NewPlans(clock)}
			me := install("me", "src", here)
			r.Update(me)
			r.Update(other)
			if tc.planned != nil {
				r.RecordPlan(other, "a", componentsWith(tc.planned...), false)
			}
			r.RecordFailure(other, "b", inventoryOf(tc.inventory...), !tc.transient)
			decide := func() (plan.HandoverDecision, time.Time) {
				h := r.NewHandover(me, plan.OwnerKey{Cluster: plan.LocalCluster}, "b")
				return h.Decide(idOf("ns", "x")), h.RetryAt
			}
			got, retryAt := decide()
			if (got.To == nil) != (tc.want.To == nil) || (got.Wait == "") != (tc.want.Wait == "") ||
				(got.Leave == "") != (tc.want.Leave == "") {
				t.Fatalf("got %+v, want %+v", got, tc.want)
			}
			if got.Wait == "" {
				return
			}
			if retryAt != clock.Now().Add(time.Minute) {
				t.Errorf("decided again at %s", retryAt)
			}
			clock.Step(time.Minute)
			if got, _ := decide(); got.Leave == "" {
				t.Errorf("after the timeout: %+v", got)
			}
			r.RecordFailure(other, "c", inventoryOf(), !tc.transient)
			if h := r.NewHandover(me, plan.OwnerKey{Cluster: plan.LocalCluster},
				"c"); h.Decide(idOf("ns", "x")).Wait == "" {
				t.Error("a new commit starts no new wait")
			}
		})
	}
}
