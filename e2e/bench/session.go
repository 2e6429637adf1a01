package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
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

// pid of the peer; 0 while it has no process.
func (s *session) pid() int {
	if p := s.peer.process(); p != nil {
		return p.Pid
	}
	return 0
}

// moments are when each of the objects was as it should be.
type moments = map[types.NamespacedName]time.Time

// measure records what an action costs. The action returns when each object
// that it is about was as it should be; none means that it took as long as it took.
func (s *session) measure(ctx context.Context, scenario string, act func(ctx context.Context) (moments, error)) error {
	root := s.pid()
	before := look(root)
	forgetPeak(root)
	mark, err := s.Plane.AuditMark(ctx)
	if err != nil {
		return err
	}
	profiles, err := s.profile(ctx, scenario)
	if err != nil {
		return err
	}
	peaks := sample(ctx, s.pid)
	s.began = time.Now()
	times, err := act(ctx)
	ended := time.Now()
	if err != nil {
		peaks.result()
		return errors.Join(fmt.Errorf("scenario %s with %d installs: %w", scenario, len(s.sites), err), profiles.end(ctx))
	}
	time.Sleep(settle)
	after := look(s.pid())
	if s.pid() != root { // it was started meanwhile
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

func keys(sites []site) []types.NamespacedName {
	out := make([]types.NamespacedName, len(sites))
	for i, s := range sites {
		out[i] = types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
	}
	return out
}

// install makes the wishes of sites, and waits until some of them are Ready.
func (s *session) install(ctx context.Context, interval time.Duration, ready []site) (moments, error) {
	w := s.board.expect(keys(ready), readyAt(s.revision))
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
	w := s.board.expect(keys(s.sites), func(key types.NamespacedName, o *unstructured.Unstructured) bool {
		applied := ""
		if o != nil {
			applied, _, _ = unstructured.NestedString(o.Object, "status", "lastAppliedRevision")
		}
		return applied != before && readyAt(applied)(key, o)
	})
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
	token := strconv.FormatInt(time.Now().UnixNano(), 10)
	w := s.board.expect(keys(s.sites), answered(token))
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, appsv1.RequestedAtAnnotation, token))
	return w, each(ctx, s.sites, func(ctx context.Context, at site) error {
		return s.Plane.Client().Patch(ctx, s.peer.wish(at, time.Hour), patch)
	})
}

// remove deletes every wish at once, and waits until none is left.
func (s *session) remove(ctx context.Context) (moments, error) {
	w := s.board.expect(keys(s.sites), gone)
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
