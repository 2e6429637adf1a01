package autoscaler_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/scaling/nodegroup/externalgrpc"
)

var _ = Describe("A KsctlAutoScaler", func() {
	It("scales a pool from pending pods to machines and back, in order, after a commit that raises "+
		"maxSize", func(ctx SpecContext) {
		s := newTestCluster(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) {
			spec.Pools = []clusterv1.WorkerPool{pool("small", 1, 1), pool("large", 0, 3)}
		})
		By("creating minSize machines")
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
		s.runAutoscaler(ctx)
		s.createPods(ctx, "small", 3)
		Eventually(ctx, s.runningPods(ctx), soon).Should(Equal(1))
		Consistently(ctx, s.nodes(ctx), 3*time.Second).Should(ConsistOf("0:small"))

		By("raising maxSize")
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Pools[0].MaxSize = 3 })
		Eventually(ctx, s.runningPods(ctx), soon).Should(Equal(3))
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("3/3/3/0/0"))
		Eventually(ctx, s.nodes(ctx), soon).Should(ConsistOf("0:small", "1:small", "2:small"))
		s.createPods(ctx, "large", 1)
		Eventually(ctx, s.runningPods(ctx), soon).Should(Equal(4))
		Expect(s.nodes(ctx)()).To(ConsistOf("0:small", "1:small", "2:small", "3:large"))

		By("without pods: down to minSize, the last machine first")
		s.deletePods(ctx)
		seen := map[string]bool{}
		Eventually(ctx, func() ([]string, error) {
			now, err := s.nodes(ctx)()
			for i := range now { // only the last machines are deleted
				Expect(now).To(ContainElement(HavePrefix(string(rune('0'+i)) + ":")))
			}
			seen[string(rune('0'+len(now)))] = true
			return now, err
		}, soon, 50*time.Millisecond).Should(ConsistOf("0:small"))
		Consistently(ctx, s.nodes(ctx), 3*time.Second).Should(ConsistOf("0:small"))
		// The node is gone before the agent confirms that the machine is.
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
		Eventually(ctx, s.poolCounts(ctx, "large"), soon).Should(Equal("0/0/0/0/0"))
		for _, p := range s.as.Status.Pools {
			Expect(p.LastScale).NotTo(BeNil())
			Expect(p.LastScale.Reason).To(ContainSubstring("Cluster Autoscaler deleted"))
		}
	})

	It("answers an idle loop from memory", func(ctx SpecContext) {
		s := newTestCluster(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) {
			spec.Pools = []clusterv1.WorkerPool{pool("small", 3, 4)}
		})
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("3/3/3/0/0"))
		ca := s.autoscaler(ctx)
		Eventually(ctx, func() error { return ca.Loop(ctx) }, soon).Should(Succeed())
		s.request(ctx)
		Eventually(ctx, s.readySummary(ctx), soon).Should(HavePrefix("True "))
		// Earlier changes may be written to the status during the first loops.
		Eventually(ctx, func(g Gomega) {
			before := s.as.ResourceVersion
			for range 20 {
				g.Expect(ca.Loop(ctx)).To(Succeed())
			}
			g.Expect(ca.Calls()["Refresh"]).To(BeNumerically(">=", 20))
			g.Expect(s.get(ctx)).To(Succeed())
			g.Expect(s.as.ResourceVersion).To(Equal(before), "a read call caused a status write")
		}, soon).Should(Succeed())
	})

	It("gives nodes the labels and taints of their pool and a providerID, and protects all but "+
		"the last", func(ctx SpecContext) {
		s := newBareTestCluster(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) {
			p := pool("small", 2, 4)
			p.Labels = map[string]string{"team": "a"}
			p.Taints = []corev1.Taint{{Key: "only", Value: "a", Effect: corev1.TaintEffectNoSchedule}}
			spec.Pools = []clusterv1.WorkerPool{p}
		})
		s.configure(provisionerConfig{ProviderID: "none"}) // before the first machine is created
		s.start(ctx)
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("2/2/2/0/0"))
		Eventually(ctx, func(g Gomega) {
			var all corev1.NodeList
			g.Expect(remote.Client().List(ctx, &all, client.MatchingLabels{"team": "a", clusterv1.PoolLabel: "small"})).
				To(Succeed())
			var mine []corev1.Node
			for _, n := range all.Items {
				if len(n.Name) > len(s.name) && n.Name[:len(s.name)] == s.name {
					mine = append(mine, n)
				}
			}
			g.Expect(mine).To(HaveLen(2))
			for i, n := range mine {
				g.Expect(n.Spec.ProviderID).To(Equal("ksctl://" + n.Name))
				g.Expect(n.Spec.Taints).To(ContainElement(And(HaveField("Key", "only"), HaveField("Value", "a"))))
				g.Expect(n.Annotations["cluster-autoscaler.kubernetes.io/scale-down-disabled"]).
					To(Equal([]string{"true", ""}[i]))
			}
		}, soon).Should(Succeed())
	})

	It("reports a machine that could not be created, backs off, and continues", func(ctx SpecContext) {
		s := newTestCluster(ctx)
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
		s.configure(provisionerConfig{Create: map[string]any{"fail": map[string]any{"code": "QuotaExceeded",
			"class": "OutOfResources", "message": "8 of 8 cores are used"}}})
		s.runAutoscaler(ctx)
		s.createPods(ctx, "large", 1)
		Eventually(ctx, s.readySummary(ctx), soon).
			Should(And(HavePrefix("False Backoff: pool large: no machines are created until "),
				ContainSubstring("8 of 8 cores are used")))
		Expect(apimeta.IsStatusConditionTrue(s.as.Status.Conditions, clusterv1.DegradedCondition)).To(BeTrue())
		// Cluster Autoscaler has observed the failure, and its requests are refused.
		Eventually(ctx, s.poolCounts(ctx, "large"), soon).Should(Equal("0/0/0/0/0"))
		Consistently(ctx, s.nodes(ctx), 5*time.Second).Should(ConsistOf("0:small"))
	})

	It("reports an agent that falsely claims success, crashes, or is down", func(ctx SpecContext) {
		s := newTestCluster(ctx)
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
		ca := s.autoscaler(ctx)
		Eventually(ctx, func() error { return ca.Loop(ctx) }, soon).Should(Succeed())
		more := func(pool string) error {
			_, err := ca.API().
				NodeGroupIncreaseSize(ctx,
					&externalgrpc.NodeGroupIncreaseSizeRequest{Id: s.ns + "/workers/" + pool, Delta: 1})
			return err
		}
		By("false success")
		s.configure(provisionerConfig{Create: map[string]any{"pretend": true}})
		Expect(more("large")).To(Succeed())
		Eventually(ctx, s.readySummary(ctx), soon).Should(HavePrefix("False Backoff: pool large"))
		Expect(more("large")).To(MatchError(ContainSubstring("pool large: no machines are created until")))
		By("a crash")
		s.configure(provisionerConfig{Create: map[string]any{"panic": true}})
		Expect(more("small")).To(Succeed())
		Eventually(ctx, s.readySummary(ctx), soon).Should(ContainSubstring("pool small: no machines are created until"))
		By("an agent that is down")
		s.agent.Kill()
		Eventually(ctx, s.readySummary(ctx), soon).Should(HavePrefix("False AgentUnreachable: "))
		s.configure(provisionerConfig{})
		s.runAgent(ctx)
		// The backoff lasts a minute. During it, the loss and the return of the agent are detected.
		Eventually(ctx, s.readySummary(ctx), soon).Should(Or(HavePrefix("False Backoff: "), HavePrefix("True ")))
		Expect(s.nodes(ctx)()).To(ConsistOf("0:small"))
	})

	It("never exceeds maxSize and maxNodesTotal, whatever is requested", func(ctx SpecContext) {
		s := newTestCluster(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) {
			spec.Limits = &clusterv1.ScalingLimits{MaxNodesTotal: 1000}
		})
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
		ca := s.autoscaler(ctx)
		Eventually(ctx, func() error { return ca.Loop(ctx) }, soon).Should(Succeed())
		ask := func(delta int32) error {
			_, err := ca.API().
				NodeGroupIncreaseSize(ctx,
					&externalgrpc.NodeGroupIncreaseSizeRequest{Id: s.ns + "/workers/small", Delta: delta})
			return err
		}
		for _, delta := range []int32{4, 1 << 30, -1, 0} {
			Expect(ask(delta)).NotTo(Succeed())
		}
		done := make(chan error, 20)
		for range 20 {
			go func() { done <- ask(1) }()
		}
		granted := 0
		for range 20 {
			if <-done == nil {
				granted++
			}
		}
		Expect(granted).To(Equal(3))
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("4/4/4/0/0"))
		By("a group of another KsctlAutoScaler")
		_, err := ca.API().
			NodeGroupIncreaseSize(ctx, &externalgrpc.NodeGroupIncreaseSizeRequest{Id: "other/workers/small", Delta: 1})
		Expect(err).To(HaveOccurred())
		By("a lowered limit")
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Limits.MaxNodesTotal = 1 })
		Eventually(ctx, s.readySummary(ctx), soon).Should(HavePrefix("True "))
		_, err = ca.API().
			NodeGroupIncreaseSize(ctx,
				&externalgrpc.NodeGroupIncreaseSizeRequest{Id: s.ns + "/workers/large", Delta: 1})
		Expect(err).To(MatchError(ContainSubstring("limits.maxNodesTotal is 1")))
		Consistently(ctx, s.nodes(ctx), 2*time.Second).Should(HaveLen(4))
	})

	It("applies a change of mode at once, and loses no machine by it", func(ctx SpecContext) {
		s := newTestCluster(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Pools[0].MinSize = 2 })
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("2/2/2/0/0"))
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) {
			spec.Pools[0].MinSize = 1
			spec.Mode = clusterv1.ScalingUpOnly
		})
		s.runAutoscaler(ctx)
		Eventually(ctx, s.readySummary(ctx), soon).Should(HavePrefix("True "))
		Consistently(ctx, s.nodes(ctx), 4*time.Second).Should(HaveLen(2))
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Mode = clusterv1.ScalingOff })
		Eventually(ctx, s.readySummary(ctx), soon).Should(ContainSubstring("mode is Off"))
		s.createPods(ctx, "large", 1)
		Consistently(ctx, s.nodes(ctx), 4*time.Second).Should(HaveLen(2))
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Mode = "" })
		Eventually(ctx, s.runningPods(ctx), soon).Should(Equal(1))
		By("a raised minSize")
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Pools[0].MinSize = 3 })
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("3/3/3/0/0"))
	})

	It("installs Cluster Autoscaler with the flags of the spec, and removes it again", func(ctx SpecContext) {
		s := newTestCluster(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) {
			spec.ScaleUp = &clusterv1.ScaleUp{Expanders: []clusterv1.Expander{"Priority"}}
			spec.Pools[1].Priority = 10
		})
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
		Eventually(ctx, s.readySummary(ctx), soon).Should(HavePrefix("True "))
		deployment := s.deployment(ctx)
		args := deployment.Spec.Template.Spec.Containers[0].Args
		if len(args) == 0 {
			args = deployment.Spec.Template.Spec.Containers[0].Command
		}
		Expect(args).To(ContainElements("--cloud-provider=externalgrpc", "--expander=priority",
			"--namespace=kube-system"))
		var priorities corev1.ConfigMap
		Expect(remote.Client().
			Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "cluster-autoscaler-priority-expander"},
				&priorities)).To(Succeed())
		Expect(priorities.Data["priorities"]).
			To(Equal("10:\n- '^" + s.ns + "/workers/large$'\n0:\n- '^" + s.ns + "/workers/small$'\n"))
		By("a second KsctlAutoScaler of the same cluster")
		second := s.as.DeepCopy()
		second.ObjectMeta = metav1.ObjectMeta{Namespace: s.ns, Name: "second"}
		create(ctx, second)
		Eventually(ctx, func() (string, error) {
			err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(second), second)
			ready := apimeta.FindStatusCondition(second.Status.Conditions, appsv1.ReadyCondition)
			if ready == nil {
				return "", err
			}
			return ready.Reason, err
		}, soon).Should(Equal("Conflict"))
		Expect(h.ControlPlane.Client().Delete(ctx, second)).To(Succeed())
		By("deleting the KsctlAutoScaler")
		Expect(h.ControlPlane.Client().Delete(ctx, s.as)).To(Succeed())
		Eventually(ctx, absent(ctx, s.as), soon).Should(BeTrue())
		Expect(absent(ctx, deployment)()).To(BeTrue())
		Expect(absent(ctx,
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "workers-autoscaler-tls"}})()).
			To(BeTrue())
		Expect(s.nodes(ctx)()).To(HaveLen(1), "machines stay")
	})
})
