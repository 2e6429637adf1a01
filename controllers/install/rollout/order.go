package rollout

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/install/handover"
)

// turn records when the rollout last released a change to a cluster. It is stored in an annotation
// of the member install.
type turn struct {
	// number increases with each change. It is 0 if no change was released to the cluster yet.
	number int64
	// ahead is true if the cluster had its turn before clusters that had waited longer.
	ahead bool
}

// maxTurn is the largest valid turn number. Larger numbers in an annotation are ignored.
const maxTurn = 1 << 53

// aheadSuffix follows the number of a turn with ahead set.
const aheadSuffix = " ahead"

// lastTurn returns the last turn of a member install, which can be nil. It returns the zero turn if
// the annotation is missing or invalid.
func lastTurn(in *appsv1.KsctlInstall) turn {
	if in == nil {
		return turn{}
	}
	text, ahead := strings.CutSuffix(in.Annotations[appsv1.TurnAnnotation], aheadSuffix)
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || number < 0 || number > maxTurn {
		return turn{}
	}
	return turn{number: number, ahead: ahead}
}

func (t turn) String() string {
	text := strconv.FormatInt(t.number, 10)
	if t.ahead {
		text += aheadSuffix
	}
	return text
}

// scheduledUpdate is the next turn of a cluster. index is its index in the members of the rollout.
type scheduledUpdate struct {
	index    int
	lastTurn turn
	turn     turn
}

// rolloutOrder returns the clusters that need the change, in the order of the rollout: the cluster
// whose last turn is the oldest is first. Clusters that have failed precede the others, because the
// change may correct the failure. A cluster that fails again after it was ahead does not precede
// the others, because otherwise the others might never have a turn.
func rolloutOrder(members []memberInstall, states []appsv1.ClusterState) []scheduledUpdate {
	var first, others []scheduledUpdate
	var latest, currentNumber int64
	for i, s := range members {
		g := scheduledUpdate{index: i, lastTurn: lastTurn(s.install)}
		latest = max(latest, g.lastTurn.number)
		if s.selected && s.upToDate {
			currentNumber = max(currentNumber, g.lastTurn.number)
		}
		switch {
		case !s.selected || s.upToDate || s.nameTaken || states[i] == appsv1.ClusterRemoving:
		case isFailing(s.install) && !g.lastTurn.ahead:
			first = append(first, g)
		default:
			others = append(others, g)
		}
	}
	// All turns of a change have the same number. After a complete rollout the next one is sorted
	// by name again, like those of other installs of the same source, which may depend on this
	// install.
	next := cmp.Or(currentNumber, latest+1)
	byLastTurn := func(a, b scheduledUpdate) int { return cmp.Compare(a.lastTurn.number, b.lastTurn.number) }
	slices.SortStableFunc(first, byLastTurn)
	slices.SortStableFunc(others, byLastTurn)
	for i := range first {
		first[i].turn = turn{number: next, ahead: len(others) > 0 &&
			others[0].lastTurn.number < first[i].lastTurn.number}
	}
	for i := range others {
		others[i].turn.number = next
	}
	return append(first, others...)
}

// isFailing reports whether an install has a failure that another change may correct.
func isFailing(in *appsv1.KsctlInstall) bool {
	if in == nil {
		return false
	}
	ready := handover.ReadyCondition(in)
	return ready.Status == metav1.ConditionFalse && ready.Reason != appsv1.ClusterUnreachableReason
}
