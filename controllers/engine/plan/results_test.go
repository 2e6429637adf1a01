package plan

import (
	"strings"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
)

func recorded(o *live.Object) { o.ResultRecorded = true }

func TestResultsAreReadOnce(t *testing.T) {
	applied, done := appsv1.EntryApplied, appsv1.EntryDone
	failed := func(o *live.Object) { o.Readiness = live.Failed }
	finished := func(o *live.Object) { o.Finished = true }
	recreated := func(o *live.Object) { o.UID = "other" }
	desired, collect := []Item{runsOnceItem("j")}, []string{"collect j"}
	for name, tc := range map[string]struct {
		entry     appsv1.InventoryEntry
		object    live.Object
		desired   []Item
		collected bool
		want      []string
	}{
		"a Job that is done":   {jobEntry("j", done), liveJob("j", true), desired, false, collect},
		"one that failed":      {jobEntry("j", applied), liveJob("j", true, failed), desired, false, collect},
		"one that is retained": {leftAt(jobEntry("j", done), 1), liveJob("j", true), nil, false, collect},
		"one that runs":        {jobEntry("j", applied), liveJob("j", false), desired, false, nil},
		"one that was read":    {jobEntry("j", done), liveJob("j", true, recorded), desired, false, nil},
		"one that was tried":   {jobEntry("j", done), liveJob("j", true), desired, true, nil},
		"one of others":        {jobEntry("j", done), liveJob("j", true, recreated), desired, false, nil},
		"another kind":         {entry("a", applied), liveObject("a", finished), []Item{item("c", "a")}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			in := fixture{entries: []appsv1.InventoryEntry{tc.entry}, live: []live.Object{tc.object}}.
				snapshot(retaining(1, tc.desired...))
			in.Collected = map[string]bool{tc.entry.ID: tc.collected}
			p := Reconcile(in)
			expectEqual(t, "results", actionNames(p.Results), tc.want...)
			if p.Idle() != (len(tc.want) == 0) {
				t.Errorf("idle is %v", p.Idle())
			}
		})
	}
}

// The message of a failed Job is that of its result, masked and bounded.
func TestFailedJobsSayWhy(t *testing.T) {
	plan := func(result string, policy func(*Policies)) ComponentState {
		job := liveJob("j", true, recorded, func(o *live.Object) {
			o.Readiness, o.Message, o.Result = live.Failed, "BackoffLimitExceeded", []byte(result)
		})
		in := fixture{entries: []appsv1.InventoryEntry{jobEntry("j", appsv1.EntryApplied)},
			live: []live.Object{job}, policy: policy}.snapshot(Component{Name: "c", Items: []Item{runsOnceItem("j")}})
		return Reconcile(in).Components[0]
	}
	if st := plan(`{"message": "no table x"}`, nil); st.Message != "Job ns/j failed: no table x" || !st.JobFailed ||
		!st.Unhealthy || st.Ready {
		t.Errorf("got %+v", st)
	}
	if st := plan("", nil); !strings.Contains(st.Message, "BackoffLimitExceeded") || st.JobFailed || !st.Unhealthy {
		t.Errorf("without a result: %+v", st)
	}
	masking := func(p *Policies) {
		p.Redact = func(m string) string { return strings.ReplaceAll(m, "hunter2", "…") }
	}
	if st := plan(`{"message": "hunter2"}`, masking); st.Message != "Job ns/j failed: …" {
		t.Errorf("masked: %s", st.Message)
	}
	if st := plan(`{"message": "`+strings.Repeat("x", 3000)+`"}`, nil); len(st.Message) > maxFailureBytes+50 {
		t.Errorf("%d bytes", len(st.Message))
	}
}
