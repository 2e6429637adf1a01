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

var _ = Describe("What becomes of a KsctlAutoScaler", func() {
	It("the cluster's API server stopped in the midst: each loop ends before it begins, and then all goes on", func(ctx SpecContext) {
		s := newSite(ctx)
		Eventually(ctx, s.numbers(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
		ca := s.autoscaler(ctx)
		Eventually(ctx, func() error { return ca.Loop(ctx) }, soon).Should(Succeed())
		s.turn(knobs{Create: map[string]any{"delay": "10s"}}) // so long it is seen to run
		Expect(s.increase(ctx, "small", 1)).To(Succeed())
		Eventually(ctx, func() (string, error) { return s.operation(ctx) }, soon).Should(Equal("ScaleUp 1 to 2 Running"))
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
		Eventually(ctx, s.stands(ctx), soon).ShouldNot(HavePrefix("True ")) // it is written down after that
		Expect(status.Code(s.increase(ctx, "large", 1))).To(Equal(codes.Unavailable), "nothing is taken down that can't be judged")
		groups, err := ca.API().NodeGroups(ctx, &externalgrpc.NodeGroupsRequest{})
		Expect(err).NotTo(HaveOccurred())
		Expect(groups.NodeGroups).To(HaveLen(2), "an error would be taken for no groups")
		Expect(s.as.Status.Pools).To(HaveLen(2), "what was known stays")
		s.turn(knobs{})
		start(ctx)
		Eventually(ctx, refresh, soon).Should(Equal(codes.OK))
		Eventually(ctx, s.settled(ctx), soon).Should(BeTrue())
		Eventually(ctx, func(g Gomega) {
			nodes, err := s.nodes(ctx)()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(indexes(nodes)).To(ConsistOf(upTo(len(nodes))), "none is there twice")
			g.Expect(len(nodes)).To(BeNumerically("<=", 2))
			g.Expect(s.machines(ctx)()).To(BeEquivalentTo(len(nodes)))
		}, soon).Should(Succeed())
	})

	It("suspend: loops end before they begin, and what is asked for is refused", func(ctx SpecContext) {
		s := newSite(ctx)
		Eventually(ctx, s.numbers(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
		ca := s.autoscaler(ctx)
		Eventually(ctx, func() error { return ca.Loop(ctx) }, soon).Should(Succeed())
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Suspend = true })
		Eventually(ctx, func() error { // one that comes before that was seen may wait in vain
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
		_, err := ca.API().NodeGroupDeleteNodes(ctx, &externalgrpc.NodeGroupDeleteNodesRequest{Id: s.group("small"), Nodes: []*externalgrpc.ExternalGrpcNode{{Name: n.Name, ProviderID: n.Spec.ProviderID}}})
		Expect(err).To(MatchError(ContainSubstring("spec.suspend is true")))
		// Who tells of it is another than who refuses.
		Eventually(ctx, func() error { return ca.Loop(ctx) }, soon).Should(MatchError(ContainSubstring("spec.suspend is true")), "else it would move pods in vain")
		groups, err := ca.API().NodeGroups(ctx, &externalgrpc.NodeGroupsRequest{})
		Expect(err).NotTo(HaveOccurred())
		Expect(groups.NodeGroups).To(HaveLen(2), "what is known is still told")
		Consistently(ctx, s.nodes(ctx), 2*time.Second).Should(ConsistOf("0:small"))
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Suspend = false })
		Eventually(ctx, func() error { return s.increase(ctx, "small", 1) }, soon).Should(Succeed())
		Eventually(ctx, s.numbers(ctx, "small"), soon).Should(Equal("2/2/2/0/0"))
	})

	It("install: false: the flags are told, and nothing is installed", func(ctx SpecContext) {
		s := newSite(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) {
			spec.Autoscaler = &clusterv1.AutoscalerDeployment{Install: ptr.To(false)}
			spec.Limits = &clusterv1.ScalingLimits{MaxNodesTotal: 9}
		})
		Eventually(ctx, s.stands(ctx), soon).Should(HavePrefix("True "))
		have := s.as.Status.Autoscaler
		Expect(have.Flags).To(ContainElements("--cloud-provider=externalgrpc", "--max-nodes-total=9", "--expander=least-waste"))
		Expect(have.Deployment).To(BeEmpty())
		s.hasInstalled(ctx, 0)
		s.autoscaler(ctx)
		By("a commit that has it installed, and one that does not any more")
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Autoscaler.Install = nil })
		Eventually(ctx, s.stands(ctx), soon).Should(HavePrefix("True "))
		s.hasInstalled(ctx, 1)
		flags := s.deployment(ctx).Spec.Template.Spec.Containers[0]
		Expect(append(flags.Command, flags.Args...)).To(ContainElements(have.Flags), "they are the same")
		Expect(s.as.Status.Autoscaler.Flags).To(BeEmpty())
		deployment := s.deployment(ctx)
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Autoscaler.Install = ptr.To(false) })
		Eventually(ctx, absent(ctx, deployment), soon).Should(BeTrue())
		Eventually(ctx, s.stands(ctx), soon).Should(HavePrefix("True "))
	})

	It("Cluster Autoscaler's version follows the cluster's minor", func(ctx SpecContext) {
		s := newSite(ctx)
		Eventually(ctx, s.stands(ctx), soon).Should(HavePrefix("True "))
		c := s.cluster()
		Expect(h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
		minor := strings.Join(strings.Split(strings.TrimPrefix(c.Status.KubernetesVersion, "v"), ".")[:2], ".")
		Expect(s.as.Status.Autoscaler.Version).To(HavePrefix(minor + "."))
		image := func() string { return s.deployment(ctx).Spec.Template.Spec.Containers[0].Image }
		Expect(image()).To(HaveSuffix("/cluster-autoscaler:v" + s.as.Status.Autoscaler.Version))
		By("the cluster being another minor, as far as is known")
		// What it really is, nobody looks at then, but who was at it already.
		Expect(h.Plane.Client().Patch(ctx, c, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":true}}`)))).To(Succeed())
		for _, other := range []string{"1.34", "1.35"} {
			Eventually(ctx, func() (string, error) {
				body := `{"status":{"kubernetesVersion":"v` + other + `.9"}}`
				return image(), h.Plane.Client().Status().Patch(ctx, c, client.RawPatch(types.MergePatchType, []byte(body)))
			}, soon).Should(ContainSubstring("/cluster-autoscaler:v" + other + "."))
		}
		By("a commit that names one")
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) {
			spec.Autoscaler = &clusterv1.AutoscalerDeployment{Version: "1.36.0"}
		})
		Eventually(ctx, image, soon).Should(HaveSuffix("/cluster-autoscaler:v1.36.0"))
	})

	It("a pool is taken out of the spec with machines left: they are nobody's, and nothing is deleted", func(ctx SpecContext) {
		s := newSite(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) {
			spec.Pools = []clusterv1.WorkerPool{pool("small", 1, 4), pool("large", 2, 3)}
		})
		Eventually(ctx, s.numbers(ctx, "large"), soon).Should(Equal("2/2/2/0/0"))
		Eventually(ctx, s.numbers(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) {
			spec.Pools = spec.Pools[:1]
			spec.Pools[0].MinSize = 0
		})
		Eventually(ctx, s.stands(ctx), soon).Should(HavePrefix("True "))
		Expect(s.as.Status.UnmanagedWorkers).To(Equal(int32(2)))
		Expect(s.as.Status.Pools).To(HaveLen(1))
		s.loops(ctx)
		Consistently(ctx, s.nodes(ctx), 3*time.Second).Should(ConsistOf("0:small", "1:large", "2:large"), "neither they nor who is before them go")
		of, err := s.ca.API().NodeGroupForNode(ctx, &externalgrpc.NodeGroupForNodeRequest{Node: &externalgrpc.ExternalGrpcNode{Name: s.node(ctx, 2).Name, ProviderID: s.node(ctx, 2).Spec.ProviderID}})
		Expect(err).NotTo(HaveOccurred())
		Expect(of.GetNodeGroup().GetId()).To(BeEmpty())
		By("more machines behind them, which come and go")
		s.load(ctx, "small", 2)
		Eventually(ctx, s.running(ctx), soon).Should(Equal(2))
		Expect(s.nodes(ctx)()).To(ConsistOf("0:small", "1:large", "2:large", "3:small"))
		s.unload(ctx)
		Eventually(ctx, s.nodes(ctx), soon).Should(ConsistOf("0:small", "1:large", "2:large"))
		By("the pool coming back")
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Pools = append(spec.Pools, pool("large", 0, 3)) })
		Eventually(ctx, s.nodes(ctx), soon).Should(BeEmpty(), "nobody needs any of them")
	})
})

// hasInstalled fails unless there are so many installs, and Deployments, of Cluster Autoscaler. The pods
// of one that is gone go after it.
func (s *site) hasInstalled(ctx context.Context, n int) {
	GinkgoHelper()
	var installs appsv1.KsctlInstallList
	Expect(h.Plane.Client().List(ctx, &installs, client.InNamespace(s.ns))).To(Succeed())
	Expect(installs.Items).To(HaveLen(n))
	Eventually(ctx, func(g Gomega) {
		var pods corev1.PodList
		g.Expect(h.Plane.Client().List(ctx, &pods, client.InNamespace(s.ns))).To(Succeed())
		g.Expect(len(pods.Items)).To(BeNumerically(">=", n))
		if n == 0 {
			g.Expect(pods.Items).To(BeEmpty())
		}
	}, soon).Should(Succeed())
}

// settled is true when nothing is at work.
func (s *site) settled(ctx context.Context) func() (bool, error) {
	return func() (bool, error) {
		err := s.get(ctx)
		op := s.as.Status.Operation
		return err == nil && (op == nil || op.State == clusterv1.OperationSucceeded || op.State == clusterv1.OperationFailed), err
	}
}
