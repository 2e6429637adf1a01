package session

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/agent/agentpb"
	agentclient "github.com/ksctl/gitops/internal/agent/client"
)

// fakeAgent is an agent in memory.
type fakeAgent struct {
	mu       sync.Mutex
	state    agentclient.State
	err      error
	beginErr error
	begun    []*agentpb.BeginRequest
	scaled   []uint32
	// scaleDuration is how long Scale takes.
	scaleDuration time.Duration
	closed        int
}

func (f *fakeAgent) List(context.Context, string) (agentclient.State, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state, f.err
}

func (f *fakeAgent) Begin(_ context.Context, r *agentpb.BeginRequest) (agentclient.Operation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun = append(f.begun, r)
	if f.beginErr != nil {
		return agentclient.Operation{}, f.beginErr
	}
	f.state.Operation = &agentclient.Operation{ID: r.GetId(), State: agentpb.Operation_RUNNING}
	return *f.state.Operation, nil
}

func (f *fakeAgent) Scale(ctx context.Context, _ bool, desired uint32, _ string) error {
	f.mu.Lock()
	f.scaled = append(f.scaled, desired)
	duration, err := f.scaleDuration, f.beginErr
	f.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(duration):
		return err
	}
}

func (f *fakeAgent) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed++
}

func (f *fakeAgent) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

var testKey = types.NamespacedName{Namespace: "ns", Name: "as"}

// withSessions runs body with Sessions and one agent, on the fake clock of synctest.
func withSessions(t *testing.T, f *fakeAgent, body func(l *Sessions, cfg Config, wakes *int)) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		wakes := 0
		l := &Sessions{Clock: clock.RealClock{}, OnReport: func(types.NamespacedName) {
			mu.Lock()
			wakes++
			mu.Unlock()
		}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = l.Start(ctx) }()
		synctest.Wait()
		body(l, Config{Dial: func() (Conn, error) { return f, nil }, ScaleTimeout: time.Minute}, &wakes)
		cancel()
		<-done
		if f.closed == 0 {
			t.Error("the connection was not closed")
		}
	})
}

func operation(id string, from, to int32) *clusterv1.ScaleOperation {
	op := &clusterv1.ScaleOperation{ID: id, Kind: clusterv1.OperationScaleUp, From: from, DesiredWorkers: to,
		NodeSize: "s-1", State: clusterv1.OperationPending}
	if to < from {
		op.Kind = clusterv1.OperationScaleDown
	}
	return op
}

func TestOperationStatusOfUnknownFailure(t *testing.T) {
	for failure, want := range map[agentpb.Operation_Failure]string{agentpb.Operation_DRAIN: clusterv1.CodeDrain,
		agentpb.Operation_OTHER: clusterv1.CodeFailed, agentpb.Operation_FAILURE_UNSPECIFIED: clusterv1.CodeFailed,
		99: clusterv1.CodeFailed} {
		got := toOperationStatus(&agentclient.Operation{ID: "one", State: agentpb.Operation_FAILED, Failure: failure})
		if got != (OperationStatus{ID: "one", Phase: Failed, Code: want}) {
			t.Errorf("%s: got %+v", failure, got)
		}
	}
}

func TestOperationBeginsOnceAndIsPolled(t *testing.T) {
	f := &fakeAgent{state: agentclient.State{Workers: []agentclient.Worker{{Index: 0, Size: "s-1"}}}}
	withSessions(t, f, func(l *Sessions, cfg Config, _ *int) {
		if _, known := l.LastReport(testKey, cfg); known {
			t.Fatal("there is a report before the agent has responded")
		}
		synctest.Wait()
		if report, known := l.LastReport(testKey, cfg); !known || len(report.Workers) != 1 ||
			report.Operation.ID != "" {
			t.Fatalf("%+v %v", report, known)
		}
		l.Run(testKey, operation("one", 1, 3), true)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		f.set(func() {
			if len(f.begun) != 1 || f.begun[0].Current != 1 || f.begun[0].Desired != 3 {
				t.Fatalf("begun %+v", f.begun)
			}
			f.state.Operation = &agentclient.Operation{ID: "one", State: agentpb.Operation_FAILED,
				Failure: agentpb.Operation_OUT_OF_RESOURCES, Message: "none left"}
		})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if report, _ := l.LastReport(testKey, cfg); report.Operation != (OperationStatus{ID: "one", Phase: Failed,
			Code: clusterv1.CodeOutOfResources, Message: "none left"}) {
			t.Fatalf("%+v", report.Operation)
		}
	})
}

func TestRejectedBeginFailsTheOperation(t *testing.T) {
	f := &fakeAgent{beginErr: &agentclient.Error{Code: codes.Aborted, Message: "there are 5", Answered: true}}
	withSessions(t, f, func(l *Sessions, cfg Config, _ *int) {
		l.LastReport(testKey, cfg)
		l.Run(testKey, operation("one", 1, 3), true)
		synctest.Wait()
		if report, known := l.LastReport(testKey, cfg); !known || report.Operation.Phase != Failed ||
			report.Operation.ID != "one" {
			t.Fatalf("%+v", report)
		}
	})
}

func TestUnreachableAgentKeepsItsLastReport(t *testing.T) {
	f := &fakeAgent{err: errors.New("connection refused")}
	withSessions(t, f, func(l *Sessions, cfg Config, wakes *int) {
		l.LastReport(testKey, cfg)
		synctest.Wait()
		if report, known := l.LastReport(testKey, cfg); known || report.Err == nil {
			t.Fatalf("%+v", report)
		}
		f.set(func() { f.err, f.state.Workers = nil, []agentclient.Worker{{}} })
		time.Sleep(retryInterval)
		synctest.Wait()
		f.set(func() { f.err = errors.New("connection lost") })
		time.Sleep(idleInterval)
		synctest.Wait()
		if report, known := l.LastReport(testKey, cfg); !known || report.Err == nil || len(report.Workers) != 1 {
			t.Fatalf("%+v", report)
		}
		before := *wakes
		time.Sleep(10 * retryInterval)
		synctest.Wait()
		if *wakes != before {
			t.Errorf("OnReport called %d times without a change", *wakes-before)
		}
	})
}

func TestKsctlAgentIsCalledOnce(t *testing.T) {
	f := &fakeAgent{err: agentclient.ErrNoWorkers, scaleDuration: 10 * time.Second}
	withSessions(t, f, func(l *Sessions, cfg Config, _ *int) {
		l.LastReport(testKey, cfg)
		l.Run(testKey, operation("one", 1, 3), true)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if report, _ := l.LastReport(testKey, cfg); report.Operation.ID != "" {
			t.Fatal("the operation ended before Scale returned")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		report, known := l.LastReport(testKey, cfg)
		f.set(func() {
			if !known || !report.KsctlAgent || report.Operation.Phase != Succeeded || len(f.scaled) != 1 ||
				f.scaled[0] != 3 {
				t.Fatalf("%+v, scaled %v", report, f.scaled)
			}
		})
	})
}

func TestTooHighWorkerIndexIsRejected(t *testing.T) {
	f := &fakeAgent{state: agentclient.State{Workers: []agentclient.Worker{{Index: 4_000_000_000}}}}
	withSessions(t, f, func(l *Sessions, cfg Config, _ *int) {
		l.LastReport(testKey, cfg)
		synctest.Wait()
		if report, known := l.LastReport(testKey, cfg); known || report.Err == nil {
			t.Fatalf("%+v", report)
		}
	})
}

func TestLateDeletionIsNotSentToKsctlAgent(t *testing.T) {
	for what, x := range map[string]struct {
		op    *clusterv1.ScaleOperation
		begun bool
		want  string
		calls int
	}{
		"deletion, after a restart of the controller": {operation("a", 3, 2), false, clusterv1.CodeNoAnswer, 0},
		"deletion that could not be sent in time":     {operation("a", 3, 2), true, clusterv1.CodeFailed, 0},
		"scale-up": {operation("a", 1, 2), false, "", 1},
	} {
		t.Run(what, func(t *testing.T) {
			f := &fakeAgent{err: agentclient.ErrNoWorkers}
			withSessions(t, f, func(l *Sessions, cfg Config, _ *int) {
				l.LastReport(testKey, cfg)
				x.op.StartedAt.Time = time.Now().Add(-2 * time.Minute)
				l.Run(testKey, x.op, x.begun)
				time.Sleep(time.Minute)
				synctest.Wait()
				report, _ := l.LastReport(testKey, cfg)
				f.set(func() {
					if report.Operation.ID != "a" || report.Operation.Code != x.want || len(f.scaled) != x.calls {
						t.Errorf("%+v after %d calls", report.Operation, len(f.scaled))
					}
				})
			})
		})
	}
}
