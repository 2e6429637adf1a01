package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/install/handover"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// memberInstall is a cluster that an install is, or was, for, and the member install for the
// cluster.
type memberInstall struct {
	cluster string
	// install is the existing member install, or nil. desired is its desired state.
	install, desired *appsv1.KsctlInstall
	// previous is the cluster's entry in the status. It is nil for a new cluster.
	previous *appsv1.InstalledCluster
	// selected is true if the selector matches the cluster. upToDate is true if the member install
	// has the desired spec, and the artifact of the source is released to it.
	selected, upToDate bool
	// clusterGone is true if the KsctlCluster is deleted or being deleted. nameTaken is true if an
	// install of another owner has the name of the member install.
	clusterGone, nameTaken bool
}

// rollout is the next step of a rollout of a change to clusters.
type rollout struct {
	// updates are the clusters whose member install is created or updated now, with their turns.
	// removals are the clusters whose member install is deleted now.
	updates  map[string]turn
	removals []string
	clusters []appsv1.InstalledCluster
	counts   map[appsv1.ClusterState]int
	// approvalDigest is the digest that approves the pending removals. It is empty if no removal
	// needs an approval.
	approvalDigest string
}

// waitTypes has the type of the wait for a cluster by its state. The other states wait for the
// rollout.
var waitTypes = map[appsv1.ClusterState]appsv1.WaitType{
	appsv1.ClusterUpdating: appsv1.WaitReadiness, appsv1.ClusterFailed: appsv1.WaitReadiness,
	appsv1.ClusterUnreachable: appsv1.WaitReadiness, appsv1.ClusterRemoving: appsv1.WaitDeletion,
}

// waits returns the clusters that are not ready; without any, the selector waits for clusters.
func (r *rollout) waits(in *appsv1.KsctlInstall) []appsv1.WaitReference {
	var out []appsv1.WaitReference
	for _, c := range r.clusters {
		if c.State != appsv1.ClusterReady {
			out = append(out, appsv1.WaitReference{Type: cmp.Or(waitTypes[c.State], appsv1.WaitRollout),
				Kind: appsv1.KsctlInstallKind, Namespace: in.Namespace, Name: c.Install, Object: c.Name})
		}
	}
	if len(out) == 0 {
		out = append(out, appsv1.WaitReference{Type: appsv1.WaitReadiness, Kind: clusterv1.KsctlClusterKind,
			Namespace: in.Namespace, Name: "*"})
	}
	return out
}

// planRollout plans the next step. It is a pure function. members are sorted by cluster name.
func planRollout(members []memberInstall, revision string, o rolloutOptions) rollout {
	r := rollout{updates: map[string]turn{}, counts: map[appsv1.ClusterState]int{}}
	states := make([]appsv1.ClusterState, len(members))
	busy, failed := 0, 0
	for i, s := range members {
		states[i] = clusterState(s, revision, o.now)
		switch {
		case !s.selected:
		case !s.upToDate:
			if s.inProgress(o.now) { // with the previous change
				busy++
			}
		case states[i] == appsv1.ClusterUpdating:
			busy++
		case states[i] == appsv1.ClusterFailed:
			failed++
		}
	}
	free := o.maxConcurrent - busy
	if o.stopOnFailure && failed > 0 {
		free = 0
	}
	for _, g := range rolloutOrder(members, states) {
		if free <= 0 {
			break
		}
		free--
		states[g.index] = appsv1.ClusterUpdating
		r.updates[members[g.index].cluster] = g.turn
	}
	r.planRemovals(members, states, o.approved)
	for i, s := range members {
		line := clusterStatus(s, states[i])
		_, starts := r.updates[s.cluster]
		line.Since = s.updatingSince(states[i], starts, o.now)
		r.clusters = append(r.clusters, line)
		r.counts[states[i]]++
	}
	return r
}

// rolloutOptions are the settings of a rollout from the spec and the annotations.
type rolloutOptions struct {
	maxConcurrent int
	// stopOnFailure stops the rollout when a cluster fails.
	stopOnFailure bool
	// approved is the digest of the approved removals.
	approved string
	now      time.Time
}

// inProgress reports whether the member install is being applied.
func (s *memberInstall) inProgress(now time.Time) bool {
	in := s.install
	if in == nil || in.DeletionTimestamp != nil {
		return false
	}
	ready := handover.ReadyCondition(in)
	switch {
	case ready.Status == "" || ready.ObservedGeneration != in.Generation:
		return true
	case ready.Status != metav1.ConditionUnknown || currentReason(ready.Reason) == appsv1.AwaitingRolloutReason ||
		ready.Reason == appsv1.ClusterNotReadyReason:
		return false
	case !isOverdue(in, ready, now):
		return true
	}
	// The start of the update is unknown.
	unknown := s.previous != nil && s.previous.State == appsv1.ClusterWaiting && s.previous.Since == nil
	return !unknown && !s.timedOut(now)
}

// isOverdue reports whether the Ready condition of an install has not changed for longer than its
// timeout.
func isOverdue(in *appsv1.KsctlInstall, ready metav1.Condition, now time.Time) bool {
	return now.Sub(ready.LastTransitionTime.Time) > reconcile.Timeout(&in.Spec.Schedule)
}

// planRemovals decides which member installs are deleted: those of deleted clusters, and those of
// clusters that the selector no longer matches. The latter need an approval if they are more than
// half of at least three member installs.
func (r *rollout) planRemovals(members []memberInstall, states []appsv1.ClusterState, approved string) {
	var dropped, identities []string
	total := 0
	for i, s := range members {
		if s.install == nil {
			continue
		}
		if total++; s.selected || states[i] == appsv1.ClusterRemoving {
			continue
		}
		if s.clusterGone {
			r.removals = append(r.removals, s.cluster)
			continue
		}
		dropped = append(dropped, s.cluster)
		identities = append(identities, s.cluster+" "+string(s.install.UID)) // the UID invalidates earlier approvals
	}
	if total > 2 && 2*len(dropped) > total {
		if digest := shortDigest(identities); digest != approved {
			r.approvalDigest = digest
			return
		}
	}
	r.removals = append(r.removals, dropped...)
}

func shortDigest(names []string) string {
	return shortHash(strings.Join(names, "/"))[:12]
}

// clusterState returns the state of a cluster.
func clusterState(s memberInstall, revision string, now time.Time) appsv1.ClusterState {
	switch {
	case s.nameTaken:
		return appsv1.ClusterFailed
	case s.install == nil:
		return appsv1.ClusterWaiting
	case s.install.DeletionTimestamp != nil:
		return appsv1.ClusterRemoving
	case s.selected && !s.upToDate:
		return appsv1.ClusterWaiting
	}
	ready := handover.ReadyCondition(s.install)
	switch {
	case ready.Status == "" || ready.ObservedGeneration != s.install.Generation:
		return appsv1.ClusterUpdating
	case ready.Reason == appsv1.ClusterNotReadyReason:
		return appsv1.ClusterUnreachable
	case ready.Status == metav1.ConditionUnknown && isOverdue(s.install, ready, now) && s.timedOut(now):
		return appsv1.ClusterFailed
	case ready.Status == metav1.ConditionUnknown:
		return appsv1.ClusterUpdating
	case ready.Status == metav1.ConditionFalse && ready.Reason == appsv1.ClusterUnreachableReason:
		return appsv1.ClusterUnreachable
	case ready.Status == metav1.ConditionFalse:
		return appsv1.ClusterFailed
	case s.install.Status.LastAppliedRevision != revision && !handover.IsFullyRemoved(s.install):
		return appsv1.ClusterUpdating
	}
	return appsv1.ClusterReady
}

// timedOut reports whether the current update of a cluster has taken longer than the timeout. The
// time before the update does not count: the cluster may have waited for its kubeconfig or the
// rollout.
func (s *memberInstall) timedOut(now time.Time) bool {
	switch b := s.previous; {
	case b == nil:
		return false
	case b.Since != nil:
		return now.Sub(b.Since.Time) > reconcile.Timeout(&s.install.Spec.Schedule)
	default:
		return b.State == appsv1.ClusterFailed || b.State == appsv1.ClusterUpdating
	}
}

// updatingSince returns the start of the current update of a cluster, or nil if there is none. A
// cluster that waits for the rollout of a change may still apply the previous change. starts is
// true if an update starts now.
func (s *memberInstall) updatingSince(state appsv1.ClusterState, starts bool, now time.Time) *metav1.Time {
	updating := s.previous != nil && s.previous.Since != nil && !starts
	switch {
	case state == appsv1.ClusterWaiting && updating && s.inProgress(now), state == appsv1.ClusterUpdating && updating:
		return s.previous.Since
	case state == appsv1.ClusterUpdating:
		return &metav1.Time{Time: now}
	}
	return nil
}

// revertStart restores the start of the previous update of a cluster whose member install could not
// be written.
func (r *rollout) revertStart(s *memberInstall) {
	for i := range r.clusters {
		if r.clusters[i].Name == s.cluster && s.previous != nil && s.previous.Since != nil {
			r.clusters[i].Since = s.previous.Since
		}
	}
}

// maxClusterMessage is the maximum length of the message of a cluster in the status, in bytes.
// There may be a thousand clusters.
const maxClusterMessage = 256

// clusterStatus returns the entry of a cluster in the status.
func clusterStatus(s memberInstall, state appsv1.ClusterState) appsv1.InstalledCluster {
	line := appsv1.InstalledCluster{Name: s.cluster, State: state}
	if s.nameTaken {
		line.Message = "the name of the KsctlInstall for this cluster is used " +
			"by a KsctlInstall with another owner: rename one of them"
	}
	if s.install == nil {
		return line
	}
	line.Install, line.Revision = s.install.Name, s.install.Status.LastAppliedRevision
	if state != appsv1.ClusterReady && state != appsv1.ClusterWaiting {
		line.Message = reconcile.Truncate(reconcile.QuotedMessage(s.install.Status.Conditions), maxClusterMessage)
	}
	return line
}

// summary returns a message with the number of ready clusters, and the clusters in other states.
func (r *rollout) summary() string {
	out := fmt.Sprintf("%d of %d clusters are ready", r.counts[appsv1.ClusterReady], len(r.clusters))
	for _, s := range []struct {
		state appsv1.ClusterState
		words string
	}{
		{appsv1.ClusterFailed, "failed"}, {appsv1.ClusterUnreachable, "unreachable"},
		{appsv1.ClusterUpdating, "updating"},
		{appsv1.ClusterWaiting, "waiting"}, {appsv1.ClusterRemoving, "removing"},
	} {
		if n := r.counts[s.state]; n > 0 {
			out += fmt.Sprintf("; %d %s: %s", n, s.words, r.clustersIn(s.state))
		}
	}
	return out
}

// clustersIn returns the names of the clusters in a state.
func (r *rollout) clustersIn(state appsv1.ClusterState) string {
	var names []string
	for _, c := range r.clusters {
		if c.State == state {
			names = append(names, c.Name)
		}
	}
	return reconcile.JoinNames(names)
}

// firstMessage returns the message of the first cluster in a state, as a suffix of a message.
func (r *rollout) firstMessage(state appsv1.ClusterState) string {
	i := slices.IndexFunc(r.clusters, func(l appsv1.InstalledCluster) bool { return l.State == state })
	if i < 0 || r.clusters[i].Message == "" {
		return ""
	}
	return ": " + r.clusters[i].Message
}
