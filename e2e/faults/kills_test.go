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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/faults/proxy"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/suite"
)

// kills returns the number of kills: a few in each test run, hundreds in "make soak".
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
	It("at any moment of installs, changes and removals leaves no object without an inventory entry, and converges "+
		"after a restart", func(ctx SpecContext) {
		f := newInstallSet(ctx, map[string]int{"big": 140, "small": 60})
		p := newProxy()
		r := rand.New(rand.NewPCG(seed, 1))
		revision, converged, idle, total := 0, 0, 0, kills()
		did := map[string]int{}
		began := time.Now()
		for done := 0; done < total; {
			// The random choices are the same in each run with a seed, whatever the machine does.
			var what string
			what, revision = f.change(ctx, r, revision)
			for range min(1+r.IntN(4), total-done) {
				moment := f.killOnce(ctx, p, r)
				done++
				did[strings.Fields(what)[0]]++
				if moment == whileIdle {
					idle++
				}
				f.expectNoOrphans(ctx, fmt.Sprintf("kill %d, during %s, %s", done, what, moment))
			}
			life := startController(ctx, f, p)
			f.awaitConverged(ctx)
			f.expectNoOrphans(ctx, what)
			life.Kill()
			converged++
			if total > 50 && converged%10 == 0 {
				fmt.Printf("%d kills, converged %d times, after %s\n", done, converged,
					time.Since(began).Round(time.Second))
			}
		}
		startController(ctx, f, p)
		f.removeAll(ctx)
		AddReportEntry("kills", fmt.Sprintf("%d: %v, %d while idle; converged %d times, in %s", total, did, idle,
			converged, time.Since(began).Round(time.Second)), ReportEntryVisibilityAlways)
	}, SpecTimeout(2*time.Hour))
})

var _ = Describe("A create that reaches the API server 30 s later", suite.Safety, func() {
	It("leaves no object if the controller is killed and the install is removed meanwhile", func(ctx SpecContext) {
		const delay = 30 * time.Second
		f := newInstallSet(ctx, map[string]int{"i": 3})
		p := newProxy()
		p.Set(proxy.Rule{When: []cluster.RequestFilter{cluster.Verb("patch"), cluster.Resource("configmaps"),
			cluster.InNamespace(f.ns)}, Times: 1, Do: proxy.Late(delay)})
		f.install(ctx, "i", 1)
		life := startController(ctx, f, p)
		Eventually(p.FaultCount, soon, "20ms").Should(Equal(1), "the ConfigMap is created")
		sent := time.Now()
		life.Kill()
		f.remove(ctx, "i")
		startController(ctx, f, nil)
		in := harness.NewInstall(f.ns, "i")
		Eventually(ctx, func() string {
			err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(in), in)
			if apierrors.IsNotFound(err) {
				return ""
			}
			return fmt.Sprint(err, harness.ReadyCondition(in).Message)
		}, soon, "100ms").Should(BeEmpty(), "the install is removed")
		Expect(time.Since(sent)).To(BeNumerically(">", delay), "the install waits for the request")
		f.expectNoOrphans(ctx, "after the removal")
		var left corev1.ConfigMapList
		Expect(h.ControlPlane.Client().List(ctx, &left, client.InNamespace(f.ns), client.HasLabels{live.OwnerLabel})).
			To(Succeed())
		Expect(left.Items).To(BeEmpty())
	})
})

// change installs, changes or removes one or both installs of the set. It returns what it did
// and the last revision.
func (f *installSet) change(ctx context.Context, r *rand.Rand, revision int) (what string, next int) {
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

const whileIdle = "while idle"

// killOnce runs the controller and kills it at a random moment: some time after one of its
// requests, before the API server receives it or before the response. An idle controller is
// killed as well.
func (f *installSet) killOnce(ctx context.Context, p *proxy.Proxy, r *rand.Rand) (moment string) {
	GinkgoHelper()
	t := &trigger{n: 1 + r.IntN(120), lost: r.IntN(2) == 0, pause: time.Duration(r.IntN(3000)) * time.Microsecond,
		fired: make(chan struct{})}
	if r.IntN(4) == 0 { // any request, which is mostly a read before the first write
		t.any, t.n = true, 1+r.IntN(60)
	}
	p.Watch(t.request)
	defer p.Watch(nil)
	life := startController(ctx, f, p)
	began := time.Now()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		select {
		case <-t.fired:
			life.Kill()
			return fmt.Sprintf("at request %d (of any verb: %t), lost: %t", t.n, t.any, t.lost)
		case <-life.Done():
			Fail("the controller ended without a kill: " + tail(life.Log()))
		case <-tick.C:
			if quiet := t.quiet(); quiet > time.Second && time.Since(began) > 2*time.Second ||
				time.Since(began) > 20*time.Second {
				life.Kill()
				return whileIdle
			}
		}
	}
}

// trigger fires at the n-th request.
type trigger struct {
	n     int
	any   bool // reads count as well
	lost  bool // the request does not reach the API server
	pause time.Duration
	fired chan struct{}

	mu    sync.Mutex
	count int
	last  time.Time
}

func (t *trigger) request(q cluster.Request) {
	t.mu.Lock()
	t.last = time.Now()
	if t.any || cluster.Write(q) && q.Resource != "events" {
		t.count++
	} else {
		q = cluster.Request{}
	}
	hit := t.count == t.n && q.Verb != ""
	t.mu.Unlock()
	switch {
	case hit && t.lost:
		close(t.fired)
		time.Sleep(t.pause)
	case hit: // the request is in flight when the controller is killed
		time.AfterFunc(t.pause, func() { close(t.fired) })
	}
}

// quiet returns the time since the last request.
func (t *trigger) quiet() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last.IsZero() {
		return 0
	}
	return time.Since(t.last)
}
