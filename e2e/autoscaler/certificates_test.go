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

	"github.com/ksctl/gitops/e2e/autoscaler/fakeautoscaler"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/internal/scaling/nodegroup/externalgrpc"
	"github.com/ksctl/gitops/internal/scaling/pki"
)

// configHashAnnotation is the annotation of pods whose change triggers a rollout of a Deployment.
const configHashAnnotation = "cluster.ksctl.com/config-hash"

var _ = Describe("The certificates of Cluster Autoscaler", func() {
	It("are required from clients and from the server", func(ctx SpecContext) {
		s := newTestCluster(ctx)
		s.autoscaler(ctx)
		secret := s.secret(ctx)
		others, err := pki.NewAuthority(time.Now())
		Expect(err).NotTo(HaveOccurred())
		for _, key := range []client.ObjectKey{{Namespace: s.ns, Name: "workers"},
			{Namespace: "nobody", Name: "else"}} {
			pair, err := others.Issue(pki.ClientSubject(key), time.Now())
			Expect(err).NotTo(HaveOccurred())
			data, err := others.KeyPairSecretData(pair)
			Expect(err).NotTo(HaveOccurred())
			data["ca.crt"] = secret.Data["ca.crt"]
			stranger, err := fakeautoscaler.Dial(provider, data, remote.Client())
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(stranger.Close)
			_, err = stranger.API().NodeGroups(ctx, &externalgrpc.NodeGroupsRequest{})
			Expect(status.Code(err)).To(Equal(codes.Unavailable), "the connection is refused: %v", err)
		}
		By("a server with a certificate of another CA")
		data := map[string][]byte{"ca.crt": others.Bundle(), "tls.crt": secret.Data["tls.crt"],
			"tls.key": secret.Data["tls.key"]}
		deceived, err := fakeautoscaler.Dial(provider, data, remote.Client())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(deceived.Close)
		_, err = deceived.API().NodeGroups(ctx, &externalgrpc.NodeGroupsRequest{})
		Expect(err).To(MatchError(ContainSubstring("certificate signed by unknown authority")))
	})

	It("give access only to the groups of one KsctlAutoScaler", func(ctx SpecContext) {
		mine, theirs := newTestCluster(ctx), newTestCluster(ctx)
		for _, s := range []*testCluster{mine, theirs} {
			Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
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
		id := theirs.groupID("small")
		_, size := api.NodeGroupTargetSize(ctx, &externalgrpc.NodeGroupTargetSizeRequest{Id: id})
		_, nodes := api.NodeGroupNodes(ctx, &externalgrpc.NodeGroupNodesRequest{Id: id})
		_, template := api.NodeGroupTemplateNodeInfo(ctx, &externalgrpc.NodeGroupTemplateNodeInfoRequest{Id: id})
		_, more := api.NodeGroupIncreaseSize(ctx, &externalgrpc.NodeGroupIncreaseSizeRequest{Id: id, Delta: 1})
		_, fewer := api.NodeGroupDecreaseTargetSize(ctx,
			&externalgrpc.NodeGroupDecreaseTargetSizeRequest{Id: id, Delta: -1})
		_, without := api.NodeGroupDeleteNodes(ctx,
			&externalgrpc.NodeGroupDeleteNodesRequest{Id: id, Nodes: []*externalgrpc.ExternalGrpcNode{asked}})
		_, smuggled := api.NodeGroupDeleteNodes(ctx,
			&externalgrpc.NodeGroupDeleteNodesRequest{Id: mine.groupID("small"),
				Nodes: []*externalgrpc.ExternalGrpcNode{asked}})
		for _, err := range []error{size, nodes, template, more, fewer, without, smuggled} {
			Expect(status.Code(err)).To(Equal(codes.NotFound), "%v", err)
		}
		theirs.request(ctx)
		Expect(theirs.poolCounts(ctx, "small")()).To(Equal("1/1/1/0/0"))
		Expect(theirs.nodes(ctx)()).To(ConsistOf("0:small"))
	})

	It("are reissued when their Secret is deleted, and Cluster Autoscaler rolls out", func(ctx SpecContext) {
		s := newTestCluster(ctx)
		Eventually(ctx, s.readySummary(ctx), soon).Should(HavePrefix("True "))
		before, hash := s.secret(ctx), s.rolloutHash(ctx)
		Expect(h.ControlPlane.Client().Delete(ctx, before.DeepCopy())).To(Succeed())
		s.awaitRollout(ctx, before, hash)
		Expect(s.secret(ctx).Data["ca.crt"]).To(Equal(before.Data["ca.crt"]))
	})

	It("are issued by a new CA after its Secret is deleted and the controller restarted", func(ctx SpecContext) {
		s := newTestCluster(ctx)
		Eventually(ctx, s.readySummary(ctx), soon).Should(HavePrefix("True "))
		before, hash := s.secret(ctx), s.rolloutHash(ctx)
		Expect(controller.Stop()).To(Succeed())
		deleted := h.ControlPlane.Client().Delete(ctx, authority())
		controller.Start()
		Expect(deleted).To(Succeed())
		s.awaitRollout(ctx, before, hash)
		Expect(s.secret(ctx).Data["ca.crt"]).NotTo(Equal(before.Data["ca.crt"]))
		former, err := fakeautoscaler.Dial(provider, before.Data, remote.Client())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(former.Close)
		Expect(former.Loop(ctx)).NotTo(Succeed(), "the former CA is not trusted anymore")
	})
})

// authority returns the Secret of the CA that issues the certificates, without content.
func authority() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: harness.SystemNamespace,
		Name: "ksctl-gitops-nodegroup-ca"}}
}

// secret returns the Secret with the client certificate of Cluster Autoscaler.
func (s *testCluster) secret(ctx context.Context) *corev1.Secret {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: s.ns, Name: "workers-autoscaler-tls"}, secret)).
		To(Succeed())
	return secret
}

// rolloutHash returns the hash whose change triggers a rollout of Cluster Autoscaler.
func (s *testCluster) rolloutHash(ctx context.Context) string {
	GinkgoHelper()
	hash := s.deployment(ctx).Spec.Template.Annotations[configHashAnnotation]
	Expect(hash).NotTo(BeEmpty())
	return hash
}

// awaitRollout waits until there is a new certificate, and Cluster Autoscaler runs with it and is
// authenticated.
func (s *testCluster) awaitRollout(ctx context.Context, before *corev1.Secret, hash string) {
	GinkgoHelper()
	var now corev1.Secret
	Eventually(ctx, func(g Gomega) {
		g.Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(before), &now)).To(Succeed())
		g.Expect(now.Data["tls.crt"]).NotTo(Equal(before.Data["tls.crt"]))
	}, soon).Should(Succeed())
	Eventually(ctx, func() string { return s.rolloutHash(ctx) }, soon).ShouldNot(Equal(hash))
	// The condition was True before, too, and the status is written after the rollout.
	Eventually(ctx, func(g Gomega) {
		g.Expect(s.readySummary(ctx)()).To(HavePrefix("True "))
		g.Expect(s.as.Status.Autoscaler.ConfigHash).To(Equal(s.rolloutHash(ctx)))
	}, soon).Should(Succeed())
	ca := s.autoscaler(ctx)
	Eventually(ctx, func() error { return ca.Loop(ctx) }, soon).Should(Succeed())
}
