package rollout

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

func TestLastTurn(t *testing.T) {
	for text, want := range map[string]turn{
		"7": {number: 7}, "7 ahead": {number: 7, ahead: true},
		"": {}, "x": {}, "-1": {}, " ahead": {}, "7 behind": {}, "99999999999999999999": {}, "9223372036854775807": {},
	} {
		in := &appsv1.KsctlInstall{}
		in.Annotations = map[string]string{appsv1.TurnAnnotation: text}
		if got := lastTurn(in); got != want {
			t.Errorf("%q is parsed as %+v, want %+v", text, got, want)
		}
		if want.number > 0 && want.String() != text {
			t.Errorf("%+v is formatted as %q", want, want.String())
		}
	}
	if got := lastTurn(nil); got != (turn{}) {
		t.Errorf("without a member install: %+v", got)
	}
}

func TestRolloutOrder(t *testing.T) {
	// members are clusters as name=state or name=state/turn, see memberAt. A + stands for ahead.
	for name, tc := range map[string]struct{ members, want string }{
		"no turns, created by an earlier version": {"a=ready* b=ready* c=ready*", "a:1 b:1 c:1"},
		"oldest turn first":                       {"a=ready*/4 b=ready*/3 c=ready*/2", "c:5 b:5 a:5"},
		"same turn: sorted by name":               {"a=ready*/4 b=ready*/3 c=ready*/3", "b:5 c:5 a:5"},
		"a new cluster has no turn":               {"a=ready*/4 b= c=ready*/3", "b:5 c:5 a:5"},
		"the turns of a change have one number":   {"a=ready/9 b=ready*/3", "b:9"},
		"an unselected cluster has a later turn":  {"a=dropped/9 b=ready*/3", "b:10"},
		"one has failed":                          {"a=ready*/1 b=ready*/2 c=failed*/3", "c:4 ahead a:4 b:4"},
		"one has failed again after it was ahead": {"a=ready*/1 b=ready*/2 c=failed*/3+", "a:4 b:4 c:4"},
		"the next one has failed":                 {"a=failed*/1 b=ready*/2", "a:3 b:3"},
		"all have failed":                         {"a=failed*/2 b=failed*/1", "b:3 a:3"},
		"some have failed": {"a=ready*/1 b=failed*/5 c=failed*/4 d=failed*/3+",
			"c:6 ahead b:6 ahead a:6 d:6"},
		"unreachable is not failed":   {"a=ready*/1 b=away*/3", "a:4 b:4"},
		"invalid annotation":          {"a=ready*/1 b=ready*/x", "b:2 a:2"},
		"no cluster needs the change": {"a=taken b=going c=ready/1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var members []memberInstall
			for _, member := range strings.Fields(tc.members) {
				cluster, how, _ := strings.Cut(member, "=")
				how, last, _ := strings.Cut(how, "/")
				s := memberAt(cluster, how)
				if s.install != nil {
					s.install.Annotations = map[string]string{appsv1.TurnAnnotation: strings.Replace(last, "+",
						aheadSuffix, 1)}
				}
				members = append(members, s)
			}
			states := make([]appsv1.ClusterState, len(members))
			for i := range members {
				states[i] = clusterState(members[i], "r2", time.Unix(1000, 0))
			}
			var got []string
			for _, g := range rolloutOrder(members, states) {
				got = append(got, members[g.index].cluster+":"+g.turn.String())
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("got %q, want %q", strings.Join(got, " "), tc.want)
			}
		})
	}
}

// rolloutSimulation simulates a rollout. Its clusters are only the states of their member installs.
type rolloutSimulation struct {
	members []memberInstall
	options rolloutOptions
	// fails reports whether a cluster fails to apply a revision. duration returns the number of
	// steps that an update takes.
	fails    func(cluster, revision int) bool
	duration func() int
	// revision is the revision of the source. released has the released revision of each cluster,
	// and doneAt the step at which its update ends.
	revision int
	released []int
	doneAt   []int
	// startedAt has the step at which the last update of each cluster started.
	startedAt []int
	now       int
}

func newRolloutSimulation(clusters int, o rolloutOptions) *rolloutSimulation {
	w := &rolloutSimulation{options: o, fails: func(int, int) bool { return false }, duration: func() int { return 1 },
		released: make([]int, clusters), doneAt: make([]int, clusters), startedAt: make([]int, clusters)}
	w.options.now = time.Unix(1000, 0)
	for i := range clusters {
		w.members = append(w.members, memberInstall{cluster: fmt.Sprintf("c%03d", i), selected: true})
	}
	return w
}

// step advances the running updates by one step, and then plans the rollout once. It returns the
// number of running updates.
func (w *rolloutSimulation) step() (busy int) {
	w.now++
	for i := range w.members {
		s := &w.members[i]
		s.upToDate = s.install != nil && w.released[i] == w.revision
		if s.install != nil && w.doneAt[i] == w.now {
			w.setReady(i, metav1.ConditionTrue)
			if w.fails(i, w.released[i]) {
				w.setReady(i, metav1.ConditionFalse)
			}
		}
	}
	r := planRollout(w.members, fmt.Sprint(w.revision), w.options)
	for i := range w.members {
		s := &w.members[i]
		if turn, ok := r.updates[s.cluster]; ok {
			s.install = &appsv1.KsctlInstall{}
			s.install.Annotations = map[string]string{appsv1.TurnAnnotation: turn.String()}
			w.released[i], w.doneAt[i], w.startedAt[i] = w.revision, w.now+w.duration(), w.now
			w.setReady(i, metav1.ConditionUnknown)
		}
		if s.install != nil && w.doneAt[i] > w.now {
			busy++
		}
	}
	return busy
}

func (w *rolloutSimulation) setReady(i int, ready metav1.ConditionStatus) {
	in := w.members[i].install
	in.Status.Conditions = []metav1.Condition{{Type: appsv1.ReadyCondition, Status: ready,
		LastTransitionTime: metav1.Unix(999, 0)}}
	if ready == metav1.ConditionTrue {
		in.Status.LastAppliedRevision = fmt.Sprint(w.released[i])
	}
}

// longestWait returns the largest number of steps since the last update of a cluster.
func (w *rolloutSimulation) longestWait() (longest int) {
	for _, at := range w.startedAt {
		longest = max(longest, w.now-at)
	}
	return longest
}

// Each cluster is updated, however often there is a new commit. While a cluster waits, a failing
// cluster has at most two turns in addition to its regular turn.
func TestRolloutUpdatesEachClusterDespiteNewCommits(t *testing.T) {
	for _, stop := range []bool{true, false} {
		for _, clusters := range []int{1, 2, 7, 31} {
			for _, maxConcurrent := range []int{1, 3, 5, 200} {
				rounds := (clusters + maxConcurrent - 1) / maxConcurrent
				for _, failing := range []int{0, 1, clusters / 2, clusters} {
					name := fmt.Sprintf("%d clusters, %d concurrent, %d failing, stop %t",
						clusters, maxConcurrent, failing, stop)
					t.Run(name, func(t *testing.T) {
						w := newRolloutSimulation(clusters,
							rolloutOptions{maxConcurrent: maxConcurrent, stopOnFailure: stop})
						w.fails = func(cluster, _ int) bool { return cluster < failing }
						within := rounds
						if failing > 0 {
							within *= 3
						}
						for w.now < 8*rounds+10 {
							w.revision++
							if busy := w.step(); busy > maxConcurrent {
								t.Fatalf("step %d: %d concurrent updates", w.now, busy)
							}
							if n := w.longestWait(); n > within {
								t.Fatalf("step %d: a cluster has waited %d steps, more than %d", w.now, n, within)
							}
						}
					})
				}
			}
		}
	}
}

// The same with random commits, durations of updates, and failures.
func TestRolloutUpdatesEachClusterAtRandom(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		clusters, maxConcurrent, slow := 1+r.IntN(25), 1+r.IntN(6), 1+r.IntN(4)
		w := newRolloutSimulation(clusters, rolloutOptions{maxConcurrent: maxConcurrent, stopOnFailure: r.IntN(2) == 0})
		bad, often := r.IntN(4), 1+r.IntN(3)
		w.fails = func(cluster, revision int) bool { return (cluster*7+revision*13)%5 < bad }
		w.duration = func() int { return 1 + r.IntN(slow) }
		within := 3 * ((clusters+maxConcurrent-1)/maxConcurrent + 1) * (slow + often)
		for w.now < 6*within {
			// With onFailure Stop, the rollout continues only with another commit.
			if w.now%often == 0 {
				w.revision++
			}
			if busy := w.step(); busy > maxConcurrent {
				t.Fatalf("seed %d, step %d: %d concurrent updates", seed, w.now, busy)
			}
			if n := w.longestWait(); n > within && !w.complete() {
				t.Fatalf("seed %d, step %d: of %d clusters with %d concurrent updates, one has waited %d steps, more "+
					"than %d", seed, w.now, clusters, maxConcurrent, n, within)
			}
		}
	}
}

// complete reports whether the current revision is released to all clusters.
func (w *rolloutSimulation) complete() bool {
	for i := range w.members {
		if w.members[i].install == nil || w.released[i] != w.revision {
			return false
		}
	}
	return true
}
