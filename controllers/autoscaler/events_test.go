package autoscaler

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
)

// teller records what reconciles of a world say and count.
type teller struct {
	*world
	steps *Steps
	// refuse is why the status can't be written; nil: it can.
	refuse  error
	said    []string
	counted []string
}

func newTeller(t *testing.T, sizes ...string) *teller {
	x := &teller{world: newWorld(t, sizes...)}
	x.steps = &Steps{Client: cacheWith(t), Published: nodegroup.NewClusters(), Links: &Links{}, Scaled: func(key types.NamespacedName, pool, operation, result string) {
		x.counted = append(x.counted, strings.Join([]string{key.String(), pool, operation, result}, " "))
	}}
	return x
}

// record is one reconcile, up to where it has been said what was done.
func (x *teller) record() error {
	x.t.Helper()
	x.steps.Clock = clocktesting.NewFakeClock(x.now)
	seen := &sight{fleet: x.fleet(), word: x.word, cluster: x.cluster(), late: x.late}
	req := &reconcile.Request[*clusterv1.KsctlAutoScaler]{Object: &x.obj, Persist: func(context.Context, string) error { return x.refuse }}
	req.Event = func(kind, reason, message string) { x.said = append(x.said, kind+" "+reason+": "+message) }
	p, granted := x.steps.plan(&x.obj, seen)
	return x.steps.record(context.Background(), req, seen, p, granted)
}

// backoffs are the events of them, since the last call.
func (x *teller) backoffs() []string {
	out := slices.DeleteFunc(x.said, func(s string) bool { return !strings.Contains(s, "Backoff: ") })
	x.said = nil
	return out
}

func TestABackoffIsToldOnce(t *testing.T) {
	x := newTeller(t, "s-1")
	p := x.step(increase("small", 2, x.now))
	x.carry(p.op, 0, agentFailed)
	x.word.code, x.word.message = CodeOutOfResources, "the quota is used up"
	x.refuse = errors.New("conflict")
	if err := x.record(); err == nil || len(x.backoffs()) > 0 || len(x.counted) > 0 {
		t.Fatalf("what is not on record is said, and counted as %q: %v", x.counted, err)
	}
	x.refuse = nil
	for range 3 {
		if err := x.record(); err != nil {
			t.Fatal(err)
		}
		x.now = x.now.Add(time.Second)
	}
	want := []string{"Warning ScaleUpBackoff: pool small backs off until 2027-01-15T08:01:00Z, nothing is made: OutOfResources, 1 failure in a row: the quota is used up"}
	if got := x.backoffs(); !slices.Equal(got, want) {
		t.Errorf("told is %q, want %q", got, want)
	}
	if want := []string{"ns/as small ScaleUp OutOfResources"}; !slices.Equal(x.counted, want) {
		t.Errorf("counted is %q, want %q", x.counted, want)
	}
	// The next failure begins another one.
	x.now = x.now.Add(2 * time.Minute)
	p = x.step(increase("small", 1, x.now))
	x.carry(p.op, 0, agentFailed)
	if err := x.record(); err != nil {
		t.Fatal(err)
	}
	if got := x.backoffs(); len(got) != 1 || !strings.Contains(got[0], "2 failures in a row") {
		t.Errorf("told of the second one is %q", got)
	}
}

// No operation ends then or begins, for which the status would be written at once.
func TestABackoffOfWhatTakesTooLongIsToldOnce(t *testing.T) {
	x := newTeller(t, "s-1")
	p := x.step(increase("small", 1, x.now))
	x.word = word{id: p.op.ID, state: agentRunning}
	x.refuse = errors.New("conflict")
	x.now = x.now.Add(time.Hour)
	if err := x.record(); err == nil {
		t.Fatal("it is not written down before it is said")
	}
	x.refuse = nil
	for range 2 {
		if err := x.record(); err != nil {
			t.Fatal(err)
		}
	}
	if got := x.backoffs(); len(got) != 1 || !strings.HasPrefix(got[0], "Warning ScaleUpBackoff: ") || !strings.Contains(got[0], ": Slow, 1 failure in a row: the agent is still making machines") {
		t.Errorf("told is %q", got)
	}
	if len(x.counted) > 0 {
		t.Errorf("an operation that is at work is counted: %q", x.counted)
	}
}

func TestABackoffOfAMachineThatNeverJoinsIsTold(t *testing.T) {
	x := newTeller(t, "s-1")
	p := x.step(increase("small", 1, x.now))
	x.carry(p.op, 1, agentSucceeded)
	x.joined[1] = false
	x.late = map[int32]bool{1: true}
	if err := x.record(); err != nil {
		t.Fatal(err)
	}
	if got := x.backoffs(); len(got) != 1 || !strings.Contains(got[0], ": JoinTimeout, 1 failure in a row: ") {
		t.Errorf("told is %q", got)
	}
	if want := []string{"ns/as small ScaleUp Succeeded"}; !slices.Equal(x.counted, want) {
		t.Errorf("counted is %q, want %q", x.counted, want)
	}
}

func TestABackoffAfterAFailedDeletionSaysSo(t *testing.T) {
	x := newTeller(t, "s-1", "s-1")
	p := x.step(x.removeLast())
	if !atWork(p.op) {
		t.Fatalf("nothing is deleted: %+v", p.op)
	}
	x.word = word{id: p.op.ID, state: agentFailed, code: CodeDrain, message: "pod web"}
	if err := x.record(); err != nil {
		t.Fatal(err)
	}
	if got := x.backoffs(); len(got) != 1 || !strings.HasPrefix(got[0], "Warning ScaleDownBackoff: pool small ") || !strings.Contains(got[0], "nothing is deleted: Drain, ") {
		t.Errorf("told is %q", got)
	}
}

func TestAnOperationOfAPoolThatLeftIsNobodys(t *testing.T) {
	x := newTeller(t, "s-1")
	p := x.step(increase("large", 1, x.now))
	x.obj.Spec.Pools = testPools[:1]
	x.word = word{id: p.op.ID, state: agentFailed, code: CodeFailed}
	if err := x.record(); err != nil {
		t.Fatal(err)
	}
	if len(x.counted) > 0 || len(x.backoffs()) > 0 {
		t.Errorf("counted is %q", x.counted)
	}
}
