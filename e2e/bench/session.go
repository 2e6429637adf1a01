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

// settle is how long it is still counted after everything is as it should be:
// what a peer does late belongs to what it does.
const settle = 3 * time.Second

// session is one peer on one fresh control plane.
type session struct {
	*world
	options  options
	peerName string
	peer     peer
	sites    []site
	board    *board
	placed   bool      // everything is installed
	began    time.Time // of what is measured

	results []report.Result
}

// newSession starts a control plane and a peer on it.
func newSession(ctx context.Context, name string, o options, sites []site) (s *session, err error) {
	s = &session{options: o, peerName: name, sites: sites}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	p, err := newPeer(name, o)
	if err != nil {
		return s, err
	}
	if s.world, err = newWorld(ctx); err != nil {
		return s, err
	}
	if err = s.world.prepare(ctx, sites); err != nil {
		return s, fmt.Errorf("prepare the namespaces: %w", err)
	}
	s.peer = p
	if err = p.prepare(ctx, s.world); err != nil {
		return s, fmt.Errorf("prepare %s: %w", name, err)
	}
	if s.board, err = newBoard(ctx, s.Plane.Config(), p.resource(), ""); err != nil {
		return s, err
	}
	if err = p.start(ctx); err != nil {
		return s, fmt.Errorf("start %s: %w", name, err)
	}
	return s, nil
}

func (s *session) close() error {
	var errs []error
	if s.board != nil {
		s.board.stop()
	}
	if s.peer != nil {
		errs = append(errs, s.peer.stop())
	}
	if s.world != nil {
		errs = append(errs, s.Stop())
	}
	return errors.Join(errs...)
}

// pids of the peer; none while it has no process.
func (s *session) pids() []int {
	var out []int
	for _, p := range s.peer.processes() {
		out = append(out, p.Pid)
	}
	return out
}

// commit moves the peer's source on.
func (s *session) commit(ctx context.Context, to source) (err error) {
	s.commits++
	s.source = to
	s.revision, err = s.peer.publish(ctx, to)
	return err
}

// next is a value that no commit had so far.
func (s *session) next() string { return strconv.Itoa(s.commits + 1) }

// moments are when each of the objects was as it should be.
type moments = map[types.NamespacedName]time.Time

// measure records what an action costs. The action returns when each object
// that it is about was as it should be; none means that it took as long as it took.
func (s *session) measure(ctx context.Context, scenario string, act func(ctx context.Context) (moments, error)) error {
	roots := s.pids()
	before := look(roots)
	forgetPeak(roots)
	mark, err := s.Plane.AuditMark(ctx)
	if err != nil {
		return err
	}
	profiles, err := s.profile(ctx, scenario)
	if err != nil {
		return err
	}
	peaks := sample(ctx, s.pids)
	s.began = time.Now()
	times, err := act(ctx)
	ended := time.Now()
	if err != nil {
		peaks.result()
		return errors.Join(fmt.Errorf("scenario %s with %d installs: %w", scenario, len(s.sites), err), profiles.end(ctx))
	}
	time.Sleep(settle)
	after := look(s.pids())
	if !slices.Equal(s.pids(), roots) { // it was started meanwhile
		before = usage{}
	}
	r := report.Result{Scenario: scenario, Installs: len(s.sites), WallSeconds: ended.Sub(s.began).Seconds(), PeakRSSBytes: peaks.result(),
		CPUSeconds: (after.cpu - before.cpu).Seconds(), WorkerCPUSeconds: (after.workers - before.workers).Seconds()}
	if err := profiles.end(ctx); err != nil {
		return err
	}
	took := make([]time.Duration, 0, len(times))
	for _, at := range times {
		took = append(took, at.Sub(s.began))
	}
	r.Latency = report.NewLatency(took)
	requests, err := s.Plane.AuditSince(ctx, mark)
	if err != nil {
		return err
	}
	count(&r, requests, s.peer.user())
	s.results = append(s.results, r)
	progress("%s × %d, %s: %.2f s, CPU %.2f s, %d MiB, %d requests", r.Scenario, r.Installs, s.peerName, r.WallSeconds, r.CPUSeconds, r.PeakRSSBytes>>20, r.Total())
	return nil
}

// count adds what a user asked the API server for.
func count(r *report.Result, all cluster.Requests, user string) {
	requests := all.Where(cluster.By(user))
	r.Events = len(requests.Where(cluster.Write, cluster.Resource("events")))
	r.Requests = map[string]int{}
	for _, q := range requests.Without(cluster.Watch, cluster.Lease, cluster.Resource("events")) {
		r.Requests[q.Verb]++
		if q.Subresource == "status" && cluster.Write(q) {
			r.StatusWrites++
		}
	}
}

// keys of a peer's installs at sites.
func keys(p peer, sites []site) []types.NamespacedName {
	out := make([]types.NamespacedName, len(sites))
	for i, s := range sites {
		out[i] = client.ObjectKeyFromObject(p.wish(s, time.Hour))
	}
	return out
}

// install makes the wishes of sites, and waits until some of them are Ready.
func (s *session) install(ctx context.Context, interval time.Duration, some []site) (moments, error) {
	now := s.revision
	w := s.board.expect(keys(s.peer, some), ready(s.peer, func(revision string) bool { return revision == now }))
	err := each(ctx, s.sites, func(ctx context.Context, at site) error {
		return s.Plane.Client().Create(ctx, s.peer.wish(at, interval))
	})
	if err != nil {
		return nil, err
	}
	if err := s.peer.created(ctx, s.sites); err != nil {
		return nil, err
	}
	s.placed = true
	return s.board.await(ctx, w)
}

// change commits another source, and waits until every install is Ready at it.
func (s *session) change(ctx context.Context, to source) (moments, error) {
	from := s.source
	// The revision is not known before the commit, and Ready after it is what counts.
	before := s.revision
	w := s.board.expect(keys(s.peer, s.sites), ready(s.peer, func(revision string) bool { return revision != before }))
	if err := s.commit(ctx, to); err != nil {
		return nil, err
	}
	if err := s.peer.committed(ctx, s.sites, from); err != nil {
		return nil, err
	}
	return s.board.await(ctx, w)
}

// request asks each install for a reconcile, and returns what waits for the answers.
func (s *session) request(ctx context.Context) (*wait, error) {
	patch, done := s.peer.ask()
	w := s.board.expect(keys(s.peer, s.sites), done)
	return w, each(ctx, s.sites, func(ctx context.Context, at site) error {
		return s.Plane.Client().Patch(ctx, s.peer.wish(at, time.Hour), patch)
	})
}

// remove deletes every wish at once, and waits until none is left.
func (s *session) remove(ctx context.Context) (moments, error) {
	w := s.board.expect(keys(s.peer, s.sites), gone)
	err := each(ctx, s.sites, func(ctx context.Context, at site) error {
		return s.Plane.Client().Delete(ctx, s.peer.wish(at, time.Hour))
	})
	if err != nil {
		return nil, err
	}
	if err := s.peer.removed(ctx, s.sites); err != nil {
		return nil, err
	}
	return s.board.await(ctx, w)
}

// progress tells a person what goes on.
func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
