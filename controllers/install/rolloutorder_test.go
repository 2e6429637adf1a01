package install

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

func TestTurnOf(t *testing.T) {
	for text, want := range map[string]turn{
		"7": {number: 7}, "7 ahead": {number: 7, ahead: true},
		"": {}, "x": {}, "-1": {}, " ahead": {}, "7 behind": {}, "99999999999999999999": {}, "9223372036854775807": {},
	} {
		in := &appsv1.KsctlInstall{}
		in.Annotations = map[string]string{appsv1.TurnAnnotation: text}
		if got := turnOf(in); got != want {
			t.Errorf("%q is %+v, want %+v", text, got, want)
		}
		if want.number > 0 && want.String() != text {
			t.Errorf("%+v is written as %q", want, want.String())
		}
	}
	if got := turnOf(nil); got != (turn{}) {
		t.Errorf("no install: %+v", got)
	}
}

func TestTurns(t *testing.T) {
	// sites as name=word, as siteAt has them, or name=word/turn.
	for name, tc := range map[string]struct{ sites, want string }{
		"all by name, from an earlier version":     {"a=ready* b=ready* c=ready*", "a:1 b:1 c:1"},
		"who has waited longest":                   {"a=ready*/4 b=ready*/3 c=ready*/2", "c:5 b:5 a:5"},
		"ties by name":                             {"a=ready*/4 b=ready*/3 c=ready*/3", "b:5 c:5 a:5"},
		"a new one never had any":                  {"a=ready*/4 b= c=ready*/3", "b:5 c:5 a:5"},
		"a change has one number":                  {"a=ready/9 b=ready*/3", "b:9"},
		"who is not picked any more, too":          {"a=dropped/9 b=ready*/3", "b:10"},
		"one has failed":                           {"a=ready*/1 b=ready*/2 c=failed*/3", "c:4 ahead a:4 b:4"},
		"one has failed again":                     {"a=ready*/1 b=ready*/2 c=failed*/3+", "a:4 b:4 c:4"},
		"one has failed whose turn it is":          {"a=failed*/1 b=ready*/2", "a:3 b:3"},
		"all have failed":                          {"a=failed*/2 b=failed*/1", "b:3 a:3"},
		"some have failed":                         {"a=ready*/1 b=failed*/5 c=failed*/4 d=failed*/3+", "c:6 ahead b:6 ahead a:6 d:6"},
		"one does not answer: it has not failed":   {"a=ready*/1 b=away*/3", "a:4 b:4"},
		"one can't be read":                        {"a=ready*/1 b=ready*/x", "b:2 a:2"},
		"those that are not to be changed have no": {"a=taken b=going c=ready/1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var sites []site
			for _, word := range strings.Fields(tc.sites) {
				cluster, how, _ := strings.Cut(word, "=")
				how, last, _ := strings.Cut(how, "/")
				s := siteAt(cluster, how)
				if s.install != nil {
					s.install.Annotations = map[string]string{appsv1.TurnAnnotation: strings.Replace(last, "+", aheadMark, 1)}
				}
				sites = append(sites, s)
			}
			states := make([]appsv1.ClusterState, len(sites))
			for i := range sites {
				states[i] = stateOf(sites[i], "r2", time.Unix(1000, 0))
			}
			var got []string
			for _, g := range turns(sites, states) {
				got = append(got, sites[g.site].cluster+":"+g.turn.String())
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("got %q, want %q", strings.Join(got, " "), tc.want)
			}
		})
	}
}

// world is a roll-out to clusters that are nothing but how their installs stand.
type world struct {
	sites   []site
	options rolloutOptions
	// breaks tells whether a cluster can't take in a revision, and lasts how many steps it takes.
	breaks func(cluster, revision int) bool
	lasts  func() int
	// revision of the source, those that clusters may take in, and when they are done.
	revision int
	may      []int
	done     []int
	// given is when each was given a change last.
	given []int
	now   int
}

func newWorld(clusters int, o rolloutOptions) *world {
	w := &world{options: o, breaks: func(int, int) bool { return false }, lasts: func() int { return 1 },
		may: make([]int, clusters), done: make([]int, clusters), given: make([]int, clusters)}
	w.options.now = time.Unix(1000, 0)
	for i := range clusters {
		w.sites = append(w.sites, site{cluster: fmt.Sprintf("c%03d", i), picked: true})
	}
	return w
}

// step plans once, after what was under way has gone on. It returns how many take in a change.
func (w *world) step() (busy int) {
	w.now++
	for i := range w.sites {
		s := &w.sites[i]
		s.current = s.install != nil && w.may[i] == w.revision
		if s.install != nil && w.done[i] == w.now {
			w.stand(i, metav1.ConditionTrue)
			if w.breaks(i, w.may[i]) {
				w.stand(i, metav1.ConditionFalse)
			}
		}
	}
	r := planRollout(w.sites, fmt.Sprint(w.revision), w.options)
	for i := range w.sites {
		s := &w.sites[i]
		if turn, ok := r.change[s.cluster]; ok {
			s.install = &appsv1.KsctlInstall{}
			s.install.Annotations = map[string]string{appsv1.TurnAnnotation: turn.String()}
			w.may[i], w.done[i], w.given[i] = w.revision, w.now+w.lasts(), w.now
			w.stand(i, metav1.ConditionUnknown)
		}
		if s.install != nil && w.done[i] > w.now {
			busy++
		}
	}
	return busy
}

func (w *world) stand(i int, ready metav1.ConditionStatus) {
	in := w.sites[i].install
	in.Status.Conditions = []metav1.Condition{{Type: appsv1.ReadyCondition, Status: ready, LastTransitionTime: metav1.Unix(999, 0)}}
	if ready == metav1.ConditionTrue {
		in.Status.LastAppliedRevision = fmt.Sprint(w.may[i])
	}
}

// waits is how many steps the cluster has waited that waits longest.
func (w *world) waits() (longest int) {
	for _, at := range w.given {
		longest = max(longest, w.now-at)
	}
	return longest
}

// However often there is another commit, each cluster gets its turn: beside its own, one that fails
// gets at most two while another waits.
func TestEachClusterGetsItsTurn(t *testing.T) {
	for _, stop := range []bool{true, false} {
		for _, clusters := range []int{1, 2, 7, 31} {
			for _, most := range []int{1, 3, 5, 200} {
				rounds := (clusters + most - 1) / most
				for _, broken := range []int{0, 1, clusters / 2, clusters} {
					t.Run(fmt.Sprintf("%d clusters, %d at a time, %d broken, stop %t", clusters, most, broken, stop), func(t *testing.T) {
						w := newWorld(clusters, rolloutOptions{maxConcurrent: most, stop: stop})
						w.breaks = func(cluster, _ int) bool { return cluster < broken }
						within := rounds
						if broken > 0 {
							within *= 3
						}
						for w.now < 8*rounds+10 {
							w.revision++
							if busy := w.step(); busy > most {
								t.Fatalf("step %d: %d at a time", w.now, busy)
							}
							if n := w.waits(); n > within {
								t.Fatalf("step %d: one has waited %d steps, more than %d", w.now, n, within)
							}
						}
					})
				}
			}
		}
	}
}

// The same at random: commits now and then, changes that take a while, clusters that can't take in one.
func TestEachClusterGetsItsTurnAtRandom(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		clusters, most, slow := 1+r.IntN(25), 1+r.IntN(6), 1+r.IntN(4)
		w := newWorld(clusters, rolloutOptions{maxConcurrent: most, stop: r.IntN(2) == 0})
		bad, often := r.IntN(4), 1+r.IntN(3)
		w.breaks = func(cluster, revision int) bool { return (cluster*7+revision*13)%5 < bad }
		w.lasts = func() int { return 1 + r.IntN(slow) }
		within := 3 * ((clusters+most-1)/most + 1) * (slow + often)
		for w.now < 6*within {
			// With Stop nothing goes on without another commit.
			if w.now%often == 0 {
				w.revision++
			}
			if busy := w.step(); busy > most {
				t.Fatalf("seed %d, step %d: %d at a time", seed, w.now, busy)
			}
			if n := w.waits(); n > within && !w.settled() {
				t.Fatalf("seed %d, step %d: one of %d clusters, %d at a time, has waited %d steps, more than %d", seed, w.now, clusters, most, n, within)
			}
		}
	}
}

// settled is true when nothing waits for a change.
func (w *world) settled() bool {
	for i := range w.sites {
		if w.sites[i].install == nil || w.may[i] != w.revision {
			return false
		}
	}
	return true
}
