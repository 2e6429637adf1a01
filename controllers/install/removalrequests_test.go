package install

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/stacks"
)

func TestFollow(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	entries := []appsv1.InventoryEntry{{ID: "ns_a__ConfigMap", Component: "x"}, {ID: "ns_b__ConfigMap", Component: "y"}}
	x := engine.Digest(entries[:1])
	asks := func(generation int64, change ...func(*appsv1.KsctlRemove)) []appsv1.KsctlRemove {
		rm := appsv1.KsctlRemove{ObjectMeta: metav1.ObjectMeta{Name: "rm", UID: "u", Generation: generation}, Spec: appsv1.KsctlRemoveSpec{Components: []string{"x"}}}
		for _, f := range change {
			f(&rm)
		}
		return []appsv1.KsctlRemove{rm}
	}
	said := func(generation int64, digest string) func(*appsv1.KsctlRemove) {
		return func(rm *appsv1.KsctlRemove) {
			rm.Status.Removal = &appsv1.Removal{Generation: generation, Digest: digest}
		}
	}
	suspended := func(rm *appsv1.KsctlRemove) { rm.Spec.Suspend = true }
	taken := []appsv1.InstallRemoval{{Name: "rm", UID: "u", Generation: 1, Components: []string{"x"}, Digest: "taken"}}
	for name, tc := range map[string]struct {
		records []appsv1.InstallRemoval
		removes []appsv1.KsctlRemove
		missing time.Time
		follows bool
		goes    bool
		why     string
	}{
		"nobody asks":                         {},
		"nothing was said yet":                {removes: asks(1), follows: true, why: "has not said yet"},
		"of another generation":               {removes: asks(2, said(1, x)), follows: true, why: "has not said yet"},
		"of other objects":                    {removes: asks(1, said(1, engine.Digest(entries))), follows: true, why: "has not said yet"},
		"of exactly these":                    {removes: asks(1, said(1, x)), follows: true, goes: true},
		"suspended":                           {removes: asks(1, said(1, x), suspended), follows: true, why: "suspended"},
		"begun, so that there are fewer":      {records: taken, removes: asks(1, said(1, "taken")), follows: true, goes: true},
		"begun, and changed":                  {records: taken, removes: asks(2, said(1, "taken")), follows: true, why: "has not said yet"},
		"begun, and made anew":                {records: taken, removes: asks(1, func(rm *appsv1.KsctlRemove) { rm.UID = "v" }), follows: true, why: "has not said yet"},
		"begun, and suspended":                {records: taken, removes: asks(2, suspended), follows: true, why: "suspended"},
		"gone just now":                       {records: taken, missing: now, follows: true, why: "is gone: what it removed comes back at 12:01:00"},
		"gone for as long as a retryInterval": {records: taken, missing: now.Add(-time.Minute)},
		"gone, and nobody knows since when":   {records: taken, missing: now.Add(-time.Second), follows: true, why: "12:00:59"},
	} {
		t.Run(name, func(t *testing.T) {
			rs := follow(tc.records, tc.removes, entries, map[string]time.Time{"rm": tc.missing}, time.Minute, now)
			if rs.names("x") != tc.follows || rs.names("y") || rs.whole() {
				t.Fatalf("follows %+v", rs)
			}
			if !tc.follows {
				return
			}
			if why := strings.Join(rs.why(), "; "); rs[0].goes() != tc.goes || !strings.Contains(why, tc.why) || (tc.why == "") != (why == "") {
				t.Errorf("goes %t: %s", rs[0].goes(), why)
			}
			r := rs.asked(nil, false)(&entries[0])
			if r == nil || r.Hold == tc.goes || rs.asked(nil, false)(&entries[1]) != nil {
				t.Errorf("asks %+v", r)
			}
			if r := rs.asked(nil, true)(&entries[0]); !r.Hold {
				t.Error("all is held for those that depend on it")
			}
		})
	}
}

// One that keeps an object wins over one that does not.
func TestSeveralRemovals(t *testing.T) {
	claim := appsv1.InventoryEntry{ID: "ns_c__PersistentVolumeClaim", Component: "x"}
	going := func(change func(*appsv1.KsctlRemoveSpec)) removal {
		spec := &appsv1.KsctlRemoveSpec{}
		change(spec)
		return removal{record: appsv1.InstallRemoval{Name: "rm", Digest: "d"}, spec: spec}
	}
	keep := going(func(*appsv1.KsctlRemoveSpec) {})
	take := going(func(s *appsv1.KsctlRemoveSpec) {
		s.Keep, s.CustomResources = []appsv1.KeepRule{}, appsv1.CustomResourcesDelete
	})
	for name, tc := range map[string]struct {
		rs          removals
		guard       *appsv1.Guard
		kept, takes bool
	}{
		"one that keeps":   {removals{keep}, nil, true, false},
		"one that takes":   {removals{take}, nil, false, true},
		"both":             {removals{take, keep}, nil, true, false},
		"the install says": {removals{take}, &appsv1.Guard{ProtectKinds: []string{"PersistentVolumeClaim"}}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := tc.rs.asked(tc.guard, false)(&claim)
			if kept := r.Keep(ref(t, claim.ID)); (kept != "") != tc.kept || r.TakeCustomResources != tc.takes {
				t.Errorf("kept %q, takes %t", kept, r.TakeCustomResources)
			}
		})
	}
}

func ref(t *testing.T, id string) stacks.Ref {
	t.Helper()
	r, err := stacks.ParseID(id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
