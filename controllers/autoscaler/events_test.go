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
	"github.com/ksctl/gitops/controllers/autoscaler/session"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
)

// recordTest records the events and metrics of a simulation.
type recordTest struct {
	*simulation
	steps *Steps
	// persistErr is the error of status writes.
	persistErr error
	events     []string
	counted    []string
}

func newRecordTest(t *testing.T, sizes ...string) *recordTest {
	x := &recordTest{simulation: newSimulation(t, sizes...)}
	x.steps = &Steps{
		Client: newFakeClient(t), Published: nodegroup.NewClusters(), AgentSessions: &session.Sessions{},
		OperationEnded: func(key types.NamespacedName, pool, operation, result string) {
			x.counted = append(x.counted, strings.Join([]string{key.String(), pool, operation, result}, " "))
		}}
	return x
}

// record runs one reconcile up to Steps.record.
func (x *recordTest) record() error {
	x.t.Helper()
	x.steps.Clock = clocktesting.NewFakeClock(x.now)
	seen := &observation{machines: x.machines(), reported: x.reported, cluster: x.cluster(), overdue: x.overdue}
	req := &reconcile.Request[*clusterv1.KsctlAutoScaler]{Object: &x.obj, Persist: func(context.Context, string) error {
		return x.persistErr
	}}
	req.Event = func(kind, reason, message string) { x.events = append(x.events, kind+" "+reason+": "+message) }
	p, granted := x.steps.plan(&x.obj, seen)
	return x.steps.record(context.Background(), req, seen, p, granted)
}

// backoffEvents returns the events of backoffs since the last call.
func (x *recordTest) backoffEvents() []string {
	out := slices.DeleteFunc(x.events, func(s string) bool { return !strings.Contains(s, "Backoff: ") })
	x.events = nil
	return out
}

func TestBackoffEventIsEmittedOnce(t *testing.T) {
	x := newRecordTest(t, "s-1")
	p := x.step(increase("small", 2, x.now))
	x.runOperation(p.op, 0, session.Failed)
	x.reported.Code, x.reported.Message = clusterv1.CodeOutOfResources, "the quota is used up"
	x.persistErr = errors.New("conflict")
	if err := x.record(); err == nil || len(x.backoffEvents()) > 0 || len(x.counted) > 0 {
		t.Fatalf("an operation that is not recorded causes events, or is counted as %q: %v", x.counted, err)
	}
	x.persistErr = nil
	for range 3 {
		if err := x.record(); err != nil {
			t.Fatal(err)
		}
		x.now = x.now.Add(time.Second)
	}
	want := []string{"Warning ScaleUpBackoff: pool small backs off until 2027-01-15T08:01:00Z, no machines are " +
		"created: OutOfResources, 1 failure in a row: the quota is used up"}
	if got := x.backoffEvents(); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	if want := []string{"ns/as small ScaleUp OutOfResources"}; !slices.Equal(x.counted, want) {
		t.Errorf("counted %q, want %q", x.counted, want)
	}
	// The next failure starts another backoff.
	x.now = x.now.Add(2 * time.Minute)
	p = x.step(increase("small", 1, x.now))
	x.runOperation(p.op, 0, session.Failed)
	if err := x.record(); err != nil {
		t.Fatal(err)
	}
	if got := x.backoffEvents(); len(got) != 1 || !strings.Contains(got[0], "2 failures in a row") {
		t.Errorf("events of the second failure: %q", got)
	}
}

// No operation begins or ends at that time, so only the backoff causes the status write.
func TestBackoffEventForSlowMachinesIsEmittedOnce(t *testing.T) {
	x := newRecordTest(t, "s-1")
	p := x.step(increase("small", 1, x.now))
	x.reported = session.OperationStatus{ID: p.op.ID, Phase: session.Running}
	x.persistErr = errors.New("conflict")
	x.now = x.now.Add(time.Hour)
	if err := x.record(); err == nil {
		t.Fatal("the event is emitted before the status is written")
	}
	x.persistErr = nil
	for range 2 {
		if err := x.record(); err != nil {
			t.Fatal(err)
		}
	}
	if got := x.backoffEvents(); len(got) != 1 || !strings.HasPrefix(got[0], "Warning ScaleUpBackoff: ") ||
		!strings.Contains(got[0], ": Slow, 1 failure in a row: the agent is still creating machines") {
		t.Errorf("events %q", got)
	}
	if len(x.counted) > 0 {
		t.Errorf("an operation in progress is counted: %q", x.counted)
	}
}

func TestBackoffEventForJoinTimeout(t *testing.T) {
	x := newRecordTest(t, "s-1")
	p := x.step(increase("small", 1, x.now))
	x.runOperation(p.op, 1, session.Succeeded)
	x.joined[1] = false
	x.overdue = map[int32]bool{1: true}
	if err := x.record(); err != nil {
		t.Fatal(err)
	}
	if got := x.backoffEvents(); len(got) != 1 || !strings.Contains(got[0], ": JoinTimeout, 1 failure in a row: ") {
		t.Errorf("events %q", got)
	}
	if want := []string{"ns/as small ScaleUp Succeeded"}; !slices.Equal(x.counted, want) {
		t.Errorf("counted %q, want %q", x.counted, want)
	}
}

func TestBackoffEventForFailedDeletion(t *testing.T) {
	x := newRecordTest(t, "s-1", "s-1")
	p := x.step(x.removeLast())
	if !session.IsInProgress(p.op) {
		t.Fatalf("no deletion began: %+v", p.op)
	}
	x.reported = session.OperationStatus{ID: p.op.ID, Phase: session.Failed, Code: clusterv1.CodeDrain,
		Message: "pod web"}
	if err := x.record(); err != nil {
		t.Fatal(err)
	}
	if got := x.backoffEvents(); len(got) != 1 || !strings.HasPrefix(got[0], "Warning ScaleDownBackoff: pool small ") ||
		!strings.Contains(got[0], "no machines are deleted: Drain, ") {
		t.Errorf("events %q", got)
	}
}

func TestOperationOfRemovedPoolIsNotCounted(t *testing.T) {
	x := newRecordTest(t, "s-1")
	p := x.step(increase("large", 1, x.now))
	x.obj.Spec.Pools = testPools[:1]
	x.reported = session.OperationStatus{ID: p.op.ID, Phase: session.Failed, Code: clusterv1.CodeFailed}
	if err := x.record(); err != nil {
		t.Fatal(err)
	}
	if len(x.counted) > 0 || len(x.backoffEvents()) > 0 {
		t.Errorf("counted %q", x.counted)
	}
}
