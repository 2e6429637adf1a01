package autoscaler_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/scaling/nodegroup/externalgrpc"
)

// setProvisionTime sets maxNodeProvisionTime. A node that has not joined after nine tenths of it is
// reported as failed.
func (s *testCluster) setProvisionTime(ctx context.Context, d time.Duration) {
	GinkgoHelper()
	s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) {
		spec.ScaleUp = &clusterv1.ScaleUp{MaxNodeProvisionTime: &metav1.Duration{Duration: d}}
	})
	Eventually(ctx, s.readySummary(ctx), soon).Should(HavePrefix("True "))
}

var _ = Describe("Edge cases of autoscaling", func() {
	It("with an agent that takes minutes: the delay is reported, no further machines are created, and late machines "+
		"are deleted", func(ctx SpecContext) {
		s := newTestCluster(ctx)
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
		s.setProvisionTime(ctx, 4*time.Second)
		s.configure(provisionerConfig{NoNode: true, Create: map[string]any{"delay": "20s"}})
		s.runAutoscaler(ctx)
		most := s.watchMachines(ctx)
		Eventually(ctx, func() error { return s.increase(ctx, "small", 2) }, soon).Should(Succeed())
		Eventually(ctx, s.readySummary(ctx), soon, 50*time.Millisecond).
			Should(And(HavePrefix("False Backoff: pool small: "), ContainSubstring(clusterv1.CodeSlow+": ")))
		op := s.as.Status.Operation
		Expect(op.State).NotTo(Or(Equal(clusterv1.OperationFailed), Equal(clusterv1.OperationSucceeded)),
			"the operation continues")
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).
			Should(HavePrefix("1/1/1/"), "Cluster Autoscaler observes the failure")
		Eventually(ctx, func() (string, error) {
			return s.operation(ctx)
		}, soon).Should(Equal("ScaleDown 3 to 1 Succeeded"), "late machines without nodes are deleted")
		Expect(s.machines(ctx)()).To(Equal(int32(1)))
		Consistently(ctx, s.poolCounts(ctx, "small"), 2*time.Second).Should(Equal("1/1/1/0/0"), "the backoff is active")
		Expect(most()).To(BeNumerically("<=", 3), "no more machines than requested")
	})

	It("with an agent that takes minutes: a machine that has joined meanwhile stays", func(ctx SpecContext) {
		s := newTestCluster(ctx)
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
		s.setProvisionTime(ctx, 3*time.Second)
		// The machine is created at once, and joins while the operation of the agent still runs.
		s.configure(provisionerConfig{NoNode: true, Create: map[string]any{"after": 1, "delay": "20s"}})
		ca := s.autoscaler(ctx)
		ca.ScaleDown = false
		Eventually(ctx, func() error { return ca.Loop(ctx) }, soon).Should(Succeed())
		Expect(s.increase(ctx, "small", 1)).To(Succeed())
		Eventually(ctx, s.failureCodes(ctx, "small"), soon, 50*time.Millisecond).
			Should(Equal([]string{clusterv1.CodeSlow}))
		Expect(ca.Loop(ctx)).To(Succeed())
		s.configure(provisionerConfig{})
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("2/2/2/0/0"))
		Eventually(ctx, s.nodes(ctx), soon).Should(ConsistOf("0:small", "1:small"))
		Consistently(ctx, s.nodes(ctx), 2*time.Second).Should(ConsistOf("0:small", "1:small"))
	})

	It("with an agent that takes minutes and then fails: no existing machine is deleted", func(ctx SpecContext) {
		s := newTestCluster(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Pools[0].MinSize = 2 })
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("2/2/2/0/0"))
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Pools[0].MinSize = 1 })
		s.setProvisionTime(ctx, 3*time.Second)
		ca := s.autoscaler(ctx)
		ca.ScaleDown = false
		Eventually(ctx, func() error { return ca.Loop(ctx) }, soon).Should(Succeed())
		s.configure(provisionerConfig{Create: map[string]any{"delay": "20s",
			"fail": map[string]any{"code": "QuotaExceeded", "class": "OutOfResources", "message": "none is left"}}})
		Expect(s.increase(ctx, "small", 1)).To(Succeed())
		Eventually(ctx, s.failureCodes(ctx, "small"), soon, 50*time.Millisecond).
			Should(Equal([]string{clusterv1.CodeSlow}))
		Expect(ca.Loop(ctx)).To(Succeed())
		Eventually(ctx, s.readySummary(ctx), soon).Should(ContainSubstring("none is left"))
		Consistently(ctx, s.nodes(ctx), 3*time.Second).
			Should(ConsistOf("0:small", "1:small"), "no deletion was requested")
		Expect(s.operation(ctx)).To(Equal("ScaleUp 2 to 3 Failed"))
		Expect(s.poolCounts(ctx, "small")()).To(Equal("2/2/2/0/0"))
	})

	It("with busy nodes: an idle node in the middle waits, and the last one is deleted first", func(ctx SpecContext) {
		s := newTestCluster(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Pools[0].MinSize = 3 })
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("3/3/3/0/0"))
		s.createPods(ctx, "small", 3)
		Eventually(ctx, s.runningPods(ctx), soon).Should(Equal(3))
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Pools[0].MinSize = 0 })
		Eventually(ctx, s.readySummary(ctx), soon).Should(HavePrefix("True "))
		s.runAutoscaler(ctx)
		s.deletePodsOn(ctx, 1)
		Consistently(ctx, s.nodes(ctx), 3*time.Second).Should(ConsistOf("0:small", "1:small", "2:small"))
		Expect(s.ca.WriteErrors()).To(BeEmpty(), "its deletion is not requested")
		Expect(s.deleteNode(ctx, "small", 1)).To(MatchError(ContainSubstring("ksctl deletes the newest worker first")))
		Expect(s.nodes(ctx)()).To(HaveLen(3))
		s.deletePodsOn(ctx, 2)
		var seen []string
		Eventually(ctx, func() ([]string, error) {
			now, err := s.nodes(ctx)()
			if at := fmt.Sprint(indexes(now)); len(seen) == 0 || seen[len(seen)-1] != at {
				seen = append(seen, at)
			}
			return now, err
		}, soon, 20*time.Millisecond).Should(ConsistOf("0:small"))
		Expect([]string{"[0 1 2]", "[0 1]", "[0]"}).
			To(ContainElements(seen), "only the last machine is deleted each time")
		Consistently(ctx, s.nodes(ctx), 2*time.Second).Should(ConsistOf("0:small"), "the node is busy")
	})

	It("with a PodDisruptionBudget that blocks a drain: the node is uncordoned, and the failure is "+
		"reported", func(ctx SpecContext) {
		s := newTestCluster(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Pools[0].MinSize = 2 })
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("2/2/2/0/0"))
		s.createPods(ctx, "small", 2)
		Eventually(ctx, s.runningPods(ctx), soon).Should(Equal(2))
		two := intstr.FromInt32(2)
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: s.podNamespace(ctx),
			Name: "all"},
			Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &two,
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"load": s.name}}}}
		Expect(remote.Client().Create(ctx, budget)).To(Succeed())
		Eventually(ctx, func() (int32, error) {
			err := remote.Client().Get(ctx, client.ObjectKeyFromObject(budget), budget)
			return budget.Status.CurrentHealthy, err
		}, soon).Should(BeEquivalentTo(2))
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Pools[0].MinSize = 1 })
		Eventually(ctx, s.readySummary(ctx), soon).Should(HavePrefix("True "))
		ca := s.autoscaler(ctx)
		Eventually(ctx, func() error { return ca.Loop(ctx) }, soon).Should(Succeed())
		last := s.node(ctx, 1)
		Expect(ca.MarkToBeDeleted(ctx, last)).To(Succeed())
		Expect(s.deleteNode(ctx, "small", 1)).To(Succeed())
		Eventually(ctx, s.poolCounts(ctx, "small"), soon, 50*time.Millisecond).Should(Equal("1/2/2/0/1"))
		Eventually(ctx, s.readySummary(ctx), soon).
			Should(And(HavePrefix("False Backoff: pool small: "), ContainSubstring(": "+clusterv1.CodeDrain+": ")))
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("2/2/2/0/0"))
		Expect(s.operation(ctx)).To(Equal("ScaleDown 2 to 1 Failed"))
		Eventually(ctx, func(g Gomega) {
			now := s.node(ctx, 1)
			g.Expect(now.UID).To(Equal(last.UID))
			g.Expect(now.Spec.Taints).To(BeEmpty(), "otherwise neither side would use the node")
			g.Expect(now.Spec.Unschedulable).To(BeFalse(), "the agent does not uncordon nodes that it did not cordon")
		}, soon).Should(Succeed())
		Expect(s.runningPods(ctx)()).To(Equal(2))
		Expect(remote.Client().Delete(ctx, budget)).To(Succeed())
	})

	It("from zero: templates have the allocatable resources of machines that have not "+
		"existed yet", func(ctx SpecContext) {
		s := newTestCluster(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) {
			spec.Pools = []clusterv1.WorkerPool{
				{Name: "given", NodeSize: "t9'large", MaxSize: 2,
					Capacity: &clusterv1.MachineCapacity{CPU: quantity("6"), Memory: quantity("4Gi")},
					Taints:   []corev1.Taint{{Key: "only", Value: "given", Effect: corev1.TaintEffectNoSchedule}}},
				{Name: "known", NodeSize: "t3.medium", MaxSize: 2},
				{Name: "unknown", NodeSize: "unheard-of", MaxSize: 2},
			}
		})
		Eventually(ctx, s.readySummary(ctx), soon).Should(HavePrefix("True "))
		ca := s.autoscaler(ctx)
		Eventually(ctx, func() error { return ca.Loop(ctx) }, soon).Should(Succeed())
		for name, want := range map[string]struct {
			source      clusterv1.TemplateSource
			cpu, memory string
		}{
			// Reserved CPU: 60m, 10m, 5m, 5m and twice 2.5m, and 100m for the system. Reserved
			// memory: a quarter, 200Mi for the system, and 100Mi for eviction.
			"given": {clusterv1.TemplateOverride, "5815m", "2772Mi"},
			"known": {clusterv1.TemplateCatalog, "1830m", "2772Mi"},
			// 1 CPU and 1Gi, of which a quarter is 256Mi.
			"unknown": {clusterv1.TemplateUnknown, "840m", "468Mi"},
		} {
			answer, err := ca.API().
				NodeGroupTemplateNodeInfo(ctx, &externalgrpc.NodeGroupTemplateNodeInfoRequest{Id: s.groupID(name)})
			Expect(err).NotTo(HaveOccurred())
			var node corev1.Node
			Expect(node.Unmarshal(answer.NodeBytes)).To(Succeed())
			has := node.Status.Allocatable
			Expect(has.Cpu().String()).To(Equal(want.cpu), name)
			Expect(has.Memory().String()).To(Equal(want.memory), name)
			Expect(node.Labels).
				To(And(HaveKeyWithValue(clusterv1.PoolLabel, name), HaveKeyWithValue("site", s.name),
					HaveKeyWithValue(corev1.LabelOSStable, "linux")))
			Expect(node.Spec.Taints).To(HaveLen(map[string]int{"given": 1}[name]))
			Expect(s.templateSource(ctx, name)).To(Equal(want.source))
		}
		By("a pod that fits in one pool")
		go func() {
			defer GinkgoRecover()
			ca.Run(ctx, 300*time.Millisecond)
		}()
		s.createPods(ctx, "known", 1)
		Eventually(ctx, s.runningPods(ctx), soon).Should(Equal(1))
		Expect(s.nodes(ctx)()).To(ConsistOf("0:known"), "one machine, of one pool") // pods run only on labeled nodes
		Eventually(ctx, func() clusterv1.TemplateSource {
			return s.templateSource(ctx, "known")
		}, soon).Should(Equal(clusterv1.TemplateNode))
	})
})

// groupID returns the id of a pool's node group.
func (s *testCluster) groupID(poolName string) string { return s.ns + "/workers/" + poolName }

// increase requests machines like Cluster Autoscaler.
func (s *testCluster) increase(ctx context.Context, poolName string, delta int32) error {
	_, err := s.ca.API().
		NodeGroupIncreaseSize(ctx, &externalgrpc.NodeGroupIncreaseSizeRequest{Id: s.groupID(poolName), Delta: delta})
	return err
}

// deleteNode requests the deletion of a worker's node like Cluster Autoscaler.
func (s *testCluster) deleteNode(ctx context.Context, poolName string, index int) error {
	GinkgoHelper()
	n := s.node(ctx, index)
	_, err := s.ca.API().NodeGroupDeleteNodes(ctx, &externalgrpc.NodeGroupDeleteNodesRequest{Id: s.groupID(poolName),
		Nodes: []*externalgrpc.ExternalGrpcNode{{ProviderID: n.Spec.ProviderID, Name: n.Name, Labels: n.Labels,
			Annotations: n.Annotations}}})
	if err != nil {
		Expect(status.Code(err)).To(Equal(codes.FailedPrecondition), err.Error())
	}
	return err
}

// instances returns a function for Eventually with the ids of a pool's instances.
func (s *testCluster) instances(ctx context.Context, poolName string) func() ([]string, error) {
	return func() ([]string, error) {
		answer, err := s.ca.API().NodeGroupNodes(ctx, &externalgrpc.NodeGroupNodesRequest{Id: s.groupID(poolName)})
		var out []string
		for _, x := range answer.GetInstances() {
			out = append(out, x.Id)
		}
		return out, err
	}
}

// failureCodes returns a function for Eventually with the error codes of a pool's instances.
func (s *testCluster) failureCodes(ctx context.Context, poolName string) func() ([]string, error) {
	return func() ([]string, error) {
		answer, err := s.ca.API().NodeGroupNodes(ctx, &externalgrpc.NodeGroupNodesRequest{Id: s.groupID(poolName)})
		var out []string
		for _, x := range answer.GetInstances() {
			if code := x.GetStatus().GetErrorInfo().GetErrorCode(); code != "" {
				out = append(out, code)
			}
		}
		return out, err
	}
}

// machines returns a function for Eventually with the number of machines in the status.
func (s *testCluster) machines(ctx context.Context) func() (int32, error) {
	return func() (int32, error) {
		err := s.get(ctx)
		return s.as.Status.Workers, err
	}
}

// watchMachines polls the number of machines until the returned function is called, which returns
// the maximum.
func (s *testCluster) watchMachines(ctx context.Context) (most func() int32) {
	looking, cancel := context.WithCancel(context.WithoutCancel(ctx))
	highest, done, key := int32(0), make(chan struct{}), client.ObjectKeyFromObject(s.as)
	go func() {
		defer close(done)
		for looking.Err() == nil {
			now := &clusterv1.KsctlAutoScaler{}
			if h.ControlPlane.Client().Get(looking, key, now) == nil {
				highest = max(highest, now.Status.Workers)
			}
			select {
			case <-looking.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	DeferCleanup(cancel)
	return func() int32 {
		cancel()
		<-done
		return highest
	}
}

// operation returns the last operation and its state.
func (s *testCluster) operation(ctx context.Context) (string, error) {
	err := s.get(ctx)
	op := s.as.Status.Operation
	if err != nil || op == nil {
		return "", err
	}
	return fmt.Sprintf("%s %d to %d %s", op.Kind, op.From, op.DesiredWorkers, op.State), nil
}

// templateSource returns where the template of a pool comes from.
func (s *testCluster) templateSource(ctx context.Context, poolName string) clusterv1.TemplateSource {
	GinkgoHelper()
	Expect(s.get(ctx)).To(Succeed())
	for _, p := range s.as.Status.Pools {
		if p.Name == poolName {
			return p.TemplateSource
		}
	}
	return ""
}

// node returns the node of a worker.
func (s *testCluster) node(ctx context.Context, index int) *corev1.Node {
	GinkgoHelper()
	var all corev1.NodeList
	Expect(remote.Client().List(ctx, &all)).To(Succeed())
	for i := range all.Items {
		n := &all.Items[i]
		var have int
		if _, err := fmt.Sscanf(n.Name, s.name+"-vm-wp-%d-", &have); err == nil && have == index {
			return n
		}
	}
	Fail(fmt.Sprintf("there is no node of worker %d", index))
	return nil
}

// deletePodsOn deletes the pods of a worker.
func (s *testCluster) deletePodsOn(ctx context.Context, index int) {
	GinkgoHelper()
	node := s.node(ctx, index).Name
	var pods corev1.PodList
	Expect(remote.Client().List(ctx, &pods, client.InNamespace(s.name+"-load"))).To(Succeed())
	deleted := 0
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName == node {
			deleted++
			Expect(remote.Client().Delete(ctx, &pods.Items[i], client.GracePeriodSeconds(0))).To(Succeed())
		}
	}
	Expect(deleted).To(Equal(1))
}
