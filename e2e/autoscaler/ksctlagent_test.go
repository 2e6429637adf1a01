package autoscaler_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/agent/agentpb"
	"github.com/ksctl/gitops/internal/agent/provisioner"
	"github.com/ksctl/gitops/internal/agent/provisioner/kwok"
)

var _ = Describe("ksctl's own agent", func() {
	It("scales up by the number of workers", func(ctx SpecContext) {
		s, a := newKsctlAgentCluster(ctx)
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("2/2/2/0/0"))
		s.runAutoscaler(ctx)
		s.createPods(ctx, "small", 3)
		Eventually(ctx, s.runningPods(ctx), soon).Should(Equal(3))
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("3/3/3/0/0"))
		s.createPods(ctx, "large", 1)
		Eventually(ctx, s.runningPods(ctx), soon).Should(Equal(4))
		Eventually(ctx, s.poolCounts(ctx, "large"), soon).Should(Equal("1/1/1/0/0"))
		Expect(s.nodes(ctx)()).To(ConsistOf("0:small", "1:small", "2:small", "3:large"))
		Expect(s.machines(ctx)()).To(Equal(int32(4)))
		By("a restarted controller, which reads the number from the status")
		Expect(controller.Stop()).To(Succeed())
		controller.Start()
		s.request(ctx)
		Eventually(ctx, s.readySummary(ctx), soon).Should(HavePrefix("True "))
		Expect(s.poolCounts(ctx, "small")()).To(Equal("3/3/3/0/0"))
		Expect(s.poolCounts(ctx, "large")()).To(Equal("1/1/1/0/0"))
		Expect(a.calls()).To(Equal([]string{"SCALE_UP 0 to 2 small", "SCALE_UP 2 to 3 small", "SCALE_UP 3 to 4 large"}),
			"no operation is repeated")
	})

	It("scales down by the number of workers", func(ctx SpecContext) {
		s, a := newKsctlAgentCluster(ctx)
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("2/2/2/0/0"))
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Pools[0].MinSize = 4 })
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("4/4/4/0/0"))
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Pools[0].MinSize = 2 })
		s.runAutoscaler(ctx)
		Eventually(ctx, s.nodes(ctx), soon).Should(ConsistOf("0:small", "1:small"))
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("2/2/2/0/0"))
		Expect(s.machines(ctx)()).To(Equal(int32(2)))
		Eventually(ctx, s.readySummary(ctx), soon).Should(HavePrefix("True "))
		Expect(a.calls()).
			To(Equal([]string{"SCALE_UP 0 to 2 small", "SCALE_UP 2 to 4 small", "SCALE_DOWN 4 to 3",
				"SCALE_DOWN 3 to 2"}))
		By("up again from the current number")
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Pools[0].MinSize = 3 })
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("3/3/3/0/0"))
		Expect(a.calls()).To(And(HaveLen(5), ContainElement("SCALE_UP 2 to 3 small")))
	})

	It("is reported when it hangs, and its operation times out", func(ctx SpecContext) {
		s, a := newKsctlAgentCluster(ctx)
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("2/2/2/0/0"))
		s.setProvisionTime(ctx, 20*time.Second)
		ca := s.autoscaler(ctx)
		Eventually(ctx, func() error { return ca.Loop(ctx) }, soon).Should(Succeed())
		a.setOverride(func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		Expect(s.increase(ctx, "small", 1)).To(Succeed())
		Eventually(ctx, func() (string, error) {
			err := s.get(ctx)
			c := apimeta.FindStatusCondition(s.as.Status.Conditions, clusterv1.ProgressingCondition)
			if c == nil {
				return "", err
			}
			return string(c.Status) + " " + c.Reason + ": " + c.Message, err
		}, soon).Should(Equal("True ScaleUp: creating 1 machine of pool small: from 2 workers to 3"))
		// Between both conditions is a tenth of that time, in which the first one may be missed.
		Eventually(ctx, s.readySummary(ctx), soon,
			50*time.Millisecond).Should(And(HavePrefix("False Backoff: pool small: "),
			Or(ContainSubstring(clusterv1.CodeSlow+": "), ContainSubstring(clusterv1.CodeNoAnswer+": "))))
		Eventually(ctx, func() (string, error) { return s.operation(ctx) }, soon).Should(Equal("ScaleUp 2 to 3 Failed"))
		Expect(s.as.Status.Operation.Message).To(ContainSubstring("it does not answer in time"))
		a.setOverride(nil)
		Expect(s.increase(ctx, "small", 1)).
			To(MatchError(ContainSubstring("pool small: no machines are created until ")))
		Expect(s.nodes(ctx)()).To(HaveLen(2))
		Expect(a.calls()).To(HaveLen(2), "the operation is requested once")
	})

	It("has its failures recognized with any code", func(ctx SpecContext) {
		s, a := newKsctlAgentCluster(ctx)
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("2/2/2/0/0"))
		ca := s.autoscaler(ctx)
		Eventually(ctx, func() error { return ca.Loop(ctx) }, soon).Should(Succeed())
		a.setOverride(func(context.Context) error {
			return status.Error(codes.Unimplemented, "no quota for another one")
		})
		Expect(s.increase(ctx, "large", 1)).To(Succeed())
		Eventually(ctx, s.readySummary(ctx), soon).
			Should(And(HavePrefix("False Backoff: pool large: "), ContainSubstring(clusterv1.CodeFailed+": "),
				ContainSubstring("no quota for another one")))
		Eventually(ctx, s.failureCodes(ctx, "large"), soon).Should(Equal([]string{clusterv1.CodeFailed}))
		Expect(ca.Loop(ctx)).To(Succeed(), "Cluster Autoscaler observes the failure")
		Eventually(ctx, s.poolCounts(ctx, "large"), soon).Should(Equal("0/0/0/0/0"))
		By("no operation until the number of workers is known")
		Expect(s.readySummary(ctx)()).To(ContainSubstring("there are between 2 and 3 workers"))
		a.setOverride(nil)
		Eventually(a.calls, soon).Should(ContainElement("SCALE_DOWN 2 to 2"))
		By("a failure after the machine is created")
		a.setAfterScale(func() error { return status.Error(codes.Unimplemented, "and then it failed") })
		Expect(s.increase(ctx, "small", 1)).To(Succeed())
		Eventually(ctx, s.readySummary(ctx), soon).Should(ContainSubstring("pool small: no machines are created until"))
		Eventually(ctx, s.nodes(ctx), soon).Should(ConsistOf("0:small", "1:small", "2:small"))
		a.setAfterScale(nil)
		By("the next operation starts from the actual number")
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(HavePrefix("3/3/3/"))
		Expect(s.machines(ctx)()).To(Equal(int32(3)))
		Expect(a.calls()).
			To(Equal([]string{"SCALE_UP 0 to 2 small", "SCALE_UP 2 to 3 large", "SCALE_DOWN 2 to 2",
				"SCALE_UP 2 to 3 small"}))
	})
})

// ksctlAgent behaves like ksctl's own agent: it responds after the operation, has no list of
// workers, and trusts the requested number. Its machines are fake nodes.
type ksctlAgent struct {
	agentpb.UnimplementedKsctlAgentServer
	cluster provisioner.Cluster
	kwok    *kwok.Provisioner

	mu       sync.Mutex
	requests []string
	// override replaces an operation. afterScale is called after one, and its error returned.
	override   func(context.Context) error
	afterScale func() error
}

// newKsctlAgentCluster creates a cluster with ksctl's own agent, without TLS, and a KsctlCluster
// that has only a kubeconfig.
func newKsctlAgentCluster(ctx context.Context) (*testCluster, *ksctlAgent) {
	GinkgoHelper()
	s := newBareTestCluster(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Pools[0].MinSize = 2 })
	nodes, err := kubernetes.NewForConfig(remote.Config())
	Expect(err).NotTo(HaveOccurred())
	a := &ksctlAgent{cluster: provisioner.Cluster{Name: s.name},
		kwok: &kwok.Provisioner{Client: nodes, ConfigFile: s.config, ProviderID: kwok.NoProviderID,
			InstanceType: "k3s"}}
	listening, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	server := grpc.NewServer()
	agentpb.RegisterKsctlAgentServer(server, a)
	go func() { _ = server.Serve(listening) }()
	DeferCleanup(server.Stop)
	s.as.Spec.Agent = appsv1.AgentEndpoint{Address: listening.Addr().String(), Plaintext: true}
	create(ctx, s.cluster())
	create(ctx, s.as)
	return s, a
}

// Scale implements agentpb.KsctlAgentServer.
func (a *ksctlAgent) Scale(ctx context.Context, r *agentpb.ReqScale) (*agentpb.ResScale, error) {
	defer GinkgoRecover()
	workers, err := a.kwok.Run(ctx, provisioner.Request{Operation: provisioner.List, Cluster: a.cluster})
	if err != nil {
		return nil, err
	}
	have, desired := uint32(len(workers)), r.GetDesiredNoOfWP()
	call := fmt.Sprintf("%s %d to %d", r.GetOperation(), have, desired)
	do := provisioner.Request{Operation: provisioner.Delete, Cluster: a.cluster, From: have, Desired: desired}
	if r.GetOperation() == agentpb.ScaleOperation_SCALE_UP {
		do.Operation, do.Size = provisioner.Create, r.GetNodeSizeOfWP()
		call += " " + do.Size
		Expect(desired).To(BeNumerically(">", have), "ksctl's agent would lose machines: %s", call)
	} else {
		Expect(desired).To(BeNumerically("<=", have), "ksctl's agent would index beyond its array: %s", call)
	}
	a.mu.Lock()
	a.requests = append(a.requests, call)
	override, afterScale := a.override, a.afterScale
	a.mu.Unlock()
	if override != nil {
		return nil, override(ctx)
	}
	if _, err := a.kwok.Run(ctx, do); err != nil {
		return nil, status.Error(codes.Unimplemented, err.Error())
	}
	if afterScale != nil {
		return nil, afterScale()
	}
	return &agentpb.ResScale{IsUpdated: true}, nil
}

// calls returns the requested operations.
func (a *ksctlAgent) calls() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.requests...)
}

// setOverride replaces the operations from now on; nil: normal operations.
func (a *ksctlAgent) setOverride(override func(context.Context) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.override = override
}

// setAfterScale sets the error after an operation; nil: success.
func (a *ksctlAgent) setAfterScale(afterScale func() error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.afterScale = afterScale
}
