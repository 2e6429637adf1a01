package install

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
)

// site is one cluster that an install is for, or was.
type site struct {
	cluster string
	// install that was made for it, nil: none; want is how it is to be.
	install, want *appsv1.KsctlInstall
	// before is how it stood; nil: nobody has looked yet.
	before *appsv1.InstalledCluster
	// picked is true while the selector picks the cluster; current when the install is as it
	// is to be, and may take in what the source has.
	picked, current bool
	// lost is true for a cluster that is gone, or on its way; taken where somebody else's
	// install has the name of the one that it is to have.
	lost, taken bool
}

// rollout is the next step of bringing a change to clusters.
type rollout struct {
	// change are the clusters whose install is made or changed now, remove those whose goes.
	change map[string]turn
	remove []string
	lines  []appsv1.InstalledCluster
	counts map[appsv1.ClusterState]int
	// held is the digest of removals that wait for somebody to approve them; empty: none do.
	held string
}

// planRollout takes the next step. It is a pure function: sites are in the order of their names.
func planRollout(sites []site, revision string, o rolloutOptions) rollout {
	r := rollout{change: map[string]turn{}, counts: map[appsv1.ClusterState]int{}}
	states := make([]appsv1.ClusterState, len(sites))
	busy, failed := 0, 0
	for i, s := range sites {
		states[i] = stateOf(s, revision, o.now)
		switch {
		case !s.picked:
		case !s.current:
			if s.inProgress(o.now) { // with what it was to take in before
				busy++
			}
		case states[i] == appsv1.ClusterUpdating:
			busy++
		case states[i] == appsv1.ClusterFailed:
			failed++
		}
	}
	free := o.maxConcurrent - busy
	if o.stop && failed > 0 {
		free = 0
	}
	for _, g := range turns(sites, states) {
		if free <= 0 {
			break
		}
		free--
		states[g.site] = appsv1.ClusterUpdating
		r.change[sites[g.site].cluster] = g.turn
	}
	r.leave(sites, states, o.approved)
	for i, s := range sites {
		line := lineOf(s, states[i])
		_, begins := r.change[s.cluster]
		line.Since = s.since(states[i], begins, o.now)
		r.lines = append(r.lines, line)
		r.counts[states[i]]++
	}
	return r
}

// rolloutOptions are what the spec says of it.
type rolloutOptions struct {
	maxConcurrent int
	// stop is true when nothing goes on once a cluster has failed.
	stop bool
	// approved is the digest of removals that somebody has approved.
	approved string
	now      time.Time
}

// inProgress is true for a cluster whose install is taking something in.
func (s *site) inProgress(now time.Time) bool {
	in := s.install
	if in == nil || in.DeletionTimestamp != nil {
		return false
	}
	ready := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition)
	switch {
	case ready == nil || ready.ObservedGeneration != in.Generation:
		return true
	case ready.Status != metav1.ConditionUnknown || ready.Reason == WaitsForTurnReason || ready.Reason == target.ClusterNotReadyReason:
		return false
	case !isLate(in, ready, now):
		return true
	}
	unknown := s.before != nil && s.before.State == appsv1.ClusterWaiting && s.before.Since == nil // since when it is at it
	return !unknown && !s.hadTime(now)
}

// isLate is true for an install that has not come to an end for longer than its timeout.
func isLate(in *appsv1.KsctlInstall, ready *metav1.Condition, now time.Time) bool {
	return now.Sub(ready.LastTransitionTime.Time) > reconcile.Timeout(&in.Spec.Schedule)
}

// leave decides which installs go. Of a cluster that is gone its install does; that a
// selector picks much less than before is held until somebody approves of it.
func (r *rollout) leave(sites []site, states []appsv1.ClusterState, approved string) {
	var dropped, these []string
	have := 0
	for i, s := range sites {
		if s.install == nil {
			continue
		}
		if have++; s.picked || states[i] == appsv1.ClusterRemoving {
			continue
		}
		if s.lost {
			r.remove = append(r.remove, s.cluster)
			continue
		}
		dropped = append(dropped, s.cluster)
		these = append(these, s.cluster+" "+string(s.install.UID)) // of an approval of before nothing is left
	}
	if have > 2 && 2*len(dropped) > have {
		if digest := digestOf(these); digest != approved {
			r.held = digest
			return
		}
	}
	r.remove = append(r.remove, dropped...)
}

func digestOf(names []string) string {
	sum := sha256.Sum256([]byte(strings.Join(names, "/")))
	return hex.EncodeToString(sum[:6])
}

// stateOf says how one cluster stands.
func stateOf(s site, revision string, now time.Time) appsv1.ClusterState {
	switch {
	case s.taken:
		return appsv1.ClusterFailed
	case s.install == nil:
		return appsv1.ClusterWaiting
	case s.install.DeletionTimestamp != nil:
		return appsv1.ClusterRemoving
	case s.picked && !s.current:
		return appsv1.ClusterWaiting
	}
	ready := apimeta.FindStatusCondition(s.install.Status.Conditions, appsv1.ReadyCondition)
	switch {
	case ready == nil || ready.ObservedGeneration != s.install.Generation:
		return appsv1.ClusterUpdating
	case ready.Reason == target.ClusterNotReadyReason:
		return appsv1.ClusterUnreachable
	case ready.Status == metav1.ConditionUnknown && isLate(s.install, ready, now) && s.hadTime(now):
		return appsv1.ClusterFailed
	case ready.Status == metav1.ConditionUnknown:
		return appsv1.ClusterUpdating
	case ready.Status == metav1.ConditionFalse && ready.Reason == target.ClusterUnreachableReason:
		return appsv1.ClusterUnreachable
	case ready.Status == metav1.ConditionFalse:
		return appsv1.ClusterFailed
	case s.install.Status.LastAppliedRevision != revision && !removedWhole(s.install):
		return appsv1.ClusterUpdating
	}
	return appsv1.ClusterReady
}

// hadTime is true for a cluster that has taken in a change for longer than the timeout: before, it may
// have waited for its kubeconfig or its turn for long.
func (s *site) hadTime(now time.Time) bool {
	switch b := s.before; {
	case b == nil:
		return false
	case b.Since != nil:
		return now.Sub(b.Since.Time) > reconcile.Timeout(&s.install.Spec.Schedule)
	default:
		return b.State == appsv1.ClusterFailed || b.State == appsv1.ClusterUpdating
	}
}

// since is when a cluster began with the change that it takes in; nil: it takes in none. One that waits
// for its turn may be at the change before.
func (s *site) since(state appsv1.ClusterState, begins bool, now time.Time) *metav1.Time {
	began := s.before != nil && s.before.Since != nil && !begins
	switch {
	case state == appsv1.ClusterWaiting && began && s.inProgress(now), state == appsv1.ClusterUpdating && began:
		return s.before.Since
	case state == appsv1.ClusterUpdating:
		return &metav1.Time{Time: now}
	}
	return nil
}

// refuse is for a cluster whose change could not be written: it does not begin.
func (r *rollout) refuse(s *site) {
	for i := range r.lines {
		if r.lines[i].Name == s.cluster && s.before != nil && s.before.Since != nil {
			r.lines[i].Since = s.before.Since
		}
	}
}

func readyStatus(in *appsv1.KsctlInstall) metav1.ConditionStatus {
	if c := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition); c != nil {
		return c.Status
	}
	return metav1.ConditionUnknown
}

// maxLineMessage bounds what a line says, in bytes: there may be a thousand.
const maxLineMessage = 256

func lineOf(s site, state appsv1.ClusterState) appsv1.InstalledCluster {
	line := appsv1.InstalledCluster{Name: s.cluster, State: state}
	if s.taken {
		line.Message = "the KsctlInstall that it is to have exists, and is somebody else's: rename one of the two"
	}
	if s.install == nil {
		return line
	}
	line.Install, line.Revision = s.install.Name, s.install.Status.LastAppliedRevision
	if state != appsv1.ClusterReady && state != appsv1.ClusterWaiting {
		line.Message = bounded(readyMessage(s.install), maxLineMessage)
	}
	return line
}

// words says how many clusters are how.
func (r *rollout) words() string {
	total := 0
	for _, n := range r.counts {
		total += n
	}
	out := fmt.Sprintf("%d of %d clusters are ready", r.counts[appsv1.ClusterReady], total)
	for _, s := range []struct {
		state appsv1.ClusterState
		words string
	}{
		{appsv1.ClusterFailed, "failed"}, {appsv1.ClusterUnreachable, "do not answer"}, {appsv1.ClusterUpdating, "take in the change"},
		{appsv1.ClusterWaiting, "wait for their turn"}, {appsv1.ClusterRemoving, "are being cleared"},
	} {
		if n := r.counts[s.state]; n > 0 {
			out += fmt.Sprintf("; %d %s: %s", n, s.words, r.named(s.state))
		}
	}
	return out
}

// named are the clusters in a state.
func (r *rollout) named(state appsv1.ClusterState) string {
	var names []string
	for i := range r.lines {
		if r.lines[i].State == state {
			names = append(names, r.lines[i].Name)
		}
	}
	return list(names)
}

// first is what the first cluster in a state says.
func (r *rollout) first(state appsv1.ClusterState) string {
	i := slices.IndexFunc(r.lines, func(l appsv1.InstalledCluster) bool { return l.State == state })
	if i < 0 || r.lines[i].Message == "" {
		return ""
	}
	return ": " + r.lines[i].Message
}
