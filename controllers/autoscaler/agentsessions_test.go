package autoscaler

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
	agentclient "github.com/ksctl/gitops/internal/agent/client"
)

// fakeAgent is an agent in memory.
type fakeAgent struct {
	mu     sync.Mutex
	state  agentclient.State
	err    error
	begin  error
	begun  []agentclient.BeginRequest
	scaled []uint32
	// hang is how long Scale takes.
	hang   time.Duration
	closed int
}

func (f *fakeAgent) List(context.Context, string) (agentclient.State, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state, f.err
}

func (f *fakeAgent) Begin(_ context.Context, r agentclient.BeginRequest) (agentclient.Operation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun = append(f.begun, r)
	if f.begin != nil {
		return agentclient.Operation{}, f.begin
	}
	f.state.Operation = &agentclient.Operation{ID: r.ID, Phase: agentclient.PhaseRunning}
	return *f.state.Operation, nil
}

func (f *fakeAgent) Scale(ctx context.Context, _ bool, desired uint32, _ string) error {
	f.mu.Lock()
	f.scaled = append(f.scaled, desired)
	hang, err := f.hang, f.begin
	f.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(hang):
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

// talking runs links with one agent in a bubble of time.
func talking(t *testing.T, f *fakeAgent, body func(l *Links, q question, wakes *int)) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		wakes := 0
		l := &Links{Clock: clock.RealClock{}, Wake: func(types.NamespacedName) { mu.Lock(); wakes++; mu.Unlock() }}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = l.Start(ctx) }()
		synctest.Wait()
		body(l, question{open: func() (Conn, error) { return f, nil }, within: time.Minute}, &wakes)
		cancel()
		<-done
		if f.closed == 0 {
			t.Error("the connection was not closed")
		}
	})
}

func operation(id string, from, to int32) *clusterv1.ScaleOperation {
	op := &clusterv1.ScaleOperation{ID: id, Kind: clusterv1.OperationScaleUp, From: from, DesiredWorkers: to, NodeSize: "s-1", State: clusterv1.OperationPending}
	if to < from {
		op.Kind = clusterv1.OperationScaleDown
	}
	return op
}

func TestAnOperationIsBegunOnceAndFollowed(t *testing.T) {
	f := &fakeAgent{state: agentclient.State{Workers: []agentclient.Worker{{Index: 0, Size: "s-1"}}}}
	talking(t, f, func(l *Links, q question, _ *int) {
		if _, known := l.ask(testKey, q); known {
			t.Fatal("known before anything was said")
		}
		synctest.Wait()
		if said, known := l.ask(testKey, q); !known || len(said.workers) != 1 || said.word.id != "" {
			t.Fatalf("%+v %v", said, known)
		}
		l.carry(testKey, operation("one", 1, 3), true)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		f.set(func() {
			if len(f.begun) != 1 || f.begun[0].Current != 1 || f.begun[0].Desired != 3 {
				t.Fatalf("begun %+v", f.begun)
			}
			f.state.Operation = &agentclient.Operation{ID: "one", Phase: agentclient.PhaseFailed, Failure: agentclient.OutOfResources, Message: "none left"}
		})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if said, _ := l.ask(testKey, q); said.word != (word{id: "one", state: agentFailed, code: CodeOutOfResources, message: "none left"}) {
			t.Fatalf("%+v", said.word)
		}
	})
}

func TestAnAgentWithOtherWorkersFailsTheOperation(t *testing.T) {
	f := &fakeAgent{begin: &agentclient.Error{Code: codes.Aborted, Message: "there are 5", Answered: true}}
	talking(t, f, func(l *Links, q question, _ *int) {
		l.ask(testKey, q)
		l.carry(testKey, operation("one", 1, 3), true)
		synctest.Wait()
		if said, known := l.ask(testKey, q); !known || said.word.state != agentFailed || said.word.id != "one" {
			t.Fatalf("%+v", said)
		}
	})
}

func TestASilentAgentKeepsWhatItSaid(t *testing.T) {
	f := &fakeAgent{err: errors.New("nobody there")}
	talking(t, f, func(l *Links, q question, wakes *int) {
		l.ask(testKey, q)
		synctest.Wait()
		if said, known := l.ask(testKey, q); known || said.err == nil {
			t.Fatalf("%+v", said)
		}
		f.set(func() { f.err, f.state.Workers = nil, []agentclient.Worker{{}} })
		time.Sleep(silentInterval)
		synctest.Wait()
		f.set(func() { f.err = errors.New("gone again") })
		time.Sleep(idleInterval)
		synctest.Wait()
		if said, known := l.ask(testKey, q); !known || said.err == nil || len(said.workers) != 1 {
			t.Fatalf("%+v", said)
		}
		before := *wakes
		time.Sleep(10 * silentInterval)
		synctest.Wait()
		if *wakes != before {
			t.Errorf("woken %d times by nothing new", *wakes-before)
		}
	})
}

func TestAnAgentOfKsctlsOwnIsAskedOnce(t *testing.T) {
	f := &fakeAgent{err: &agentclient.NoWorkersError{}, hang: 10 * time.Second}
	talking(t, f, func(l *Links, q question, _ *int) {
		l.ask(testKey, q)
		l.carry(testKey, operation("one", 1, 3), true)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if said, _ := l.ask(testKey, q); said.word.id != "" {
			t.Fatal("answered before it was done")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		said, known := l.ask(testKey, q)
		f.set(func() {
			if !known || !said.plain || said.word.state != agentSucceeded || len(f.scaled) != 1 || f.scaled[0] != 3 {
				t.Fatalf("%+v, scaled %v", said, f.scaled)
			}
		})
	})
}

func TestAnAgentThatListsTooManyIsNotBelieved(t *testing.T) {
	f := &fakeAgent{state: agentclient.State{Workers: []agentclient.Worker{{Index: 4_000_000_000}}}}
	talking(t, f, func(l *Links, q question, _ *int) {
		l.ask(testKey, q)
		synctest.Wait()
		if said, known := l.ask(testKey, q); known || said.err == nil {
			t.Fatalf("%+v", said)
		}
	})
}
