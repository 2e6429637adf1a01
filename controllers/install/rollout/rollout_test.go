package rollout

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/install/handover"
)

// memberAt returns a selected cluster with a member install in the named state. With
// an empty state there is no member install. With the suffix * the member install is not up to
// date.
func memberAt(cluster, state string) memberInstall {
	s := memberInstall{cluster: cluster, selected: true}
	state, outdated := strings.CutSuffix(state, "*")
	if s.nameTaken = state == "taken"; s.nameTaken || state == "" {
		return s
	}
	s.upToDate = !outdated
	s.install = &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Name: "app-" + cluster}}
	s.install.Status.LastAppliedRevision = "r2"
	if outdated {
		s.install.Status.LastAppliedRevision = "r1"
	}
	c := metav1.Condition{Type: appsv1.ReadyCondition, Message: state, LastTransitionTime: metav1.Unix(999, 0)}
	switch state {
	case "ready":
		c.Status = metav1.ConditionTrue
	case "behind":
		c.Status, s.install.Status.LastAppliedRevision = metav1.ConditionTrue, "r1"
	case "busy":
		c.Status = metav1.ConditionUnknown
	case "late", "fresh": // fresh had no kubeconfig for a long time
		c.Status, c.LastTransitionTime = metav1.ConditionUnknown, metav1.Unix(1, 0)
		s.previous = &appsv1.InstalledCluster{State: appsv1.ClusterUpdating, Since: &c.LastTransitionTime}
		if state == "fresh" {
			s.previous = &appsv1.InstalledCluster{State: appsv1.ClusterUnreachable}
		}
	case "unready":
		c.Status, c.Reason = metav1.ConditionUnknown, appsv1.ClusterNotReadyReason
	case "failed":
		c.Status = metav1.ConditionFalse
	case "away":
		c.Status, c.Reason = metav1.ConditionFalse, appsv1.ClusterUnreachableReason
	case "going":
		s.install.DeletionTimestamp = &metav1.Time{}
	case "dropped":
		c.Status, s.selected = metav1.ConditionTrue, false
	case "lost":
		c.Status, s.selected, s.clusterGone = metav1.ConditionTrue, false, true
	}
	s.install.Status.Conditions = []metav1.Condition{c}
	return s
}

// A cluster that fails before it reads the released change, for example without its service
// account, counts as failed. If it counted as updating, it would block the rollout forever.
func TestClusterStateFailedBeforeReleasedChangeIsRead(t *testing.T) {
	s := memberAt("a", "failed")
	s.install.Annotations = map[string]string{appsv1.ReleaseAnnotation: "sha256:r2"}
	s.install.Status.Artifact = &appsv1.TakenArtifact{URL: "http://source/r1.tar.gz", Revision: "r1",
		Digest: "sha256:r1"}
	if got := clusterState(s, "r2", time.Unix(1000, 0)); got != appsv1.ClusterFailed {
		t.Errorf("got %s", got)
	}
}

func TestPlanRollout(t *testing.T) {
	for name, tc := range map[string]struct {
		// members are clusters as name=state, see memberAt. change and remove are the names of the
		// clusters that are changed and removed, and states the states of all clusters in order.
		members, change, remove, states string
		most                            int
		goOn                            bool
		unapproved                      bool
	}{
		"no member installs": {members: "a= b= c=", most: 2, change: "a b",
			states: "Updating Updating Waiting"},
		"one is updating": {members: "a=busy b= c=", most: 2, change: "b",
			states: "Updating Updating Waiting"},
		"one with an old revision is updating": {members: "a=behind b=", most: 1, states: "Updating Waiting"},
		"one is ready": {members: "a=ready b=busy c=", most: 2, change: "c",
			states: "Ready Updating Updating"},
		"all are ready": {members: "a=ready b=ready", most: 2, states: "Ready Ready"},
		"the name of one is in use": {members: "a=taken b=", most: 1, change: "b",
			states: "Failed Updating"},
		"one times out": {members: "a=late b= c=", most: 1, goOn: true, change: "b",
			states: "Failed Updating Waiting"},
		"one had no kubeconfig for a long time": {members: "a=fresh b=", most: 2, change: "b",
			states: "Updating Updating"},
		"one has no kubeconfig": {members: "a=unready b=", most: 1, change: "b",
			states: "Unreachable Updating"},
		"new change during an update": {members: "a=busy* b=ready* c=ready*", most: 2, change: "a",
			states: "Updating Waiting Waiting"},
		"one has failed": {members: "a=failed b=ready* c=", most: 2,
			states: "Failed Waiting Waiting"},
		"one has failed, onFailure is Continue": {members: "a=failed b=ready* c=", most: 2, goOn: true, change: "b c",
			states: "Failed Updating Updating"},
		"new change after a failure": {members: "a=ready* b=failed* c=ready*", most: 1, change: "b",
			states: "Waiting Updating Waiting"},
		"one is unreachable": {members: "a=away b=ready*", most: 1, change: "b",
			states: "Unreachable Updating"},
		"one is no longer selected": {members: "a=ready b=ready c=dropped", most: 1, remove: "c",
			states: "Ready Ready Ready"},
		"one of two is no longer selected": {members: "a=ready b=dropped", most: 1, remove: "b",
			states: "Ready Ready"},
		"most are no longer selected": {members: "a=ready b=dropped c=dropped", most: 1, unapproved: true,
			states: "Ready Ready Ready"},
		"most are deleted": {members: "a=ready b=lost c=lost", most: 1, remove: "b c",
			states: "Ready Ready Ready"},
		"one is being removed and selected again": {members: "a=going", most: 1, states: "Removing"},
		"one is no longer selected, one is new": {members: "a=ready b=ready c=dropped d=", most: 1, change: "d",
			remove: "c", states: "Ready Ready Ready Updating"},
	} {
		t.Run(name, func(t *testing.T) {
			var members []memberInstall
			for _, member := range strings.Fields(tc.members) {
				cluster, how, _ := strings.Cut(member, "=")
				members = append(members, memberAt(cluster, how))
			}
			r := planRollout(members, "r2",
				rolloutOptions{maxConcurrent: tc.most, stopOnFailure: !tc.goOn, now: time.Unix(1000, 0)})
			var states []string
			for _, l := range r.clusters {
				states = append(states, string(l.State))
			}
			if got := strings.Join(slices.Sorted(maps.Keys(r.updates)), " "); got != tc.change {
				t.Errorf("changes %q, want %q", got, tc.change)
			}
			if got := strings.Join(r.removals, " "); got != tc.remove {
				t.Errorf("removes %q, want %q", got, tc.remove)
			}
			if got := strings.Join(states, " "); got != tc.states {
				t.Errorf("states %q, want %q", got, tc.states)
			}
			if (r.approvalDigest != "") != tc.unapproved {
				t.Errorf("approval digest %q", r.approvalDigest)
			}
			if tc.unapproved {
				approved := planRollout(members, "r2",
					rolloutOptions{maxConcurrent: tc.most, approved: r.approvalDigest})
				if approved.approvalDigest != "" || len(approved.removals) == 0 {
					t.Errorf("with approval: %+v", approved)
				}
			}
		})
	}
}

// The timeout of a cluster starts with each update.
func TestPlanRolloutStartsTimeoutWithEachUpdate(t *testing.T) {
	s := memberAt("a", "fresh")
	s.install.Spec.Timeout = &metav1.Duration{Duration: time.Minute}
	var line appsv1.InstalledCluster
	look := func(at int64) {
		line = planRollout([]memberInstall{s}, "r2",
			rolloutOptions{maxConcurrent: 1, now: time.Unix(at, 0)}).clusters[0]
		s.previous = &line
	}
	for _, x := range []struct {
		at    int64
		state appsv1.ClusterState
		since int64
	}{{1000, appsv1.ClusterUpdating, 1000}, {1060, appsv1.ClusterUpdating, 1000}, {1061, appsv1.ClusterFailed, 0},
		{1062, appsv1.ClusterFailed, 0}} {
		if look(x.at); line.State != x.state || (line.Since == nil) != (x.since == 0) || line.Since != nil &&
			line.Since.Unix() != x.since {
			t.Errorf("at %d: %+v", x.at, line)
		}
	}
	s.previous.State, s.previous.Since = appsv1.ClusterUpdating, &metav1.Time{Time: time.Unix(1065, 0)}
	s.upToDate = false // the rollout of another commit waits until the running update ends
	behind := memberAt("b", "ready*")
	r := planRollout([]memberInstall{s, behind}, "r2", rolloutOptions{maxConcurrent: 0, now: time.Unix(1070, 0)})
	if s.previous = &r.clusters[0]; s.previous.State != appsv1.ClusterWaiting || s.previous.Since == nil ||
		!s.inProgress(time.Unix(1125, 0)) || s.inProgress(time.Unix(1126, 0)) {
		t.Errorf("during the previous update: %+v", r.clusters)
	}
	if look(1130); line.State != appsv1.ClusterUpdating || line.Since.Unix() != 1130 {
		t.Errorf("with the next update: %+v", line)
	}
	// If the member install cannot be written, no update starts, and the status does not change.
	r = planRollout([]memberInstall{s}, "r2", rolloutOptions{maxConcurrent: 1, now: time.Unix(1200, 0)})
	if r.revertStart(&s); r.clusters[0].Since.Unix() != 1130 {
		t.Errorf("after a failed write: %+v", r.clusters[0])
	}
}

// A reason that an earlier version stored counts as the one that replaced it.
func TestMemberAwaitsRolloutWithReasonOfEarlierVersion(t *testing.T) {
	for stored, current := range currentReasons {
		s := memberAt("a", "busy")
		ready := &s.install.Status.Conditions[0]
		ready.LastTransitionTime = metav1.Unix(1000, 0)
		for reason, want := range map[string]bool{"Progressing": true, stored: false, current: false} {
			if ready.Reason = reason; s.inProgress(time.Unix(1001, 0)) != want {
				t.Errorf("reason %s: in progress is not %t", reason, want)
			}
		}
	}
}

func TestDesiredMember(t *testing.T) {
	in := newInstall("app", "src", nil)
	in.UID = "u"
	in.Labels = map[string]string{"team": "web", "app.kubernetes.io/instance": "x",
		"kustomize.toolkit.fluxcd.io/name": "x"}
	in.Spec.ClusterSelector = &appsv1.ClusterSelector{}
	in.Spec.Suspend = true
	x := desiredMember(in, "prod", "sha256:x")
	if x.Name != "app-prod" || x.Spec.ClusterSelector != nil || x.Spec.ClusterRef.Name != "prod" || x.Spec.Suspend ||
		!metav1.IsControlledBy(x, in) || handover.FleetName(x) != "app" {
		t.Errorf("%+v", x)
	}
	if len(x.Labels) != 2 || x.Labels["team"] != "web" || x.Labels[appsv1.FleetLabel] != "app" {
		t.Errorf("labels %v", x.Labels)
	}
	if in.Spec.ClusterSelector == nil {
		t.Error("the fleet install was changed")
	}
	have := x.DeepCopy()
	have.Labels["mine"] = "stays"
	if !memberUpToDate(have, x) || memberUpToDate(have, desiredMember(in, "prod", "sha256:y")) {
		t.Error("a member install is up to date if spec and digest are equal")
	}
	in.Spec.Strict = true
	want := desiredMember(in, "prod", "sha256:y")
	if got := withDesired(have, want); !memberUpToDate(got, want) || got.Labels["mine"] != "stays" {
		t.Errorf("updated %+v", got)
	}
	long := memberName(strings.Repeat("a", 150), strings.Repeat("b", 150))
	if len(long) > 253 || long == memberName(strings.Repeat("a", 150), strings.Repeat("b", 149)) {
		t.Errorf("name %s", long)
	}
}
