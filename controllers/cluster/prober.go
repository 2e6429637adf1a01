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
	// workers is the number of concurrent probes, and retryWorkers the number of additional
	// workers for clusters whose last probe failed, so that these do not delay the others.
	workers      = 24
	retryWorkers = 8
	// minBackoff is the delay after the first failed probe. It doubles with each further
	// failure, up to maxBackoff or the interval.
	minBackoff = 10 * time.Second
	maxBackoff = 10 * time.Minute
)

// Prober probes clusters in the background, so that reconciles never wait for a cluster.
type Prober struct {
	clock clock.PassiveClock
	// OnResult is called when the probe of a cluster has succeeded, failed or timed out.
	OnResult func(types.NamespacedName)
	// probeFunc probes a cluster. Tests replace it.
	probeFunc func(ctx context.Context, cfg *rest.Config) (probe.Result, error)
	// queue has the clusters whose last probe did not fail, retryQueue those whose last probe did.
	queue, retryQueue probeQueue
	mu                sync.Mutex
	byKey             map[types.NamespacedName]*probeState
}

// probeQueue is a queue of clusters to probe.
type probeQueue = workqueue.TypedInterface[types.NamespacedName]

// probeRequest describes how and when to probe a cluster.
type probeRequest struct {
	// accessHash is the hash of the kubeconfig.
	accessHash [sha256.Size]byte
	config     *rest.Config
	// timeout bounds a probe. interval is how long its result is valid.
	timeout, interval time.Duration
	// requestToken is the value of the annotation that requests a reconcile; "" if there is none.
	requestToken string
	// failedBefore is true if the last probe before the start of this process failed.
	failedBefore bool
}

// probeResult is the result of the last probe of a cluster.
type probeResult struct {
	probe.Result
	err error
	// nextProbe is the time of the next probe.
	nextProbe time.Time
}

// probeState is the state of the probes of one cluster. It is guarded by Prober.mu.
type probeState struct {
	probeRequest
	// pending is true until a probe of the current request has ended, running while a worker
	// probes the cluster: after a change of access the cluster may be in both queues.
	pending, running bool
	hasResult        bool
	// answeredToken is the requestToken that the result answers.
	answeredToken string
	probedAt      time.Time
	lastSuccess   probe.Result
	err           error
	failures      int
}

// NewProber returns a Prober. The caller must set OnResult before Start.
func NewProber(clock clock.PassiveClock) *Prober {
	return &Prober{clock: clock, probeFunc: probe.Run, byKey: map[types.NamespacedName]*probeState{},
		queue: workqueue.NewTyped[types.NamespacedName](), retryQueue: workqueue.NewTyped[types.NamespacedName]()}
}

// result returns the result of the last probe, and false if the caller has to wait for the first
// probe with this access and token. It schedules a probe if the access or the token has changed, or
// if the result is older than the interval.
func (p *Prober) result(key types.NamespacedName, q probeRequest) (probeResult, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.byKey[key]
	if e == nil || e.accessHash != q.accessHash {
		e = &probeState{}
		if q.failedBefore {
			e.failures = 1
		}
		p.byKey[key] = e
	}
	if q.requestToken == "" {
		q.requestToken = e.requestToken
	}
	e.probeRequest = q
	now := p.clock.Now()
	if !e.pending && (!e.hasResult || e.requestToken != e.answeredToken || !now.Before(e.nextProbe())) {
		p.enqueue(key, e)
	}
	out := probeResult{Result: e.lastSuccess, err: e.err, nextProbe: e.nextProbe()}
	if e.pending {
		out.nextProbe = now.Add(q.interval) // the result enqueues the cluster earlier
	}
	return out, e.hasResult && e.requestToken == e.answeredToken
}

// enqueue schedules a probe. The caller holds the lock.
func (p *Prober) enqueue(key types.NamespacedName, e *probeState) {
	e.pending = true
	if e.failures > 0 {
		p.retryQueue.Add(key)
		return
	}
	p.queue.Add(key)
}

// nextProbe returns the time of the next probe.
func (e *probeState) nextProbe() time.Time {
	wait := e.interval
	if e.err != nil {
		backoff := maxBackoff
		if n := e.failures - 1; n < 10 {
			backoff = min(minBackoff<<n, maxBackoff)
		}
		wait = min(wait, backoff)
	}
	return e.probedAt.Add(wait)
}

// Forget drops the state of a cluster.
func (p *Prober) Forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byKey, key)
}

// Start implements manager.Runnable. It returns when all probes have ended.
func (p *Prober) Start(ctx context.Context) error {
	var wg sync.WaitGroup
	for i := range workers + retryWorkers {
		queue := p.queue
		if i >= workers {
			queue = p.retryQueue
		}
		wg.Go(func() { p.runWorker(ctx, queue) })
	}
	<-ctx.Done()
	p.queue.ShutDown()
	p.retryQueue.ShutDown()
	wg.Wait()
	return nil
}

// runWorker probes the clusters of a queue until the queue is shut down.
func (p *Prober) runWorker(ctx context.Context, queue probeQueue) {
	for {
		key, end := queue.Get()
		if end {
			return
		}
		p.probe(ctx, key)
		queue.Done(key)
	}
}

// probe probes one cluster.
func (p *Prober) probe(ctx context.Context, key types.NamespacedName) {
	p.mu.Lock()
	e := p.byKey[key]
	if e == nil || !e.pending || e.running {
		p.mu.Unlock()
		return
	}
	e.running = true
	q := e.probeRequest
	p.mu.Unlock()
	probeCtx, cancel := context.WithTimeout(ctx, q.timeout)
	answer, err := p.probeFunc(probeCtx, q.config)
	cancel()
	if ctx.Err() != nil {
		return
	}
	if p.record(key, e, q.requestToken, answer, err) {
		p.OnResult(key)
	}
}

// record stores a result, unless the access to the cluster has changed since. It schedules another
// probe if the token has changed since.
func (p *Prober) record(key types.NamespacedName, e *probeState, token string, answer probe.Result, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byKey[key] != e {
		return false
	}
	e.pending, e.running, e.hasResult, e.answeredToken, e.probedAt, e.err = false, false, true, token, p.clock.Now(),
		err
	if err != nil {
		e.failures++ // keep the last successful result
	} else {
		e.failures, e.lastSuccess = 0, answer
	}
	if e.requestToken != token {
		p.enqueue(key, e)
	}
	return true
}
