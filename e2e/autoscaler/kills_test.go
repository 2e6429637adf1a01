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

// operations is the number of operations with random kills; KSCTL_E2E_KILLS overrides it.
const operations = 15

var _ = Describe("A controller and an agent that are killed", suite.Safety, func() {
	It("orphan no machine, create none twice, and converge to the right number", func(ctx SpecContext) {
		total := operations
		if n, err := strconv.Atoi(os.Getenv("KSCTL_E2E_KILLS")); err == nil {
			total = n
		}
		Expect(controller.Stop()).To(Succeed())
		var p *harness.Process
		DeferCleanup(func() { // runs after the cleanup of the cluster, which needs a controller
			if p != nil {
				p.Kill()
			}
			controller.Start()
		})
		s := newTestCluster(ctx)
		p = startControllerProcess(ctx)
		s.configure(provisionerConfig{Create: map[string]any{"after": 1, "delay": "150ms"},
			Delete: map[string]any{"after": 1, "delay": "150ms"}})
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
		s.runAutoscaler(ctx)
		r := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 8))
		kills, ended := 0, map[string]bool{}
		least := int32(1)
		for len(ended) < total {
			// Up by a raised minSize, down by Cluster Autoscaler, since no pod needs the machines.
			if least = 1; len(ended)%2 == 0 {
				least = int32(2 + r.IntN(3))
			}
			s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) {
				spec.Pools[0].MinSize, spec.Pools[0].MaxSize = least, 4
			})
			wait := time.After(time.Duration(r.IntN(1200)) * time.Millisecond)
			select {
			case <-ctx.Done():
				return
			case <-wait:
			}
			switch r.IntN(3) {
			case 0:
				p.Kill()
				p = startControllerProcess(ctx)
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
			Expect(indexes(nodes)).To(Equal(upTo(len(nodes))), "one node for each index of the array: %v", nodes)
		}
		AddReportEntry("killed",
			fmt.Sprintf("%d times in %d operations, seed %d", kills, len(ended), GinkgoRandomSeed()))
		s.configure(provisionerConfig{})
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Pools[0].MinSize, spec.Pools[0].MaxSize = 2, 2 })
		Eventually(ctx, s.nodes(ctx), soon).Should(ConsistOf("0:small", "1:small"))
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("2/2/2/0/0"))
		Expect(s.as.Status.Workers).To(Equal(int32(2)))
	}, SpecTimeout(time.Hour))
})

// startControllerProcess runs the shipped controller as a process.
func startControllerProcess(ctx context.Context) *harness.Process {
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
