package autoscaler_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/e2e/autoscaler/fakeautoscaler"
)

var _ = Describe("A disrupted KsctlAutoScaler", func() {
	It("reports a scale-up whose node never joins before Cluster Autoscaler times out, and deletes the "+
		"machine", func(ctx SpecContext) {
		const provisionTime = time.Minute // a tenth of it is left when the failure is reported
		s := newTestCluster(ctx)
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
		s.setProvisionTime(ctx, provisionTime)
		s.configure(provisionerConfig{NoNode: true})
		ca := s.autoscaler(ctx)
		Eventually(ctx, func() error { return ca.Loop(ctx) }, soon).Should(Succeed())
		Expect(s.increase(ctx, "small", 1)).To(Succeed())
		asked := time.Now()
		Eventually(ctx, s.machines(ctx), soon).Should(Equal(int32(2)), "the machine is created")
		Expect(s.instances(ctx, "small")()).
			To(HaveLen(1), "the machine is not listed: otherwise it would be deleted and created again forever")
		Eventually(ctx, s.failureCodes(ctx, "small"), soon, 50*time.Millisecond).
			Should(Equal([]string{clusterv1.CodeJoinTimeout}))
		Expect(time.Since(asked)).
			To(BeNumerically("<", provisionTime), "after this time, Cluster Autoscaler stops scaling the whole cluster")
		Expect(time.Since(asked)).To(BeNumerically(">", provisionTime/2))
		Eventually(ctx, s.machines(ctx), soon).Should(Equal(int32(1)), "the machine is deleted")
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).
			Should(Equal("2/1/1/0/0"),
				"the target includes the machine until Cluster Autoscaler has observed the failure")
		Eventually(ctx, s.readySummary(ctx), soon).
			Should(And(HavePrefix("False Backoff: pool small: "), ContainSubstring("did not join the cluster in time")))
		By("Cluster Autoscaler observing the failure")
		Expect(ca.Loop(ctx)).To(Succeed())
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
		Expect(s.instances(ctx, "small")()).To(HaveLen(1))
		Expect(s.increase(ctx, "small", 1)).
			To(MatchError(ContainSubstring("pool small: no machines are created until ")))
		Expect(ca.WriteErrors()).To(BeEmpty())
	})

	It("keeps a KsctlCluster that is deleted first until scaling ends", func(ctx SpecContext) {
		s := newTestCluster(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Pools[0].MinSize = 2 })
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("2/2/2/0/0"))
		Eventually(ctx, s.readySummary(ctx), soon).Should(HavePrefix("True "))
		// it is set after the condition
		Eventually(ctx, func() map[string]string {
			return s.node(ctx, 0).Annotations
		}, soon).Should(HaveKey(fakeautoscaler.DisabledAnnotation))
		Eventually(ctx, s.nodes(ctx), soon).Should(ConsistOf("0:small", "1:small"))
		c := s.cluster()
		Expect(h.ControlPlane.Client().Delete(ctx, c)).To(Succeed())
		Consistently(ctx, absent(ctx, c), 2*time.Second).Should(BeFalse(), "its nodes still have our annotations")
		Expect(h.ControlPlane.Client().Delete(ctx, s.as)).To(Succeed())
		Eventually(ctx, absent(ctx, s.as), soon).Should(BeTrue())
		Eventually(ctx, absent(ctx, c), soon).Should(BeTrue())
		Expect(s.nodes(ctx)()).To(ConsistOf("0:small", "1:small"), "machines stay")
		for i := range 2 {
			Expect(s.node(ctx, i).Annotations).NotTo(HaveKey(fakeautoscaler.DisabledAnnotation))
		}
		s.expectInstalls(ctx, 0)
	})

	It("ends when its namespace is deleted, and leaves the machines without our annotations", func(ctx SpecContext) {
		s := newTestCluster(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Pools[0].MinSize = 2 })
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("2/2/2/0/0"))
		Eventually(ctx, s.readySummary(ctx), soon).Should(HavePrefix("True "))
		Eventually(ctx, func() map[string]string {
			return s.node(ctx, 0).Annotations
		}, soon).Should(HaveKey(fakeautoscaler.DisabledAnnotation))
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}
		Expect(h.ControlPlane.Client().Delete(ctx, ns)).To(Succeed())
		Eventually(ctx, absent(ctx, ns), soon).Should(BeTrue())
		Expect(s.nodes(ctx)()).To(ConsistOf("0:small", "1:small"), "machines stay")
		for i := range 2 {
			Expect(s.node(ctx, i).Annotations).NotTo(HaveKey(fakeautoscaler.DisabledAnnotation))
		}
	})

	It("answers a request at once when suspend is set meanwhile", func(ctx SpecContext) {
		s := newTestCluster(ctx)
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
		ca := s.autoscaler(ctx)
		Eventually(ctx, func() error { return ca.Loop(ctx) }, soon).Should(Succeed())
		for range 3 {
			s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Suspend = true })
			Expect(s.increase(ctx, "small", 9)).To(MatchError(Or(ContainSubstring("spec.suspend is true"),
				ContainSubstring("its maxSize is 4"))),
				"the call is answered, and does not time out, which would block Cluster Autoscaler")
			s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Suspend = false })
			Eventually(ctx, func() error {
				return s.increase(ctx, "small", 9)
			}, soon).Should(MatchError(ContainSubstring("its maxSize is 4")))
		}
	})

	It("gets certificates of a new CA when its Secret is deleted", func(ctx SpecContext) {
		s := newTestCluster(ctx)
		Eventually(ctx, s.readySummary(ctx), soon).Should(HavePrefix("True "))
		before, hash := s.secret(ctx), s.rolloutHash(ctx)
		was := authority()
		Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(was), was)).To(Succeed())
		Expect(h.ControlPlane.Client().Delete(ctx, authority())).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			now := authority()
			g.Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(now), now)).To(Succeed())
			g.Expect(now.UID).NotTo(Equal(was.UID))
		}, soon).Should(Succeed())
		s.awaitRollout(ctx, before, hash)
		Expect(s.secret(ctx).Data["ca.crt"]).NotTo(Equal(before.Data["ca.crt"]))
	})
})
