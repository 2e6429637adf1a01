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
	"k8s.io/utils/clock"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler"
	"github.com/ksctl/gitops/internal/agent/agentpb"
	"github.com/ksctl/gitops/internal/agent/provisioner"
	"github.com/ksctl/gitops/internal/agent/provisioner/kwok"
)

var _ = Describe("ksctl's own agent", func() {
	It("scales up by numbers alone", func(ctx SpecContext) {
		s, a := plainSite(ctx)
		Eventually(ctx, s.numbers(ctx, "small"), soon).Should(Equal("2/2/2/0/0"))
		s.loops(ctx)
		s.load(ctx, "small", 3)
		Eventually(ctx, s.running(ctx), soon).Should(Equal(3))
		Eventually(ctx, s.numbers(ctx, "small"), soon).Should(Equal("3/3/3/0/0"))
		s.load(ctx, "large", 1)
		Eventually(ctx, s.running(ctx), soon).Should(Equal(4))
		Eventually(ctx, s.numbers(ctx, "large"), soon).Should(Equal("1/1/1/0/0"))
		Expect(s.nodes(ctx)()).To(ConsistOf("0:small", "1:small", "2:small", "3:large"))
		Expect(s.machines(ctx)()).To(Equal(int32(4)))
		By("a controller that starts again, and knows the number by its status")
		Expect(inProcess.Stop()).To(Succeed())
		startController()
		s.request(ctx)
		Eventually(ctx, s.stands(ctx), soon).Should(HavePrefix("True "))
		Expect(s.numbers(ctx, "small")()).To(Equal("3/3/3/0/0"))
		Expect(s.numbers(ctx, "large")()).To(Equal("1/1/1/0/0"))
		Expect(a.calls()).To(Equal([]string{"SCALE_UP 0 to 2 small", "SCALE_UP 2 to 3 small", "SCALE_UP 3 to 4 large"}), "nothing is done twice")
	})

	It("scales down by numbers alone", func(ctx SpecContext) {
		s, a := plainSite(ctx)
		Eventually(ctx, s.numbers(ctx, "small"), soon).Should(Equal("2/2/2/0/0"))
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Pools[0].MinSize = 4 })
		Eventually(ctx, s.numbers(ctx, "small"), soon).Should(Equal("4/4/4/0/0"))
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Pools[0].MinSize = 2 })
		s.loops(ctx)
		Eventually(ctx, s.nodes(ctx), soon).Should(ConsistOf("0:small", "1:small"))
		Eventually(ctx, s.numbers(ctx, "small"), soon).Should(Equal("2/2/2/0/0"))
		Expect(s.machines(ctx)()).To(Equal(int32(2)))
		Eventually(ctx, s.stands(ctx), soon).Should(HavePrefix("True "))
		Expect(a.calls()).To(Equal([]string{"SCALE_UP 0 to 2 small", "SCALE_UP 2 to 4 small", "SCALE_DOWN 4 to 3", "SCALE_DOWN 3 to 2"}))
		By("up again, from as many as there are")
		s.commit(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Pools[0].MinSize = 3 })
		Eventually(ctx, s.numbers(ctx, "small"), soon).Should(Equal("3/3/3/0/0"))
		Expect(a.calls()).To(And(HaveLen(5), ContainElement("SCALE_UP 2 to 3 small")))
	})

	It("shows one that hangs, and gives it up in time", func(ctx SpecContext) {
		s, a := plainSite(ctx)
		Eventually(ctx, s.numbers(ctx, "small"), soon).Should(Equal("2/2/2/0/0"))
		s.within(ctx, 20*time.Second)
		ca := s.autoscaler(ctx)
		Eventually(ctx, func() error { return ca.Loop(ctx) }, soon).Should(Succeed())
		a.behave(func(ctx context.Context) error {
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
		}, soon).Should(Equal("True ScaleUp: making 1 machine of pool small: from 2 workers to 3"))
		// The last tenth of that time is between the two, which may be missed.
		Eventually(ctx, s.stands(ctx), soon, 50*time.Millisecond).Should(And(HavePrefix("False Backoff: pool small: "),
			Or(ContainSubstring(autoscaler.CodeSlow+": "), ContainSubstring(autoscaler.CodeNoAnswer+": "))))
		Eventually(ctx, func() (string, error) { return s.operation(ctx) }, soon).Should(Equal("ScaleUp 2 to 3 Failed"))
		Expect(s.as.Status.Operation.Message).To(ContainSubstring("it does not answer in time"))
		a.behave(nil)
		Expect(s.increase(ctx, "small", 1)).To(MatchError(ContainSubstring("nothing is made for pool small until ")))
		Expect(s.nodes(ctx)()).To(HaveLen(2))
		Expect(a.calls()).To(HaveLen(2), "it is asked once")
	})

	It("takes a failure for one, whatever its code", func(ctx SpecContext) {
		s, a := plainSite(ctx)
		Eventually(ctx, s.numbers(ctx, "small"), soon).Should(Equal("2/2/2/0/0"))
		ca := s.autoscaler(ctx)
		Eventually(ctx, func() error { return ca.Loop(ctx) }, soon).Should(Succeed())
		a.behave(func(context.Context) error { return status.Error(codes.Unimplemented, "no quota for another one") })
		Expect(s.increase(ctx, "large", 1)).To(Succeed())
		Eventually(ctx, s.stands(ctx), soon).Should(And(HavePrefix("False Backoff: pool large: "), ContainSubstring(autoscaler.CodeFailed+": "), ContainSubstring("no quota for another one")))
		Eventually(ctx, s.failures(ctx, "large"), soon).Should(Equal([]string{autoscaler.CodeFailed}))
		Expect(ca.Loop(ctx)).To(Succeed(), "it takes note")
		Eventually(ctx, s.numbers(ctx, "large"), soon).Should(Equal("0/0/0/0/0"))
		By("nothing being made until it is clear how many there are")
		Expect(s.stands(ctx)()).To(ContainSubstring("there are between 2 and 3 workers"))
		a.behave(nil)
		Eventually(a.calls, soon).Should(ContainElement("SCALE_DOWN 2 to 2"))
		By("one that fails when it has made the machine")
		a.after(func() error { return status.Error(codes.Unimplemented, "and then it failed") })
		Expect(s.increase(ctx, "small", 1)).To(Succeed())
		Eventually(ctx, s.stands(ctx), soon).Should(ContainSubstring("pool small: nothing is made until"))
		Eventually(ctx, s.nodes(ctx), soon).Should(ConsistOf("0:small", "1:small", "2:small"))
		a.after(nil)
		By("the next call being one for more than there are")
		Eventually(ctx, s.numbers(ctx, "small"), soon).Should(HavePrefix("3/3/3/"))
		Expect(s.machines(ctx)()).To(Equal(int32(3)))
		Expect(a.calls()).To(Equal([]string{"SCALE_UP 0 to 2 small", "SCALE_UP 2 to 3 large", "SCALE_DOWN 2 to 2", "SCALE_UP 2 to 3 small"}))
	})
})

// plainAgent is ksctl's own: it answers when it is done, keeps no list, and believes the number that
// it is told. Its machines are fake nodes.
type plainAgent struct {
	agentpb.UnimplementedKsctlAgentServer
	cluster provisioner.Cluster
	kwok    *kwok.Provisioner

	mu   sync.Mutex
	said []string
	// wrong is what it does instead, then what it does when it is done.
	wrong func(context.Context) error
	then  func() error
}

// plainSite has ksctl's own agent, without TLS, and a cluster that is known by its kubeconfig alone.
func plainSite(ctx context.Context) (*site, *plainAgent) {
	GinkgoHelper()
	s := bareSite(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Pools[0].MinSize = 2 })
	nodes, err := kubernetes.NewForConfig(remote.Config())
	Expect(err).NotTo(HaveOccurred())
	a := &plainAgent{cluster: provisioner.Cluster{Name: s.name}, kwok: &kwok.Provisioner{Client: nodes, Clock: clock.RealClock{}, Config: s.knobs, ProviderID: kwok.None, InstanceType: "k3s"}}
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
func (a *plainAgent) Scale(ctx context.Context, r *agentpb.ReqScale) (*agentpb.ResScale, error) {
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
		Expect(desired).To(BeNumerically(">", have), "it forgets machines: %s", call)
	} else {
		Expect(desired).To(BeNumerically("<=", have), "it goes beyond the end of its array: %s", call)
	}
	a.mu.Lock()
	a.said = append(a.said, call)
	wrong, then := a.wrong, a.then
	a.mu.Unlock()
	if wrong != nil {
		return nil, wrong(ctx)
	}
	if _, err := a.kwok.Run(ctx, do); err != nil {
		return nil, status.Error(codes.Unimplemented, err.Error())
	}
	if then != nil {
		return nil, then()
	}
	return &agentpb.ResScale{IsUpdated: true}, nil
}

// calls are how it was asked.
func (a *plainAgent) calls() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.said...)
}

// behave has it do something else instead; nil: what it is asked.
func (a *plainAgent) behave(wrong func(context.Context) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wrong = wrong
}

// after has it answer so when it is done; nil: that it is.
func (a *plainAgent) after(then func() error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.then = then
}
