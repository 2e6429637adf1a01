package session

import (
	"context"
	"crypto/sha256"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/agent/agentpb"
	agentclient "github.com/ksctl/gitops/internal/agent/client"
)

const (
	// callTimeout bounds the calls List and Begin.
	callTimeout = 40 * time.Second
	// An agent is polled every busyInterval while an operation is in progress, else every
	// idleInterval, because others may create machines, too.
	busyInterval = time.Second
	idleInterval = 30 * time.Second
	// retryInterval is the time after which a failed poll is retried.
	retryInterval = 5 * time.Second
)

// Conn calls an agent. ksctl's own agent serves Scale, agents that serve Workers have List and
// Begin.
type Conn interface {
	List(ctx context.Context, cluster string) (agentclient.State, error)
	Begin(ctx context.Context, r *agentpb.BeginRequest) (agentclient.Operation, error)
	Scale(ctx context.Context, up bool, desired uint32, size string) error
	Close()
}

// Config is the configuration of the session with an agent.
type Config struct {
	// Hash is a hash of the agent's endpoint and Secret. If it changes, the session connects again.
	Hash    [sha256.Size]byte
	Dial    func() (Conn, error)
	Cluster string
	// ScaleTimeout bounds the call Scale, which returns when the operation is done.
	ScaleTimeout time.Duration
}

// Report is the last report of an agent.
type Report struct {
	Workers   []agentclient.Worker
	Operation OperationStatus
	// listed is true if Workers is the list of all workers. KsctlAgent is true for ksctl's own
	// agent, which cannot list them.
	listed, KsctlAgent bool
	// Err is the error of the last poll; nil if it succeeded. If listing fails, the other fields
	// keep their values.
	Err error
}

// Sessions runs a session with each agent, in a goroutine of its own, so that no worker of the
// controller waits for an agent. It is run by a manager.
type Sessions struct {
	// OnReport is called when the report of an agent changes.
	OnReport func(types.NamespacedName)
	Clock    clock.WithTicker

	mu  sync.Mutex
	ctx context.Context
	// early are the objects whose report was requested before Start.
	early []types.NamespacedName
	byKey map[types.NamespacedName]*sessionEntry
	wg    sync.WaitGroup
}

// sessionEntry is the input and output of one session. It is guarded by Sessions.mu.
type sessionEntry struct {
	Config
	// op is the operation in progress; nil if there is none.
	op *clusterv1.ScaleOperation
	// resumed is true if op may have been sent to the agent before.
	resumed bool
	// report is the last report; hasReport is true if the agent has responded at least once.
	report    Report
	hasReport bool
	// changed receives a value when the configuration or the operation changes.
	changed chan struct{}
	cancel  context.CancelFunc
}

// Start implements manager.Runnable. It returns when all sessions have ended.
func (l *Sessions) Start(ctx context.Context) error {
	l.mu.Lock()
	l.ctx = ctx
	early := l.early
	l.mu.Unlock()
	for _, key := range early {
		l.OnReport(key)
	}
	<-ctx.Done()
	l.mu.Lock()
	l.ctx = nil
	l.mu.Unlock()
	l.wg.Wait()
	return nil
}

// LastReport returns the last report of an agent, and starts the session if there is none. The
// result is false if the agent has not responded yet; Err of the report is then the error of the
// last call.
func (l *Sessions) LastReport(key types.NamespacedName, cfg Config) (Report, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		l.early = append(l.early, key)
		return Report{}, false
	}
	x := l.byKey[key]
	switch {
	case x == nil:
		if l.byKey == nil {
			l.byKey = map[types.NamespacedName]*sessionEntry{}
		}
		ctx, cancel := context.WithCancel(l.ctx)
		x = &sessionEntry{Config: cfg, changed: make(chan struct{}, 1), cancel: cancel}
		l.byKey[key] = x
		l.wg.Go(func() { l.runSession(ctx, key, x) })
	case x.Hash != cfg.Hash || x.Cluster != cfg.Cluster:
		x.Config, x.report, x.hasReport = cfg, Report{}, false
		x.signal()
	default:
		x.Config = cfg
	}
	return x.report, x.hasReport
}

// Run lets an agent carry out a recorded operation; nil stops sending one. begun is true if the
// Operation was recorded in this reconcile; else it may have been sent to the agent before.
func (l *Sessions) Run(key types.NamespacedName, op *clusterv1.ScaleOperation, begun bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !IsInProgress(op) {
		op = nil
	}
	x := l.byKey[key]
	if x == nil {
		return
	}
	known := x.op != nil && op != nil && x.op.ID == op.ID
	x.op = op.DeepCopy()
	if op != nil && !known {
		x.resumed = !begun
		x.signal()
	}
}

func (x *sessionEntry) signal() {
	select {
	case x.changed <- struct{}{}:
	default:
	}
}

// Forget ends the session with an agent.
func (l *Sessions) Forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if x := l.byKey[key]; x != nil {
		x.cancel()
		delete(l.byKey, key)
	}
}

// runSession polls an agent until ctx is done.
func (l *Sessions) runSession(ctx context.Context, key types.NamespacedName, x *sessionEntry) {
	var t agentSession
	defer t.close()
	for ctx.Err() == nil {
		l.mu.Lock()
		cfg, op, last := x.Config, task{x.op, x.resumed, l.Clock.Now()}, x.report
		l.mu.Unlock()
		report := t.poll(ctx, cfg, op, last)
		if ctx.Err() != nil {
			return
		}
		l.storeReport(key, x, cfg, report)
		wait := idleInterval
		switch {
		case report.Err != nil:
			wait = retryInterval
		case op.op != nil:
			wait = busyInterval
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

// storeReport stores a report, unless the configuration of the session has changed since.
func (l *Sessions) storeReport(key types.NamespacedName, x *sessionEntry, cfg Config, report Report) {
	l.mu.Lock()
	if x.Hash != cfg.Hash || x.Cluster != cfg.Cluster {
		l.mu.Unlock()
		return
	}
	hasReport := report.Err == nil || report.listed || x.hasReport
	same := hasReport == x.hasReport && sameReport(report, x.report)
	x.report, x.hasReport = report, hasReport
	l.mu.Unlock()
	if !same {
		l.OnReport(key)
	}
}

func sameReport(a, b Report) bool {
	if (a.Err == nil) != (b.Err == nil) || a.Err != nil && a.Err.Error() != b.Err.Error() {
		return false
	}
	a.Err, b.Err = nil, nil
	return reflect.DeepEqual(a, b)
}
