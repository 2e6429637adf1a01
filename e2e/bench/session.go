package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/bench/report"
	"github.com/ksctl/gitops/e2e/cluster"
)

// settleTime is the time after the end of an action during which requests and CPU time still count,
// so that delayed work of a peer is included.
const settleTime = 3 * time.Second

// session runs one peer on one new control plane.
type session struct {
	*testbed
	options      options
	peerName     string
	peer         peer
	specs        []installSpec
	installWatch *objectWatch
	installed    bool      // all installs exist
	measureStart time.Time // start of the current measurement

	results []report.Result
}

// newSession starts a control plane and a peer on it.
func newSession(ctx context.Context, name string, o options, specs []installSpec) (s *session, err error) {
	s = &session{options: o, peerName: name, specs: specs}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	p, err := newPeer(name, o)
	if err != nil {
		return s, err
	}
	if s.testbed, err = newTestbed(ctx); err != nil {
		return s, err
	}
	if err = s.testbed.prepare(ctx, specs); err != nil {
		return s, fmt.Errorf("preparing the namespaces: %w", err)
	}
	s.peer = p
	if err = p.prepare(ctx, s.testbed); err != nil {
		return s, fmt.Errorf("preparing %s: %w", name, err)
	}
	if s.installWatch, err = newObjectWatch(ctx, s.ControlPlane.Config(), p.resource(), ""); err != nil {
		return s, err
	}
	if err = p.start(ctx); err != nil {
		return s, fmt.Errorf("starting %s: %w", name, err)
	}
	return s, nil
}

func (s *session) close() error {
	var errs []error
	if s.installWatch != nil {
		s.installWatch.stop()
	}
	if s.peer != nil {
		errs = append(errs, s.peer.stop())
	}
	if s.testbed != nil {
		errs = append(errs, s.Stop())
	}
	return errors.Join(errs...)
}

// pids returns the process IDs of the peer; none if it has no running process.
func (s *session) pids() []int {
	var out []int
	for _, p := range s.peer.processes() {
		out = append(out, p.Pid)
	}
	return out
}

// commit publishes a new version of the peer's source.
func (s *session) commit(ctx context.Context, to source) (err error) {
	s.commits++
	s.source = to
	s.revision, err = s.peer.publish(ctx, to)
	return err
}

// nextValue returns a value that no earlier commit has used.
func (s *session) nextValue() string { return strconv.Itoa(s.commits + 1) }

// timestamps are the times at which objects reached the expected state.
type timestamps = map[types.NamespacedName]time.Time

// measure runs an action and records its wall time, CPU time, memory, requests and latencies. The
// action returns the time at which each changed object reached the expected state; nil means that
// the result has no latencies.
func (s *session) measure(ctx context.Context, scenario string,
	act func(ctx context.Context) (timestamps, error)) error {
	roots := s.pids()
	before := readUsage(roots)
	resetPeak(roots)
	mark, err := s.ControlPlane.AuditMark(ctx)
	if err != nil {
		return err
	}
	endProfiles, err := s.profile(ctx, scenario)
	if err != nil {
		return err
	}
	peakRSS := startSampler(ctx, s.pids)
	s.measureStart = time.Now()
	times, err := act(ctx)
	ended := time.Now()
	if err != nil {
		peakRSS()
		return errors.Join(fmt.Errorf("scenario %s with %d installs: %w", scenario, len(s.specs), err),
			endProfiles(ctx))
	}
	time.Sleep(settleTime)
	after := readUsage(s.pids())
	if !slices.Equal(s.pids(), roots) { // the action started the peer
		before = usage{}
	}
	r := report.Result{Scenario: scenario, Installs: len(s.specs), WallSeconds: ended.Sub(s.measureStart).Seconds(),
		PeakRSSBytes: peakRSS(),
		CPUSeconds:   (after.cpu - before.cpu).Seconds(), WorkerCPUSeconds: (after.workers - before.workers).Seconds()}
	if err := endProfiles(ctx); err != nil {
		return err
	}
	took := make([]time.Duration, 0, len(times))
	for _, at := range times {
		took = append(took, at.Sub(s.measureStart))
	}
	r.Latency = report.NewLatency(took)
	requests, err := s.ControlPlane.AuditSince(ctx, mark)
	if err != nil {
		return err
	}
	countRequests(&r, requests, s.peer.user())
	s.results = append(s.results, r)
	logf("%s × %d, %s: %.2f s, CPU %.2f s, %d MiB, %d requests", r.Scenario, r.Installs, s.peerName, r.WallSeconds,
		r.CPUSeconds, r.PeakRSSBytes>>20, r.Total())
	return nil
}

// countRequests adds the numbers of a user's requests to a result.
func countRequests(r *report.Result, all cluster.Requests, user string) {
	requests := all.Where(cluster.ByUser(user))
	r.Events = len(requests.Where(cluster.Write, cluster.Resource("events")))
	r.Requests = map[string]int{}
	for _, q := range requests.Without(cluster.Watch, cluster.Lease, cluster.Resource("events")) {
		r.Requests[q.Verb]++
		if q.Subresource == "status" && cluster.Write(q) {
			r.StatusWrites++
		}
	}
}

// objectKeys returns the names of the peer's install objects.
func objectKeys(p peer, specs []installSpec) []types.NamespacedName {
	out := make([]types.NamespacedName, len(specs))
	for i, s := range specs {
		out[i] = client.ObjectKeyFromObject(p.installObject(s, time.Hour))
	}
	return out
}

// install creates all installs, and waits until the given ones are Ready.
func (s *session) install(ctx context.Context, interval time.Duration, awaited []installSpec) (timestamps, error) {
	now := s.revision
	w := s.installWatch.expect(objectKeys(s.peer, awaited), ready(s.peer, func(revision string) bool {
		return revision == now
	}))
	err := forEach(ctx, parallel, s.specs, func(ctx context.Context, at installSpec) error {
		return s.ControlPlane.Client().Create(ctx, s.peer.installObject(at, interval))
	})
	if err != nil {
		return nil, err
	}
	if err := s.peer.onCreated(ctx, s.specs); err != nil {
		return nil, err
	}
	s.installed = true
	return s.installWatch.await(ctx, w)
}

// change commits another source, and waits until every install is Ready at its revision.
func (s *session) change(ctx context.Context, to source) (timestamps, error) {
	from := s.source
	// The revision is unknown before the commit, so any other revision than the previous one
	// matches.
	before := s.revision
	w := s.installWatch.expect(objectKeys(s.peer, s.specs), ready(s.peer, func(revision string) bool {
		return revision != before
	}))
	if err := s.commit(ctx, to); err != nil {
		return nil, err
	}
	if err := s.peer.onCommitted(ctx, s.specs, from); err != nil {
		return nil, err
	}
	return s.installWatch.await(ctx, w)
}

// request requests a reconcile of each install, and returns an expectation that each has handled
// it.
func (s *session) request(ctx context.Context) (*expectation, error) {
	patch, done := s.peer.reconcileRequest()
	w := s.installWatch.expect(objectKeys(s.peer, s.specs), done)
	return w, forEach(ctx, parallel, s.specs, func(ctx context.Context, at installSpec) error {
		return s.ControlPlane.Client().Patch(ctx, s.peer.installObject(at, time.Hour), patch)
	})
}

// remove deletes all installs at once, and waits until they are gone.
func (s *session) remove(ctx context.Context) (timestamps, error) {
	w := s.installWatch.expect(objectKeys(s.peer, s.specs), deleted)
	err := forEach(ctx, parallel, s.specs, func(ctx context.Context, at installSpec) error {
		return s.ControlPlane.Client().Delete(ctx, s.peer.installObject(at, time.Hour))
	})
	if err != nil {
		return nil, err
	}
	if err := s.peer.onRemoved(ctx, s.specs); err != nil {
		return nil, err
	}
	return s.installWatch.await(ctx, w)
}

// logf prints a line for the user.
func logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
