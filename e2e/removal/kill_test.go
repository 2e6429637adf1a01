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
	"github.com/ksctl/gitops/e2e/harness/leakscan"
	"github.com/ksctl/gitops/e2e/suite"
)

// startProcess starts the controller as a process that reconciles the installs of one spec,
// through a proxy.
func startProcess(ctx context.Context, ns string, through *proxy.Proxy) *harness.Process {
	GinkgoHelper()
	p, err := h.StartProcess(ctx, through.Config(h.Config), "--owner-id="+ns, "--watch-label-selector="+controllerLabel+
		"="+ns)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		p.Kill()
		log := p.Log()
		scanner.Record(leakscan.Log, log)
		if CurrentSpecReport().Failed() {
			GinkgoWriter.Println("the controller's log ends with:", log[max(0, len(log)-4000):])
		}
	})
	return p
}

// killPoint is the write of a controller process at which the process is killed. The API server
// receives that write, unless it is dropped, and no later one.
type killPoint struct {
	n       int
	dropped bool

	mu      sync.Mutex
	writes  int
	reached chan struct{}
	killed  chan struct{}
}

// randomKillPoint returns a kill point before the process can complete all remaining writes. It
// draws the same number of random values whatever is left.
func randomKillPoint(random *rand.Rand, left, killsLeft int) *killPoint {
	share := random.Float64()
	return &killPoint{n: 1 + int(share*float64(left/(killsLeft+1))), dropped: random.IntN(2) == 0,
		reached: make(chan struct{}), killed: make(chan struct{})}
}

func (m *killPoint) request(q cluster.Request) {
	if !cluster.Write(q) || q.Resource == "events" || q.Resource == "leases" {
		return
	}
	m.mu.Lock()
	m.writes++
	writes := m.writes
	m.mu.Unlock()
	if writes == m.n {
		close(m.reached)
	}
	if writes > m.n || writes == m.n && m.dropped {
		<-m.killed
	}
}

// killRepeatedly kills one process after the other at random kill points, and leaves one
// running. It returns the number of writes that were left at each kill. left returns a lower
// bound of the remaining writes.
func killRepeatedly(ctx context.Context, ns string, through *proxy.Proxy, random *rand.Rand, kills int,
	left func() int) (killed []int) {
	GinkgoHelper()
	for len(killed) < kills {
		m := randomKillPoint(random, left(), kills-len(killed))
		release := sync.OnceFunc(func() { close(m.killed) })
		DeferCleanup(release) // otherwise requests block forever if the kill point is not reached
		through.Watch(m.request)
		p := startProcess(ctx, ns, through)
		Eventually(ctx, m.reached, 2*soon).Should(BeClosed(), "the controller reaches write %d", m.n)
		p.Kill()
		release()
		killed = append(killed, left())
	}
	Expect(killed[kills-1]).To(BeNumerically(">", 0), "each kill is in the middle of the removal")
	through.Watch(nil)
	startProcess(ctx, ns, through)
	return killed
}

var _ = Describe("Deleting many installs that depend on each other", suite.Safety, suite.Repeat, Serial, func() {
	It("completes in the right order although the controller is killed repeatedly", func(ctx SpecContext) {
		n, kills := 80, 8
		if suite.Long() {
			n, kills = 200, 20
		}
		ns := namespaceFor(ctx)
		random := rand.New(rand.NewPCG(seed(), 1))
		needs := map[string][]string{}
		var all []*appsv1.KsctlInstall
		through, err := proxy.New(h.ControlPlane.Config(), 1)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(through.Close)
		p := startProcess(ctx, ns, through)
		for i := range n {
			name := fmt.Sprintf("i%03d", i)
			for range min(i, random.IntN(4)) {
				needs[name] = append(needs[name], fmt.Sprintf("i%03d", random.IntN(i)))
			}
			all = append(all, installConfigMap(ctx, ns, name, dependingOn(needs[name]...),
				func(in *appsv1.KsctlInstall) { in.Labels = map[string]string{controllerLabel: ns} }))
		}
		becomesReady(ctx, all...)
		mark, err := h.ControlPlane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		left := func() int { // the deletion of the object, and the removal of the finalizer
			var list appsv1.KsctlInstallList
			Expect(h.ControlPlane.Client().List(ctx, &list, inNamespace(ns))).To(Succeed())
			return 2 * len(list.Items)
		}
		p.Kill()
		began := time.Now()
		Expect(h.ControlPlane.Client().DeleteAllOf(ctx, &appsv1.KsctlInstall{}, client.InNamespace(ns))).To(Succeed())
		killed := killRepeatedly(ctx, ns, through, random, kills, left)
		awaitGone(ctx, toObjects(all)...)
		AddReportEntry("removal", fmt.Sprintf("%d in %s; writes left at each kill: %v", n,
			time.Since(began).Round(time.Millisecond), killed), ReportEntryVisibilityAlways)
		expectDeletionOrder(ctx, ns, mark, needs)
		for _, in := range all {
			Expect(absent(ctx, aConfigMap(ns, in.Name))).To(BeTrue(), "the ConfigMap of %s is removed", in.Name)
		}
	}, SpecTimeout(15*time.Minute))
})

func toObjects(installs []*appsv1.KsctlInstall) (out []client.Object) {
	for _, in := range installs {
		out = append(out, in)
	}
	return out
}
