package autoscaler_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/scaling/nodegroup/externalgrpc"
)

var _ = Describe("The lifecycle of a KsctlAutoScaler", func() {
	It("while the API server of the cluster is stopped: each loop fails at its refresh, and scaling continues "+
		"afterwards", func(ctx SpecContext) {
		s := newTestCluster(ctx)
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
		ca := s.autoscaler(ctx)
		Eventually(ctx, func() error { return ca.Loop(ctx) }, soon).Should(Succeed())
		s.configure(provisionerConfig{Create: map[string]any{"delay": "10s"}}) // long enough to observe the operation
		Expect(s.increase(ctx, "small", 1)).To(Succeed())
		Eventually(ctx, func() (string, error) {
			return s.operation(ctx)
		}, soon).Should(Equal("ScaleUp 1 to 2 Running"))
		Expect(remote.StopAPIServer()).To(Succeed())
		start := func(ctx SpecContext) {
			if remote.Client().List(ctx, &corev1.NamespaceList{}) != nil {
				Expect(remote.StartAPIServer(ctx)).To(Succeed())
			}
		}
		DeferCleanup(start)
		refresh := func() codes.Code {
			_, err := ca.API().Refresh(ctx, &externalgrpc.RefreshRequest{})
			return status.Code(err)
		}
		Eventually(ctx, refresh, soon).Should(Equal(codes.Unavailable))
		Eventually(ctx, s.readySummary(ctx), soon).ShouldNot(HavePrefix("True ")) // the status is written after that
		Expect(status.Code(s.increase(ctx, "large", 1))).
			To(Equal(codes.Unavailable), "a request that can't be checked is refused")
		groups, err := ca.API().NodeGroups(ctx, &externalgrpc.NodeGroupsRequest{})
		Expect(err).NotTo(HaveOccurred())
		Expect(groups.NodeGroups).To(HaveLen(2), "Cluster Autoscaler would treat an error as no groups")
		Expect(s.as.Status.Pools).To(HaveLen(2), "the last status stays")
		s.configure(provisionerConfig{})
		start(ctx)
		Eventually(ctx, refresh, soon).Should(Equal(codes.OK))
		Eventually(ctx, s.idle(ctx), soon).Should(BeTrue())
		Eventually(ctx, func(g Gomega) {
			nodes, err := s.nodes(ctx)()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(indexes(nodes)).To(ConsistOf(upTo(len(nodes))), "no machine exists twice")
			g.Expect(len(nodes)).To(BeNumerically("<=", 2))
			g.Expect(s.machines(ctx)()).To(BeEquivalentTo(len(nodes)))
		}, soon).Should(Succeed())
	})

	It("with suspend: each loop fails at its refresh, and requests are refused", func(ctx SpecContext) {
		s := newTestCluster(ctx)
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
		ca := s.autoscaler(ctx)
		Eventually(ctx, func() error { return ca.Loop(ctx) }, soon).Should(Succeed())
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Suspend = true })
		Eventually(ctx, func() error { // a call before the change is observed may time out
			within, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
			return s.increase(within, "small", 0)
		}, soon).Should(MatchError(ContainSubstring("spec.suspend is true")))
		for _, name := range []string{"small", "large"} {
			err := s.increase(ctx, name, 1)
			Expect(status.Code(err)).To(Equal(codes.Unavailable))
			Expect(err).To(MatchError(ContainSubstring("spec.suspend is true: nothing is scaled")))
		}
		n := s.node(ctx, 0)
		_, err := ca.API().NodeGroupDeleteNodes(ctx, &externalgrpc.NodeGroupDeleteNodesRequest{Id: s.groupID("small"),
			Nodes: []*externalgrpc.ExternalGrpcNode{{Name: n.Name, ProviderID: n.Spec.ProviderID}}})
		Expect(err).To(MatchError(ContainSubstring("spec.suspend is true")))
		// The refresh and the refusal depend on different watches.
		Eventually(ctx, func() error {
			return ca.Loop(ctx)
		}, soon).Should(MatchError(ContainSubstring("spec.suspend is true")),
			"otherwise Cluster Autoscaler would evict pods for nothing")
		groups, err := ca.API().NodeGroups(ctx, &externalgrpc.NodeGroupsRequest{})
		Expect(err).NotTo(HaveOccurred())
		Expect(groups.NodeGroups).To(HaveLen(2), "the known groups are still listed")
		Consistently(ctx, s.nodes(ctx), 2*time.Second).Should(ConsistOf("0:small"))
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Suspend = false })
		Eventually(ctx, func() error { return s.increase(ctx, "small", 1) }, soon).Should(Succeed())
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("2/2/2/0/0"))
	})

	It("with autoscaler.install false: the flags are in the status, and nothing is installed", func(ctx SpecContext) {
		s := newTestCluster(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) {
			spec.Autoscaler = &clusterv1.AutoscalerDeployment{Install: ptr.To(false)}
			spec.Limits = &clusterv1.ScalingLimits{MaxNodesTotal: 9}
		})
		Eventually(ctx, s.readySummary(ctx), soon).Should(HavePrefix("True "))
		have := s.as.Status.Autoscaler
		Expect(have.Flags).
			To(ContainElements("--cloud-provider=externalgrpc", "--max-nodes-total=9", "--expander=least-waste"))
		Expect(have.Deployment).To(BeEmpty())
		s.expectInstalls(ctx, 0)
		s.autoscaler(ctx)
		By("a commit that enables the installation, and one that disables it")
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Autoscaler.Install = nil })
		Eventually(ctx, s.readySummary(ctx), soon).Should(HavePrefix("True "))
		s.expectInstalls(ctx, 1)
		flags := s.deployment(ctx).Spec.Template.Spec.Containers[0]
		Expect(append(flags.Command, flags.Args...)).To(ContainElements(have.Flags), "the flags are the same")
		Expect(s.as.Status.Autoscaler.Flags).To(BeEmpty())
		deployment := s.deployment(ctx)
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Autoscaler.Install = ptr.To(false) })
		Eventually(ctx, absent(ctx, deployment), soon).Should(BeTrue())
		Eventually(ctx, s.readySummary(ctx), soon).Should(HavePrefix("True "))
	})

	It("the version of Cluster Autoscaler follows the minor version of the cluster", func(ctx SpecContext) {
		s := newTestCluster(ctx)
		Eventually(ctx, s.readySummary(ctx), soon).Should(HavePrefix("True "))
		c := s.cluster()
		Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
		minor := strings.Join(strings.Split(strings.TrimPrefix(c.Status.KubernetesVersion, "v"), ".")[:2], ".")
		Expect(s.as.Status.Autoscaler.Version).To(HavePrefix(minor + "."))
		image := func() string { return s.deployment(ctx).Spec.Template.Spec.Containers[0].Image }
		Expect(image()).To(HaveSuffix("/cluster-autoscaler:v" + s.as.Status.Autoscaler.Version))
		By("another minor version in the cluster's status")
		// A suspended KsctlCluster is not probed, except by a reconcile that is already running.
		Expect(h.ControlPlane.Client().
			Patch(ctx, c, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":true}}`)))).To(Succeed())
		for _, other := range []string{"1.34", "1.35"} {
			Eventually(ctx, func() (string, error) {
				body := `{"status":{"kubernetesVersion":"v` + other + `.9"}}`
				return image(), h.ControlPlane.Client().Status().
					Patch(ctx, c, client.RawPatch(types.MergePatchType, []byte(body)))
			}, soon).Should(ContainSubstring("/cluster-autoscaler:v" + other + "."))
		}
		By("a commit that sets a version")
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) {
			spec.Autoscaler = &clusterv1.AutoscalerDeployment{Version: "1.36.0"}
		})
		Eventually(ctx, image, soon).Should(HaveSuffix("/cluster-autoscaler:v1.36.0"))
	})

	It("a pool removed from the spec while it has machines: they become unmanaged, and nothing is "+
		"deleted", func(ctx SpecContext) {
		s := newTestCluster(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) {
			spec.Pools = []clusterv1.WorkerPool{pool("small", 1, 4), pool("large", 2, 3)}
		})
		Eventually(ctx, s.poolCounts(ctx, "large"), soon).Should(Equal("2/2/2/0/0"))
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) {
			spec.Pools = spec.Pools[:1]
			spec.Pools[0].MinSize = 0
		})
		Eventually(ctx, s.readySummary(ctx), soon).Should(HavePrefix("True "))
		Expect(s.as.Status.UnmanagedWorkers).To(Equal(int32(2)))
		Expect(s.as.Status.Pools).To(HaveLen(1))
		s.runAutoscaler(ctx)
		Consistently(ctx, s.nodes(ctx), 3*time.Second).Should(ConsistOf("0:small", "1:large", "2:large"),
			"neither the unmanaged machines nor those before them are deleted")
		of, err := s.ca.API().
			NodeGroupForNode(ctx,
				&externalgrpc.NodeGroupForNodeRequest{Node: &externalgrpc.ExternalGrpcNode{Name: s.node(ctx, 2).Name,
					ProviderID: s.node(ctx, 2).Spec.ProviderID}})
		Expect(err).NotTo(HaveOccurred())
		Expect(of.GetNodeGroup().GetId()).To(BeEmpty())
		By("machines after them, which are created and deleted")
		s.createPods(ctx, "small", 2)
		Eventually(ctx, s.runningPods(ctx), soon).Should(Equal(2))
		Expect(s.nodes(ctx)()).To(ConsistOf("0:small", "1:large", "2:large", "3:small"))
		s.deletePods(ctx)
		Eventually(ctx, s.nodes(ctx), soon).Should(ConsistOf("0:small", "1:large", "2:large"))
		By("the pool in the spec again")
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) {
			spec.Pools = append(spec.Pools, pool("large", 0, 3))
		})
		Eventually(ctx, s.nodes(ctx), soon).Should(BeEmpty(), "no pod needs any of them")
	})
})

// expectInstalls checks the number of installs, and waits for that of the pods, of Cluster
// Autoscaler. Pods of a deleted Deployment are deleted after it.
func (s *testCluster) expectInstalls(ctx context.Context, n int) {
	GinkgoHelper()
	var installs appsv1.KsctlInstallList
	Expect(h.ControlPlane.Client().List(ctx, &installs, client.InNamespace(s.ns))).To(Succeed())
	Expect(installs.Items).To(HaveLen(n))
	Eventually(ctx, func(g Gomega) {
		var pods corev1.PodList
		g.Expect(h.ControlPlane.Client().List(ctx, &pods, client.InNamespace(s.ns))).To(Succeed())
		g.Expect(len(pods.Items)).To(BeNumerically(">=", n))
		if n == 0 {
			g.Expect(pods.Items).To(BeEmpty())
		}
	}, soon).Should(Succeed())
}

// idle returns a function for Eventually: no operation is running.
func (s *testCluster) idle(ctx context.Context) func() (bool, error) {
	return func() (bool, error) {
		err := s.get(ctx)
		op := s.as.Status.Operation
		return err == nil &&
			(op == nil || op.State == clusterv1.OperationSucceeded || op.State == clusterv1.OperationFailed), err
	}
}
