package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/ksctl/gitops/internal/clusters/probe"
)

const (
	// askTime is how long the answer of a cluster may take, doubtTime where a request has
	// none: workers wait for it.
	askTime   = 10 * time.Second
	doubtTime = 5 * time.Second
	// patience is how long a request may take before the cluster is asked beside it.
	patience = 3 * time.Second
	// doubtEvery is how often a cluster is asked at most that answers.
	doubtEvery = 5 * time.Second
	// minBackoff and maxBackoff bound the wait until a cluster is asked again that did not answer.
	minBackoff = time.Second
	maxBackoff = time.Minute
)

// gate lets requests to a cluster through while that answers. It shuts when a request can't
// reach it, or when one takes long and the cluster, asked beside it, says nothing; and it opens
// when the cluster is asked and answers.
type gate struct {
	id    string
	cfg   *rest.Config
	clock clock.WithTicker
	// ask asks a cluster; connect makes new connections.
	ask     func(context.Context, *rest.Config) (probe.Answer, error)
	connect func(*rest.Config) (*connections, error)
	// changed is called when it opens, and when it is known why it is shut, once for each reason.
	changed func(open bool)
	// doubts and wishes have room for one: that a cluster answers no more, and to have one
	// asked at once that did not.
	doubts, wishes chan struct{}

	mu sync.Mutex
	// through are the connections while it is open; nil: it is shut.
	through *connections
	// err is why it is shut; nil: the cluster is being asked.
	err error
	// told is the reason that was told last; "" while it is open.
	told string
	// uid of the cluster, as reach.Answer has it.
	uid string
}

// RoundTrip implements http.RoundTripper.
func (g *gate) RoundTrip(req *http.Request) (*http.Response, error) {
	through, err := g.open()
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	ctx, cancel := context.WithCancel(req.Context())
	answered := through.began(cancel)
	late := time.AfterFunc(patience, func() { signal(g.doubts) })
	res, err := through.RoundTrip(req.WithContext(ctx))
	late.Stop()
	answered()
	if err != nil {
		cancel()
		return nil, g.failed(req, through, err)
	}
	res.Body = &body{ReadCloser: res.Body, close: cancel}
	switch {
	case res.StatusCode == http.StatusUnauthorized:
		signal(g.doubts) // one API may refuse what the cluster takes
	case res.StatusCode >= 300 && res.StatusCode < 400 && res.Header.Get("Location") != "":
		_ = res.Body.Close()
		// Our credentials would go with it.
		return nil, fmt.Errorf("%s sends %s elsewhere (%d), and is not followed there", People(g.id), req.URL.Path, res.StatusCode)
	}
	if res.StatusCode >= 400 {
		if err := mask(res, g.cfg); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// failed is the error of a request that got no answer.
func (g *gate) failed(req *http.Request, through *connections, err error) error {
	switch ended := req.Context().Err(); {
	case g.isShut(through): // it was broken off
		return &UnreachableError{Cluster: g.id}
	case errors.Is(ended, context.Canceled):
		return err
	case errors.Is(ended, context.DeadlineExceeded): // it may be the one thing that takes long
		signal(g.doubts)
	default:
		g.shut(through, nil)
		signal(g.doubts)
	}
	return &UnreachableError{Cluster: g.id, Err: probe.Explain(req.Context(), err)}
}

// body ends the context of a request when its answer was read.
type body struct {
	io.ReadCloser
	close context.CancelFunc
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer b.close()
	return b.ReadCloser.Close()
}

// open returns the connections, or an *UnreachableError.
func (g *gate) open() (*connections, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.through == nil {
		return nil, &UnreachableError{Cluster: g.id, Err: g.err}
	}
	return g.through, nil
}

// closed is why requests do not go through; nil: they do.
func (g *gate) closed() error {
	_, err := g.open()
	return err
}

// clusterUID is the uid of the cluster, as it was when it answered last.
func (g *gate) clusterUID() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.uid
}

func (g *gate) isShut(used *connections) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.through != used
}

// shut lets nothing through until the cluster has answered, and breaks off what waits for an
// answer. Connections that were given up already say nothing of those that there are.
func (g *gate) shut(used *connections, why error) {
	g.mu.Lock()
	was := g.through == used
	if was {
		g.through, g.err = nil, why
	}
	g.mu.Unlock()
	if was {
		used.end()
	}
}

// askNow has a cluster asked at once that did not answer.
func (g *gate) askNow() { signal(g.wishes) }

// run asks the cluster until it answers, and again whenever that is in doubt.
func (g *gate) run(ctx context.Context) {
	defer g.end()
	backoff, asked := time.Duration(0), time.Time{}
	for ctx.Err() == nil {
		if g.closed() == nil {
			select {
			case <-ctx.Done():
				return
			case <-g.doubts:
			}
			since := g.clock.Since(asked)
			if since > maxBackoff {
				backoff = 0
			}
			if g.closed() == nil && since < doubtEvery && !g.wait(ctx, doubtEvery-since, nil) {
				return
			}
		}
		open := g.closed() == nil
		if !open && backoff > 0 && !g.wait(ctx, backoff/2+rand.N(backoff), g.wishes) {
			return
		}
		answered := g.inquire(ctx)
		if answered {
			asked = g.clock.Now()
		}
		if !open || !answered { // who opens and shuts all the time is asked ever later
			backoff = min(max(2*backoff, minBackoff), maxBackoff)
		}
	}
}

// inquire asks the cluster once. It is true when it has answered.
func (g *gate) inquire(ctx context.Context) bool {
	open, _ := g.open()
	within := askTime
	if open != nil {
		within = doubtTime
	}
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	answer, err := g.ask(limited, g.cfg)
	if ctx.Err() != nil {
		return false
	}
	if open != nil && err != nil {
		g.shut(open, err)
	}
	if open != nil && err == nil && !g.isShut(open) {
		return true
	}
	var through *connections
	if err == nil {
		through, err = g.connect(g.cfg)
	}
	if g.settle(through, answer.UID, err) {
		g.changed(err == nil)
	}
	return err == nil
}

// settle takes over what came of asking. It is true when that is to be told.
func (g *gate) settle(through *connections, uid string, err error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.through, g.err = through, err
	if err == nil {
		g.told, g.uid = "", uid
		return true
	}
	again := g.told == err.Error()
	g.told = err.Error()
	return !again
}

// wait is false when ctx ends. A word ends it sooner.
func (g *gate) wait(ctx context.Context, d time.Duration, word <-chan struct{}) bool {
	t := g.clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C():
	case <-word:
	}
	return true
}

// end gives the connections up.
func (g *gate) end() {
	if through, err := g.open(); err == nil {
		g.shut(through, nil)
	}
}
