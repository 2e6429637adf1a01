package autoscaler_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler"
	"github.com/ksctl/gitops/e2e/autoscaler/casim"
)

var _ = Describe("A KsctlAutoScaler, besides", func() {
	It("a scale-up that never arrives: it is said before Cluster Autoscaler gives up, and the machine goes", func(ctx SpecContext) {
		const provisionTime = time.Minute // of which a tenth is left when it is said
		s := newSite(ctx)
		Eventually(ctx, s.numbers(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
		s.within(ctx, provisionTime)
		s.turn(knobs{NoNode: true})
		ca := s.autoscaler(ctx)
		Eventually(ctx, func() error { return ca.Loop(ctx) }, soon).Should(Succeed())
		Expect(s.increase(ctx, "small", 1)).To(Succeed())
		asked := time.Now()
		Eventually(ctx, s.machines(ctx), soon).Should(Equal(int32(2)), "the machine is made")
		Expect(s.instances(ctx, "small")()).To(HaveLen(1), "it is not listed: it would be deleted and made again without end")
		Eventually(ctx, s.failures(ctx, "small"), soon, 50*time.Millisecond).Should(Equal([]string{autoscaler.CodeJoinTimeout}))
		Expect(time.Since(asked)).To(BeNumerically("<", provisionTime), "who waits so long stops scaling the whole cluster")
		Expect(time.Since(asked)).To(BeNumerically(">", provisionTime/2))
		Eventually(ctx, s.machines(ctx), soon).Should(Equal(int32(1)), "the machine is deleted")
		Eventually(ctx, s.numbers(ctx, "small"), soon).Should(Equal("2/1/1/0/0"), "until who asked has taken note, it is in the target")
		Eventually(ctx, s.stands(ctx), soon).Should(And(HavePrefix("False Backoff: pool small: "), ContainSubstring("has not joined the cluster in time")))
		By("Cluster Autoscaler taking note")
		Expect(ca.Loop(ctx)).To(Succeed())
		Eventually(ctx, s.numbers(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
		Expect(s.instances(ctx, "small")()).To(HaveLen(1))
		Expect(s.increase(ctx, "small", 1)).To(MatchError(ContainSubstring("nothing is made for pool small until ")))
		Expect(ca.Refusals()).To(BeEmpty())
	})

	It("the KsctlCluster deleted first: it stays while it scales, and goes when that ends", func(ctx SpecContext) {
		s := newSite(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Pools[0].MinSize = 2 })
		Eventually(ctx, s.numbers(ctx, "small"), soon).Should(Equal("2/2/2/0/0"))
		Eventually(ctx, s.stands(ctx), soon).Should(HavePrefix("True "))
		Eventually(ctx, func() map[string]string { return s.node(ctx, 0).Annotations }, soon).Should(HaveKey(casim.DisabledAnnotation)) // it is put on after that is said
		Eventually(ctx, s.nodes(ctx), soon).Should(ConsistOf("0:small", "1:small"))
		c := s.cluster()
		Expect(h.Plane.Client().Delete(ctx, c)).To(Succeed())
		Consistently(ctx, absent(ctx, c), 2*time.Second).Should(BeFalse(), "there are marks on its nodes")
		Expect(h.Plane.Client().Delete(ctx, s.as)).To(Succeed())
		Eventually(ctx, absent(ctx, s.as), soon).Should(BeTrue())
		Eventually(ctx, absent(ctx, c), soon).Should(BeTrue())
		Expect(s.nodes(ctx)()).To(ConsistOf("0:small", "1:small"), "machines stay")
		for i := range 2 {
			Expect(s.node(ctx, i).Annotations).NotTo(HaveKey(casim.DisabledAnnotation))
		}
		s.hasInstalled(ctx, 0)
	})

	It("suspend: who asks as it is set is answered at once", func(ctx SpecContext) {
		s := newSite(ctx)
		Eventually(ctx, s.numbers(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
		ca := s.autoscaler(ctx)
		Eventually(ctx, func() error { return ca.Loop(ctx) }, soon).Should(Succeed())
		for range 3 {
			s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Suspend = true })
			Expect(s.increase(ctx, "small", 9)).To(MatchError(Or(ContainSubstring("spec.suspend is true"), ContainSubstring("its maxSize is 4"))),
				"it is answered, and not waited for until the call ends: in that time Cluster Autoscaler does nothing else")
			s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Suspend = false })
			Eventually(ctx, func() error { return s.increase(ctx, "small", 9) }, soon).Should(MatchError(ContainSubstring("its maxSize is 4")))
		}
	})

	It("certificates: another authority's when its Secret is deleted", func(ctx SpecContext) {
		s := newSite(ctx)
		Eventually(ctx, s.stands(ctx), soon).Should(HavePrefix("True "))
		before, hash := s.secret(ctx), s.hash(ctx)
		was := authority()
		Expect(h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(was), was)).To(Succeed())
		Expect(h.Plane.Client().Delete(ctx, authority())).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			now := authority()
			g.Expect(h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(now), now)).To(Succeed())
			g.Expect(now.UID).NotTo(Equal(was.UID))
		}, soon).Should(Succeed())
		s.rolls(ctx, before, hash)
		Expect(s.secret(ctx).Data["ca.crt"]).NotTo(Equal(before.Data["ca.crt"]))
	})
})
