package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/faults/proxy"
	"github.com/ksctl/gitops/e2e/suite"
)

// kills is how often the controller is killed: some in each run of the tests,
// hundreds by "make soak".
func kills() int {
	GinkgoHelper()
	text := os.Getenv(killsVariable)
	if text == "" {
		return 12
	}
	n, err := strconv.Atoi(text)
	Expect(err).NotTo(HaveOccurred(), killsVariable)
	return n
}

var _ = Describe("A controller that is killed", suite.Safety, func() {
	It("at any moment of installs, changes and removals leaves no object that no inventory knows, and goes on", func(ctx SpecContext) {
		f := newFleet(ctx, map[string]int{"big": 140, "small": 60})
		p := trouble()
		r := rand.New(rand.NewPCG(seed, 1))
		revision, converged, idle, total := 0, 0, 0, kills()
		did := map[string]int{}
		began := time.Now()
		for done := 0; done < total; {
			// The same draws in the same order, whatever the machine does.
			var what string
			what, revision = f.change(ctx, r, revision)
			for range min(1+r.IntN(4), total-done) {
				moment := f.killOnce(ctx, p, r)
				done++
				did[strings.Fields(what)[0]]++
				if moment == nothingToDo {
					idle++
				}
				f.knowsAll(ctx, fmt.Sprintf("kill %d, while it was to %s, %s", done, what, moment))
			}
			life := start(ctx, f, p)
			f.stands(ctx)
			f.knowsAll(ctx, what)
			life.Kill()
			converged++
			if total > 50 && converged%10 == 0 {
				fmt.Printf("%d kills, %d times converged, after %s\n", done, converged, time.Since(began).Round(time.Second))
			}
		}
		start(ctx, f, p)
		f.clears(ctx)
		AddReportEntry("kills", fmt.Sprintf("%d: %v, %d with nothing to do; it converged %d times, in %s", total, did, idle, converged, time.Since(began).Round(time.Second)), ReportEntryVisibilityAlways)
	}, SpecTimeout(2*time.Hour))
})

// change has one install of the fleet be made, changed or removed, or both of
// them something.
func (f *fleet) change(ctx context.Context, r *rand.Rand, revision int) (what string, next int) {
	GinkgoHelper()
	names := []string{"big", "small"}
	if r.IntN(3) > 0 {
		names = names[:1]
		if r.IntN(3) == 0 {
			names = []string{"small"}
		}
	}
	for _, name := range names {
		revision++
		_, there := f.at[name]
		remove := r.IntN(3) == 0
		switch {
		case there && remove:
			what += "remove " + name + " "
			f.remove(ctx, name)
		case there:
			what += "change " + name + " "
			f.install(ctx, name, revision)
		default:
			what += "install " + name + " "
			f.install(ctx, name, revision)
		}
	}
	return what[:len(what)-1], revision
}

const nothingToDo = "with nothing to do"

// killOnce runs the controller until a moment that is drawn: some time after one
// of its requests, before the API server gets it or before the answer comes. A
// controller that has nothing left to do is killed all the same.
func (f *fleet) killOnce(ctx context.Context, p *proxy.Proxy, r *rand.Rand) (moment string) {
	GinkgoHelper()
	t := &trigger{n: 1 + r.IntN(120), lost: r.IntN(2) == 0, pause: time.Duration(r.IntN(3000)) * time.Microsecond, now: make(chan struct{})}
	if r.IntN(4) == 0 { // any request, most of them before the first write
		t.any, t.n = true, 1+r.IntN(60)
	}
	p.Watch(t.request)
	defer p.Watch(nil)
	life := start(ctx, f, p)
	began := time.Now()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		select {
		case <-t.now:
			life.Kill()
			return fmt.Sprintf("at request %d (of any kind: %t), lost: %t", t.n, t.any, t.lost)
		case <-life.Done():
			Fail("the controller ended by itself: " + tail(life.Log()))
		case <-tick.C:
			if quiet := t.quiet(); quiet > time.Second && time.Since(began) > 2*time.Second || time.Since(began) > 20*time.Second {
				life.Kill()
				return nothingToDo
			}
		}
	}
}

// trigger fires at one of the requests that it sees.
type trigger struct {
	n     int
	any   bool // reads count, too
	lost  bool // that request does not reach the API server
	pause time.Duration
	now   chan struct{}

	mu   sync.Mutex
	seen int
	last time.Time
}

func (t *trigger) request(q cluster.Request) {
	t.mu.Lock()
	t.last = time.Now()
	if t.any || cluster.Write(q) && q.Resource != "events" {
		t.seen++
	} else {
		q = cluster.Request{}
	}
	hit := t.seen == t.n && q.Verb != ""
	t.mu.Unlock()
	switch {
	case hit && t.lost:
		close(t.now)
		time.Sleep(t.pause)
	case hit: // it is under way when the controller dies
		time.AfterFunc(t.pause, func() { close(t.now) })
	}
}

// quiet is how long there was no request.
func (t *trigger) quiet() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last.IsZero() {
		return 0
	}
	return time.Since(t.last)
}
