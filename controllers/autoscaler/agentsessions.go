package autoscaler

import (
	"context"
	"crypto/sha256"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	agentclient "github.com/ksctl/gitops/internal/agent/client"
)

const (
	// askWithin is how long an agent may take to say what there is, or to begin.
	askWithin = 40 * time.Second
	// atWorkInterval is how often an agent that is at work is asked how it stands, and
	// idleInterval how often one that is not: machines may be made by others, too.
	atWorkInterval = time.Second
	idleInterval   = 30 * time.Second
	// silentInterval is how soon one is asked again that did not answer.
	silentInterval = 5 * time.Second
)

// Conn is a connection to an agent.
type Conn interface {
	List(ctx context.Context, cluster string) (agentclient.State, error)
	Begin(ctx context.Context, r agentclient.BeginRequest) (agentclient.Operation, error)
	Scale(ctx context.Context, up bool, desired uint32, size string) error
	Close()
}

// question is how an agent is reached.
type question struct {
	// id tells one way of reaching it from another.
	id      [sha256.Size]byte
	open    func() (Conn, error)
	cluster string
	// within is how long an agent that answers when it is done may take.
	within time.Duration
}

// answer is what an agent said last.
type answer struct {
	workers []agentclient.Worker
	word    word
	// listed is true where it said which workers there are; plain for an agent of ksctl's own.
	listed, plain bool
	// err is why it says nothing now; what it said before is kept.
	err error
}

// Links talk to agents, each in a goroutine of its own: no worker of the controller waits for
// one. They are run by a manager.
type Links struct {
	// Wake is called when an agent has something new to say.
	Wake  func(types.NamespacedName)
	Clock clock.WithTicker

	mu  sync.Mutex
	ctx context.Context
	// early are those that were asked for before Start.
	early []types.NamespacedName
	byKey map[types.NamespacedName]*link
	wg    sync.WaitGroup
}

// link is to one agent. It is guarded by Links.mu.
type link struct {
	question
	// op is the operation at work; nil: none is.
	op *clusterv1.ScaleOperation
	// resumed is true for one that somebody may have told the agent of before.
	resumed bool
	answer  answer
	heard   bool
	// changed has a value when there is something else to ask.
	changed chan struct{}
	cancel  context.CancelFunc
}

// Start implements manager.Runnable. It returns when no agent is talked to any more.
func (l *Links) Start(ctx context.Context) error {
	l.mu.Lock()
	l.ctx = ctx
	early := l.early
	l.mu.Unlock()
	for _, key := range early {
		l.Wake(key)
	}
	<-ctx.Done()
	l.mu.Lock()
	l.ctx = nil
	l.mu.Unlock()
	l.wg.Wait()
	return nil
}

// ask returns what an agent said last; false when that is to be awaited, with why it says
// nothing. It goes on asking.
func (l *Links) ask(key types.NamespacedName, q question) (answer, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		l.early = append(l.early, key)
		return answer{}, false
	}
	x := l.byKey[key]
	switch {
	case x == nil:
		if l.byKey == nil {
			l.byKey = map[types.NamespacedName]*link{}
		}
		ctx, cancel := context.WithCancel(l.ctx)
		x = &link{question: q, changed: make(chan struct{}, 1), cancel: cancel}
		l.byKey[key] = x
		l.wg.Go(func() { l.run(ctx, key, x) })
	case x.id != q.id || x.cluster != q.cluster:
		x.question, x.answer, x.heard = q, answer{}, false
		x.signal()
	default:
		x.question.open, x.within = q.open, q.within
	}
	return x.answer, x.heard
}

// carry has an agent carry out an operation that is on record; nil: there is none. One that has not
// begun just now may have been told it before.
func (l *Links) carry(key types.NamespacedName, op *clusterv1.ScaleOperation, begun bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !atWork(op) {
		op = nil
	}
	if x := l.byKey[key]; x != nil {
		x.carry(op, begun)
	}
}

func (x *link) carry(op *clusterv1.ScaleOperation, begun bool) {
	known := x.op != nil && op != nil && x.op.ID == op.ID
	x.op = op.DeepCopy()
	if op != nil && !known {
		x.resumed = !begun
		x.signal()
	}
}

func (x *link) signal() {
	select {
	case x.changed <- struct{}{}:
	default:
	}
}

// Forget ends what is said to an agent.
func (l *Links) Forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if x := l.byKey[key]; x != nil {
		x.cancel()
		delete(l.byKey, key)
	}
}

// run asks an agent until ctx ends.
func (l *Links) run(ctx context.Context, key types.NamespacedName, x *link) {
	t := talk{plainDone: map[string]word{}}
	defer t.close()
	for ctx.Err() == nil {
		l.mu.Lock()
		q, op, before := x.question, task{x.op, x.resumed, l.Clock.Now()}, x.answer
		l.mu.Unlock()
		said := t.turn(ctx, q, op, before)
		if ctx.Err() != nil {
			return
		}
		l.take(key, x, q, said)
		wait := idleInterval
		switch {
		case said.err != nil:
			wait = silentInterval
		case op.op != nil:
			wait = atWorkInterval
		}
		timer := l.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C():
		case <-x.changed:
		}
		timer.Stop()
	}
}

// take keeps an answer, unless the question is another one by now.
func (l *Links) take(key types.NamespacedName, x *link, q question, said answer) {
	l.mu.Lock()
	if x.id != q.id || x.cluster != q.cluster {
		l.mu.Unlock()
		return
	}
	heard := said.err == nil || said.listed || x.heard
	same := heard == x.heard && sameAnswer(said, x.answer)
	x.answer, x.heard = said, heard
	l.mu.Unlock()
	if !same {
		l.Wake(key)
	}
}

func sameAnswer(a, b answer) bool {
	if (a.err == nil) != (b.err == nil) || a.err != nil && a.err.Error() != b.err.Error() {
		return false
	}
	a.err, b.err = nil, nil
	return reflect.DeepEqual(a, b)
}
