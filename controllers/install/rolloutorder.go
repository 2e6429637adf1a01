package install

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/clusters/target"
)

// turn is when a cluster was last given a change.
type turn struct {
	// number is larger than those of all turns before; 0: there was none.
	number int64
	// ahead is true when others had waited longer.
	ahead bool
}

// mostTurns is the largest number of a turn: there is one for each change.
const mostTurns = 1 << 53

// aheadMark is behind the number of a turn that was given ahead of others.
const aheadMark = " ahead"

// turnOf is the last turn of an install that was made for a cluster, nil: none was.
func turnOf(in *appsv1.KsctlInstall) turn {
	if in == nil {
		return turn{}
	}
	text, ahead := strings.CutSuffix(in.Annotations[appsv1.TurnAnnotation], aheadMark)
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || number < 0 || number > mostTurns {
		return turn{}
	}
	return turn{number: number, ahead: ahead}
}

func (t turn) String() string {
	text := strconv.FormatInt(t.number, 10)
	if t.ahead {
		text += aheadMark
	}
	return text
}

// given is the turn that the cluster at an index of the sites is given.
type given struct {
	site int
	last turn
	turn turn
}

// turns are those of the sites that wait for a change, in their order: who was given one least
// recently comes first. One that has failed may wait for it most, and comes before; but if it
// fails again it keeps to the order, or others would never get theirs.
func turns(sites []site, states []appsv1.ClusterState) []given {
	var first, then []given
	var latest, this int64
	for i, s := range sites {
		g := given{site: i, last: turnOf(s.install)}
		latest = max(latest, g.last.number)
		if s.picked && s.current {
			this = max(this, g.last.number)
		}
		switch {
		case !s.picked || s.current || s.taken || states[i] == appsv1.ClusterRemoving:
		case isFailing(s.install) && !g.last.ahead:
			first = append(first, g)
		default:
			then = append(then, g)
		}
	}
	// Turns of one change have one number: when all have had theirs, they go by name again, as do
	// other installs of the same source, which may have to wait for this one.
	next := cmp.Or(this, latest+1)
	longest := func(a, b given) int { return cmp.Compare(a.last.number, b.last.number) }
	slices.SortStableFunc(first, longest)
	slices.SortStableFunc(then, longest)
	for i := range first {
		first[i].turn = turn{number: next, ahead: len(then) > 0 && then[0].last.number < first[i].last.number}
	}
	for i := range then {
		then[i].turn.number = next
	}
	return append(first, then...)
}

// isFailing is true for an install that another change may mend.
func isFailing(in *appsv1.KsctlInstall) bool {
	if in == nil {
		return false
	}
	ready := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition)
	return ready != nil && ready.Status == metav1.ConditionFalse && ready.Reason != target.ClusterUnreachableReason
}
