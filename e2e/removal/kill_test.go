package removal_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/faults/proxy"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/witness"
	"github.com/ksctl/gitops/e2e/suite"
)

// life starts the controller as a process that reconciles the installs of one
// spec, through a proxy.
func life(ctx context.Context, ns string, through *proxy.Proxy) *harness.Process {
	GinkgoHelper()
	p, err := h.StartProcess(ctx, through.Config(h.Config), "--owner-id="+ns, "--watch-label-selector="+own+"="+ns)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		p.Kill()
		log := p.Log()
		heard.Hear(witness.Log, log)
		if CurrentSpecReport().Failed() {
			GinkgoWriter.Println("the log of a life ends with:", log[max(0, len(log)-4000):])
		}
	})
	return p
}

// moment is one of the writes of a life, which ends with it: the API server gets
// it or not, and nothing that comes after it.
type moment struct {
	n    int
	lost bool

	mu   sync.Mutex
	seen int
	hit  chan struct{}
	dead chan struct{}
}

// drawMoment draws one before all of the writes that are left can be done. The draws
// are the same whatever is left.
func drawMoment(random *rand.Rand, left, killsLeft int) *moment {
	share := random.Float64()
	return &moment{n: 1 + int(share*float64(left/(killsLeft+1))), lost: random.IntN(2) == 0, hit: make(chan struct{}), dead: make(chan struct{})}
}

func (m *moment) request(q cluster.Request) {
	if !cluster.Write(q) || q.Resource == "events" || q.Resource == "leases" {
		return
	}
	m.mu.Lock()
	m.seen++
	seen := m.seen
	m.mu.Unlock()
	if seen == m.n {
		close(m.hit)
	}
	if seen > m.n || seen == m.n && m.lost {
		<-m.dead
	}
}

// killAgain kills one life after the other at moments that are drawn, and leaves one
// running. It tells how many writes were left at each; left is how many there are at least.
func killAgain(ctx context.Context, ns string, through *proxy.Proxy, random *rand.Rand, kills int, left func() int) (killed []int) {
	GinkgoHelper()
	for len(killed) < kills {
		m := drawMoment(random, left(), kills-len(killed))
		bury := sync.OnceFunc(func() { close(m.dead) })
		DeferCleanup(bury) // or requests wait for it when it is not hit
		through.Watch(m.request)
		p := life(ctx, ns, through)
		Eventually(ctx, m.hit, 2*soon).Should(BeClosed(), "it goes on, to its write %d", m.n)
		p.Kill()
		bury()
		killed = append(killed, left())
	}
	Expect(killed[kills-1]).To(BeNumerically(">", 0), "each kill was in the middle of it")
	through.Watch(nil)
	life(ctx, ns, through)
	return killed
}

var _ = Describe("Deleting many installs that depend on each other", suite.Safety, suite.Repeat, Serial, func() {
	It("ends in the right order and completely though the controller is killed again and again", func(ctx SpecContext) {
		n, kills := 80, 8
		if suite.Long() {
			n, kills = 200, 20
		}
		ns := namespaceFor(ctx)
		random := rand.New(rand.NewPCG(seed(), 1))
		needs := map[string][]string{}
		var all []*appsv1.KsctlInstall
		through, err := proxy.New(h.Plane.Config(), 1)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(through.Close)
		p := life(ctx, ns, through)
		for i := range n {
			name := fmt.Sprintf("i%03d", i)
			for range min(i, random.IntN(4)) {
				needs[name] = append(needs[name], fmt.Sprintf("i%03d", random.IntN(i)))
			}
			all = append(all, one(ctx, ns, name, after(needs[name]...), func(in *appsv1.KsctlInstall) { in.Labels = map[string]string{own: ns} }))
		}
		becomesReady(ctx, all...)
		mark, err := h.Plane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		left := func() int { // of its object, and of its finalizer
			var list appsv1.KsctlInstallList
			Expect(h.Plane.Client().List(ctx, &list, inNamespace(ns))).To(Succeed())
			return 2 * len(list.Items)
		}
		p.Kill()
		began := time.Now()
		Expect(h.Plane.Client().DeleteAllOf(ctx, &appsv1.KsctlInstall{}, client.InNamespace(ns))).To(Succeed())
		killed := killAgain(ctx, ns, through, random, kills, left)
		gone(ctx, toObjects(all)...)
		AddReportEntry("removal", fmt.Sprintf("%d in %s; killed with so many writes left: %v", n, time.Since(began).Round(time.Millisecond), killed), ReportEntryVisibilityAlways)
		expectOrder(ctx, ns, mark, needs)
		for _, in := range all {
			Expect(absent(ctx, aConfigMap(ns, in.Name))).To(BeTrue(), "%s left something", in.Name)
		}
	}, SpecTimeout(15*time.Minute))
})

func toObjects(installs []*appsv1.KsctlInstall) (out []client.Object) {
	for _, in := range installs {
		out = append(out, in)
	}
	return out
}
