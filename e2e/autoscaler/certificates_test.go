package autoscaler_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/autoscaler/casim"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/internal/scaling/nodegroup/externalgrpc"
	"github.com/ksctl/gitops/internal/scaling/pki"
)

// configHash is the annotation of pods that has a Deployment roll.
const configHash = "cluster.ksctl.com/config-hash"

var _ = Describe("The certificates of Cluster Autoscaler", func() {
	It("let nobody in who has none of ours", func(ctx SpecContext) {
		s := newSite(ctx)
		s.autoscaler(ctx)
		secret := s.secret(ctx)
		others, err := pki.NewAuthority(time.Now())
		Expect(err).NotTo(HaveOccurred())
		for _, key := range []client.ObjectKey{{Namespace: s.ns, Name: "workers"}, {Namespace: "nobody", Name: "else"}} {
			pair, err := others.Issue(pki.Client(key), time.Now())
			Expect(err).NotTo(HaveOccurred())
			data, err := others.PairData(pair)
			Expect(err).NotTo(HaveOccurred())
			data["ca.crt"] = secret.Data["ca.crt"]
			stranger, err := casim.Dial(provider, data, remote.Client())
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(stranger.Close)
			_, err = stranger.API().NodeGroups(ctx, &externalgrpc.NodeGroupsRequest{})
			Expect(status.Code(err)).To(Equal(codes.Unavailable), "there is no connection: %v", err)
		}
		By("whom we do not take for the one either")
		data := map[string][]byte{"ca.crt": others.Bundle(), "tls.crt": secret.Data["tls.crt"], "tls.key": secret.Data["tls.key"]}
		deceived, err := casim.Dial(provider, data, remote.Client())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(deceived.Close)
		_, err = deceived.API().NodeGroups(ctx, &externalgrpc.NodeGroupsRequest{})
		Expect(err).To(MatchError(ContainSubstring("certificate signed by unknown authority")))
	})

	It("show each one its own groups alone", func(ctx SpecContext) {
		mine, theirs := newSite(ctx), newSite(ctx)
		for _, s := range []*site{mine, theirs} {
			Eventually(ctx, s.numbers(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
			ca := s.autoscaler(ctx)
			Eventually(ctx, func() error { return ca.Loop(ctx) }, soon).Should(Succeed())
		}
		api := mine.ca.API()
		groups, err := api.NodeGroups(ctx, &externalgrpc.NodeGroupsRequest{})
		Expect(err).NotTo(HaveOccurred())
		Expect(groups.NodeGroups).To(HaveLen(2))
		for _, g := range groups.NodeGroups {
			Expect(g.Id).To(HavePrefix(mine.ns + "/workers/"))
		}
		node := theirs.node(ctx, 0)
		asked := &externalgrpc.ExternalGrpcNode{Name: node.Name, ProviderID: node.Spec.ProviderID}
		of, err := api.NodeGroupForNode(ctx, &externalgrpc.NodeGroupForNodeRequest{Node: asked})
		Expect(err).NotTo(HaveOccurred())
		Expect(of.GetNodeGroup().GetId()).To(BeEmpty())
		id := theirs.group("small")
		_, size := api.NodeGroupTargetSize(ctx, &externalgrpc.NodeGroupTargetSizeRequest{Id: id})
		_, nodes := api.NodeGroupNodes(ctx, &externalgrpc.NodeGroupNodesRequest{Id: id})
		_, template := api.NodeGroupTemplateNodeInfo(ctx, &externalgrpc.NodeGroupTemplateNodeInfoRequest{Id: id})
		_, more := api.NodeGroupIncreaseSize(ctx, &externalgrpc.NodeGroupIncreaseSizeRequest{Id: id, Delta: 1})
		_, fewer := api.NodeGroupDecreaseTargetSize(ctx, &externalgrpc.NodeGroupDecreaseTargetSizeRequest{Id: id, Delta: -1})
		_, without := api.NodeGroupDeleteNodes(ctx, &externalgrpc.NodeGroupDeleteNodesRequest{Id: id, Nodes: []*externalgrpc.ExternalGrpcNode{asked}})
		_, smuggled := api.NodeGroupDeleteNodes(ctx, &externalgrpc.NodeGroupDeleteNodesRequest{Id: mine.group("small"), Nodes: []*externalgrpc.ExternalGrpcNode{asked}})
		for _, err := range []error{size, nodes, template, more, fewer, without, smuggled} {
			Expect(status.Code(err)).To(Equal(codes.NotFound), "%v", err)
		}
		theirs.request(ctx)
		Expect(theirs.numbers(ctx, "small")()).To(Equal("1/1/1/0/0"))
		Expect(theirs.nodes(ctx)()).To(ConsistOf("0:small"))
	})

	It("are made anew when their Secret is deleted, and Cluster Autoscaler rolls", func(ctx SpecContext) {
		s := newSite(ctx)
		Eventually(ctx, s.stands(ctx), soon).Should(HavePrefix("True "))
		before, hash := s.secret(ctx), s.hash(ctx)
		Expect(h.Plane.Client().Delete(ctx, before.DeepCopy())).To(Succeed())
		s.rolls(ctx, before, hash)
		Expect(s.secret(ctx).Data["ca.crt"]).To(Equal(before.Data["ca.crt"]))
	})

	It("are another authority's after its Secret was deleted and the controller started again", func(ctx SpecContext) {
		s := newSite(ctx)
		Eventually(ctx, s.stands(ctx), soon).Should(HavePrefix("True "))
		before, hash := s.secret(ctx), s.hash(ctx)
		Expect(inProcess.Stop()).To(Succeed())
		deleted := h.Plane.Client().Delete(ctx, authority())
		startController()
		Expect(deleted).To(Succeed())
		s.rolls(ctx, before, hash)
		Expect(s.secret(ctx).Data["ca.crt"]).NotTo(Equal(before.Data["ca.crt"]))
		former, err := casim.Dial(provider, before.Data, remote.Client())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(former.Close)
		Expect(former.Loop(ctx)).NotTo(Succeed(), "the former authority is no one's any more")
	})
})

// authority is the Secret that certificates are issued by.
func authority() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: harness.SystemNamespace, Name: "ksctl-gitops-nodegroup-ca"}}
}

// secret by which Cluster Autoscaler says who it is.
func (s *site) secret(ctx context.Context) *corev1.Secret {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(h.Plane.Client().Get(ctx, client.ObjectKey{Namespace: s.ns, Name: "workers-autoscaler-tls"}, secret)).To(Succeed())
	return secret
}

// hash by which the Deployment of Cluster Autoscaler rolls.
func (s *site) hash(ctx context.Context) string {
	GinkgoHelper()
	hash := s.deployment(ctx).Spec.Template.Annotations[configHash]
	Expect(hash).NotTo(BeEmpty())
	return hash
}

// rolls waits until there is another certificate, and Cluster Autoscaler starts with it, and is let in.
func (s *site) rolls(ctx context.Context, before *corev1.Secret, hash string) {
	GinkgoHelper()
	var now corev1.Secret
	Eventually(ctx, func(g Gomega) {
		g.Expect(h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(before), &now)).To(Succeed())
		g.Expect(now.Data["tls.crt"]).NotTo(Equal(before.Data["tls.crt"]))
	}, soon).Should(Succeed())
	Eventually(ctx, func() string { return s.hash(ctx) }, soon).ShouldNot(Equal(hash))
	// It was True before, too, and the status is written after what it tells of.
	Eventually(ctx, func(g Gomega) {
		g.Expect(s.stands(ctx)()).To(HavePrefix("True "))
		g.Expect(s.as.Status.Autoscaler.ConfigHash).To(Equal(s.hash(ctx)))
	}, soon).Should(Succeed())
	ca := s.autoscaler(ctx)
	Eventually(ctx, func() error { return ca.Loop(ctx) }, soon).Should(Succeed())
}
