package install

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/stacks"
)

func TestResolveRemovalRequests(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	entries := []appsv1.InventoryEntry{{ID: "ns_a__ConfigMap", Component: "x"}, {ID: "ns_b__ConfigMap", Component: "y"}}
	x := plan.Digest(entries[:1])
	ksctlRemoves := func(generation int64, change ...func(*appsv1.KsctlRemove)) []appsv1.KsctlRemove {
		rm := appsv1.KsctlRemove{ObjectMeta: metav1.ObjectMeta{Name: "rm", UID: "u", Generation: generation},
			Spec: appsv1.KsctlRemoveSpec{Components: []string{"x"}}}
		for _, f := range change {
			f(&rm)
		}
		return []appsv1.KsctlRemove{rm}
	}
	withRehearsal := func(generation int64, digest string) func(*appsv1.KsctlRemove) {
		return func(rm *appsv1.KsctlRemove) {
			rm.Status.Removal = &appsv1.Removal{Generation: generation, Digest: digest}
		}
	}
	suspended := func(rm *appsv1.KsctlRemove) { rm.Spec.Suspend = true }
	started := []appsv1.InstallRemoval{{Name: "rm", UID: "u", Generation: 1, Components: []string{"x"},
		Digest: "taken"}}
	for name, tc := range map[string]struct {
		records []appsv1.InstallRemoval
		removes []appsv1.KsctlRemove
		missing time.Time
		follows bool
		goes    bool
		why     string
	}{
		"no KsctlRemove": {},
		"no rehearsal":   {removes: ksctlRemoves(1), follows: true, why: "no current rehearsal"},
		"rehearsal of another generation": {removes: ksctlRemoves(2, withRehearsal(1, x)), follows: true,
			why: "no current rehearsal"},
		"rehearsal of other objects": {removes: ksctlRemoves(1, withRehearsal(1, plan.Digest(entries))),
			follows: true, why: "no current rehearsal"},
		"rehearsal of the same objects": {removes: ksctlRemoves(1, withRehearsal(1, x)), follows: true,
			goes: true},
		"suspended": {removes: ksctlRemoves(1, withRehearsal(1, x), suspended), follows: true,
			why: "suspended"},
		"started, so that objects are gone": {records: started, removes: ksctlRemoves(1, withRehearsal(1, "taken")),
			follows: true, goes: true},
		"started, and changed": {records: started, removes: ksctlRemoves(2, withRehearsal(1, "taken")),
			follows: true, why: "no current rehearsal"},
		"started, and recreated": {records: started,
			removes: ksctlRemoves(1, func(rm *appsv1.KsctlRemove) {
				rm.UID = "v"
			}), follows: true, why: "no current rehearsal"},
		"started, and suspended": {records: started, removes: ksctlRemoves(2, suspended), follows: true,
			why: "suspended"},
		"deleted just now": {records: started, missing: now, follows: true,
			why: "was deleted: the removed objects are installed again at 12:01:00"},
		"deleted for retryInterval": {records: started, missing: now.Add(-time.Minute)},
		"deleted less than retryInterval ago": {records: started, missing: now.Add(-time.Second), follows: true,
			why: "12:00:59"},
	} {
		t.Run(name, func(t *testing.T) {
			rs := resolveRemovalRequests(tc.records, tc.removes, entries, map[string]time.Time{"rm": tc.missing},
				time.Minute, now)
			if rs.cover("x") != tc.follows || rs.cover("y") || rs.coverInstall() {
				t.Fatalf("requests: %+v", rs)
			}
			if !tc.follows {
				return
			}
			if why := strings.Join(rs.inactiveReasons(), "; "); rs[0].active() != tc.goes ||
				!strings.Contains(why, tc.why) || (tc.why == "") != (why == "") {
				t.Errorf("active %t: %s", rs[0].active(), why)
			}
			r := rs.policy(nil, false)(&entries[0])
			if r == nil || r.Suspended == tc.goes || rs.policy(nil, false)(&entries[1]) != nil {
				t.Errorf("policy %+v", r)
			}
			if r := rs.policy(nil, true)(&entries[0]); !r.Suspended {
				t.Error("holdAll does not hold the object")
			}
		})
	}
}

// A request that keeps an object overrides a request that does not.
func TestKeepingRemovalRequestWins(t *testing.T) {
	claim := appsv1.InventoryEntry{ID: "ns_c__PersistentVolumeClaim", Component: "x"}
	going := func(change func(*appsv1.KsctlRemoveSpec)) removalRequest {
		spec := &appsv1.KsctlRemoveSpec{}
		change(spec)
		return removalRequest{record: appsv1.InstallRemoval{Name: "rm", Digest: "d"}, spec: spec}
	}
	keep := going(func(*appsv1.KsctlRemoveSpec) {})
	remove := going(func(s *appsv1.KsctlRemoveSpec) {
		s.Keep, s.CustomResources = []appsv1.KeepRule{}, appsv1.CustomResourcesDelete
	})
	for name, tc := range map[string]struct {
		rs          removalRequests
		guard       *appsv1.Guard
		kept, takes bool
	}{
		"keep":            {removalRequests{keep}, nil, true, false},
		"delete":          {removalRequests{remove}, nil, false, true},
		"delete and keep": {removalRequests{remove, keep}, nil, true, false},
		"guard of the install": {removalRequests{remove},
			&appsv1.Guard{ProtectKinds: []string{"PersistentVolumeClaim"}}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := tc.rs.policy(tc.guard, false)(&claim)
			if kept := r.KeepReason(mustParseID(t, claim.ID)); (kept != "") != tc.kept ||
				r.DeleteCustomResources != tc.takes {
				t.Errorf("kept %q, takes %t", kept, r.DeleteCustomResources)
			}
		})
	}
}

func mustParseID(t *testing.T, id string) stacks.Ref {
	t.Helper()
	r, err := stacks.ParseID(id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
