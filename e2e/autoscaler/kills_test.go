package autoscaler_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/suite"
)

// operations that the spec has somebody killed in; KSCTL_E2E_KILLS sets another number.
const operations = 15

var _ = Describe("A controller and an agent that are killed", suite.Safety, func() {
	It("orphan no machine, make none twice, and have the right number in the end", func(ctx SpecContext) {
		total := operations
		if n, err := strconv.Atoi(os.Getenv("KSCTL_E2E_KILLS")); err == nil {
			total = n
		}
		Expect(inProcess.Stop()).To(Succeed())
		var p *harness.Process
		DeferCleanup(func() { // after the site was taken away by what runs then, and also when there is none
			if p != nil {
				p.Kill()
			}
			startController()
		})
		s := newSite(ctx)
		p = process(ctx)
		s.turn(knobs{Create: map[string]any{"after": 1, "delay": "150ms"}, Delete: map[string]any{"after": 1, "delay": "150ms"}})
		Eventually(ctx, s.numbers(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
		s.loops(ctx)
		r := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 8))
		kills, ended := 0, map[string]bool{}
		least := int32(1)
		for len(ended) < total {
			// Up by what a commit asks for, down by Cluster Autoscaler, as nothing needs the machines.
			if least = 1; len(ended)%2 == 0 {
				least = int32(2 + r.IntN(3))
			}
			s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Pools[0].MinSize, spec.Pools[0].MaxSize = least, 4 })
			wait := time.After(time.Duration(r.IntN(1200)) * time.Millisecond)
			select {
			case <-ctx.Done():
				return
			case <-wait:
			}
			switch r.IntN(3) {
			case 0:
				p.Kill()
				p = process(ctx)
				kills++
			case 1:
				s.agent.Kill()
				s.runAgent(ctx)
				kills++
			}
			Eventually(ctx, func(g Gomega) {
				g.Expect(s.get(ctx)).To(Succeed())
				op := s.as.Status.Operation
				g.Expect(op).NotTo(BeNil())
				g.Expect(op.State).To(Or(Equal(clusterv1.OperationSucceeded), Equal(clusterv1.OperationFailed)))
				g.Expect(s.as.Status.Pools[0].Target).To(BeNumerically(">=", least))
				ended[op.ID] = true
			}, soon).Should(Succeed())
			nodes, err := s.nodes(ctx)()
			Expect(err).NotTo(HaveOccurred())
			Expect(len(nodes)).To(BeNumerically("<=", 4))
			Expect(indexes(nodes)).To(Equal(upTo(len(nodes))), "one node for each place in the array: %v", nodes)
		}
		AddReportEntry("killed", fmt.Sprintf("%d times in %d operations, seed %d", kills, len(ended), GinkgoRandomSeed()))
		s.turn(knobs{})
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Pools[0].MinSize, spec.Pools[0].MaxSize = 2, 2 })
		Eventually(ctx, s.nodes(ctx), soon).Should(ConsistOf("0:small", "1:small"))
		Eventually(ctx, s.numbers(ctx, "small"), soon).Should(Equal("2/2/2/0/0"))
		Expect(s.as.Status.Workers).To(Equal(int32(2)))
	}, SpecTimeout(time.Hour))
})

// process runs the controller as it is shipped.
func process(ctx context.Context) *harness.Process {
	GinkgoHelper()
	p, err := h.StartProcess(ctx, h.Config, providerFlags()...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		if CurrentSpecReport().Failed() {
			GinkgoWriter.Println(p.Log())
		}
	})
	return p
}

func indexes(nodes []string) []int {
	out := make([]int, 0, len(nodes))
	for _, n := range nodes {
		out = append(out, int(n[0]-'0'))
	}
	return out
}

func upTo(n int) []int {
	out := make([]int, 0, n)
	for i := range n {
		out = append(out, i)
	}
	return out
}
