package cluster

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/ksctl/gitops/internal/clusters/probe"
)

const (
	// probers is how many clusters are asked at a time, and failing how many more of
	// those that did not answer the last time: nobody waits behind them.
	probers = 24
	failing = 8
	// firstBackoff is when a cluster is asked again that did not answer; twice as long
	// after each further time, up to maxBackoff or the interval.
	firstBackoff = 10 * time.Second
	maxBackoff   = 10 * time.Minute
)

// Prober asks clusters how they are. Nobody waits for one that does not answer.
type Prober struct {
	Clock clock.PassiveClock
	// Wake is called when a cluster has answered, or has not in time.
	Wake func(types.NamespacedName)
	// ask asks a cluster.
	ask func(ctx context.Context, cfg *rest.Config) (probe.Answer, error)

	once sync.Once
	// queue is of those that may answer, late of those that did not the last time.
	queue, late lane
	mu          sync.Mutex
	byKey       map[types.NamespacedName]*probeState
}

// lane is clusters that wait to be asked.
type lane = workqueue.TypedInterface[types.NamespacedName]

// question is how, and when, a cluster is asked.
type question struct {
	// id tells one access from another.
	id     [sha256.Size]byte
	config *rest.Config
	// within is how long the answer may take, interval how long it holds.
	within, interval time.Duration
	// token is of the wish to ask it now; "" without one.
	token string
	// failed is true when it did not answer before this process was there.
	failed bool
}

// opinion is what a cluster said last.
type opinion struct {
	probe.Answer
	err error
	// next is when it is asked again.
	next time.Time
}

// probe is what is known of one cluster. It is guarded by Prober.mu.
type probeState struct {
	question
	// asking is true until there is an answer to the question as it is, running while
	// somebody is at it: after a change of access it may stand in both lanes.
	asking, running bool
	answered        bool
	// answeredToken is the wish that the answer is one to.
	answeredToken string
	at            time.Time
	answer        probe.Answer
	err           error
	failures      int
}

func (p *Prober) init() {
	p.once.Do(func() {
		p.queue, p.late = workqueue.NewTyped[types.NamespacedName](), workqueue.NewTyped[types.NamespacedName]()
		p.byKey = map[types.NamespacedName]*probeState{}
		if p.ask == nil {
			p.ask = probe.Ask
		}
	})
}

// opinion returns what a cluster said last; false when that is to be awaited. It is asked
// again when its access has changed, when its answer is older than the interval, and when
// somebody wishes it by another token than before.
func (p *Prober) opinion(key types.NamespacedName, q question) (opinion, bool) {
	p.init()
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.byKey[key]
	if e == nil || e.id != q.id {
		e = &probeState{}
		if q.failed {
			e.failures = 1
		}
		p.byKey[key] = e
	}
	if q.token == "" {
		q.token = e.token
	}
	e.question = q
	now := p.Clock.Now()
	if !e.asking && (!e.answered || e.token != e.answeredToken || !now.Before(e.next())) {
		p.enqueue(key, e)
	}
	out := opinion{Answer: e.answer, err: e.err, next: e.next()}
	if e.asking {
		out.next = now.Add(q.interval) // the answer wakes it
	}
	return out, e.answered && e.token == e.answeredToken
}

// enqueue is called with the lock held.
func (p *Prober) enqueue(key types.NamespacedName, e *probeState) {
	e.asking = true
	if e.failures > 0 {
		p.late.Add(key)
		return
	}
	p.queue.Add(key)
}

// next is when it is to be asked again.
func (e *probeState) next() time.Time {
	wait := e.interval
	if e.err != nil {
		backoff := maxBackoff
		if n := e.failures - 1; n < 10 {
			backoff = min(firstBackoff<<n, maxBackoff)
		}
		wait = min(wait, backoff)
	}
	return e.at.Add(wait)
}

// Forget drops what is known of a cluster.
func (p *Prober) Forget(key types.NamespacedName) {
	p.init()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byKey, key)
}

// Start implements manager.Runnable. It returns when nobody is asked any more.
func (p *Prober) Start(ctx context.Context) error {
	p.init()
	var wg sync.WaitGroup
	for i := range probers + failing {
		from := p.queue
		if i >= probers {
			from = p.late
		}
		wg.Go(func() { p.drain(ctx, from) })
	}
	<-ctx.Done()
	p.queue.ShutDown()
	p.late.ShutDown()
	wg.Wait()
	return nil
}

// drain asks the clusters of a lane until it is shut down.
func (p *Prober) drain(ctx context.Context, from lane) {
	for {
		key, end := from.Get()
		if end {
			return
		}
		p.work(ctx, key)
		from.Done(key)
	}
}

// work asks one cluster.
func (p *Prober) work(ctx context.Context, key types.NamespacedName) {
	p.mu.Lock()
	e := p.byKey[key]
	if e == nil || !e.asking || e.running {
		p.mu.Unlock()
		return
	}
	e.running = true
	q := e.question
	p.mu.Unlock()
	within, cancel := context.WithTimeout(ctx, q.within)
	answer, err := p.ask(within, q.config)
	cancel()
	if ctx.Err() != nil {
		return
	}
	if p.take(key, e, q.token, answer, err) && p.Wake != nil {
		p.Wake(key)
	}
}

// take keeps an answer, unless the cluster is reached in another way by now. Who wished
// meanwhile to have it asked waits for another one.
func (p *Prober) take(key types.NamespacedName, e *probeState, token string, answer probe.Answer, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byKey[key] != e {
		return false
	}
	e.asking, e.running, e.answered, e.answeredToken, e.at, e.err = false, false, true, token, p.Clock.Now(), err
	if err != nil {
		e.failures++ // what it said before still holds of it
	} else {
		e.failures, e.answer = 0, answer
	}
	if e.token != token {
		p.enqueue(key, e)
	}
	return true
}
