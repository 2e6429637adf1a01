package cost_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/suite"
)

var _ = Describe("Two replicas", suite.Safety, func() {
	It("write once, and one continues when the other stops", func(ctx SpecContext) {
		ns := framework.Namespace(ctx, h, "replicas")
		var replicas []*framework.Controller
		for range 2 {
			// A stopping leader releases its lease, so the default duration is fine.
			replicas = append(replicas,
				startController(ns, "--enable-leader-election", "--leader-election-retry-period=500ms"))
		}
		offer := func(revision string) {
			GinkgoHelper()
			Expect(h.PublishSource(ctx, ns, "src", revision,
				harness.SourceTree(harness.OneComponent, map[string]string{"main/a.yaml": configMap("a", revision)}))).
				To(Succeed())
		}
		writes := func(mark cluster.Mark) int {
			GinkgoHelper()
			requests, err := h.ControlPlane.AuditSince(ctx, mark)
			Expect(err).NotTo(HaveOccurred())
			return len(ours(requests).Where(cluster.Write, cluster.Resource("configmaps"), cluster.InNamespace(ns)))
		}
		offer("r1")
		in := install(ctx, ns, ns, "i")
		atRevision(ctx, in, "r1")
		mark, err := h.ControlPlane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		offer("r2")
		atRevision(ctx, in, "r2")
		Expect(writes(mark)).To(Equal(1), "only the leader writes")

		// Whichever replica leads, stopping the first and then starting another changes the
		// leader at most once.
		Expect(replicas[0].Stop()).To(Succeed())
		mark, err = h.ControlPlane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		offer("r3")
		atRevision(ctx, in, "r3")
		Expect(writes(mark)).To(Equal(1), "the remaining replica writes")
	})
})
