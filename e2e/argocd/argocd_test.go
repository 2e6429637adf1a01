package argocd_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/harness"
)

const never = cluster.FateNeverReady

func configMapOf(ns, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

// patch changes an object like a user does.
func patch(ctx context.Context, o client.Object, body string) {
	GinkgoHelper()
	Expect(h.ControlPlane.Client().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(body)),
		client.FieldOwner("somebody"))).To(Succeed())
}

var _ = Describe("An Application of our kinds", func() {
	DescribeTable("stays Synced, and has no other kinds in "+
		"its tree", func(ctx SpecContext, annotations string, options ...string) {
		w := newFixture(ctx, nil)
		w.commit(ctx, content(w.ns,
			map[string]string{"source.yaml": source, "install.yaml": installManifest,
				"remove.yaml": removeExtraManifest}))
		w.sync(ctx, annotations, options...)
		becomes(ctx, w.ns, "Healthy")
		Expect(absent(ctx, configMapOf(w.ns, "base"))).
			To(BeFalse(), "it is Healthy when the install has applied its objects")

		By("repeated refreshes, without writes")
		Eventually(ctx, func(g Gomega) {
			mark, err := h.ControlPlane.AuditMark(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			for range 3 {
				refresh(ctx, w.ns)
				g.Consistently(ctx, func() (string, error) {
					s, err := statusOf(ctx, w.ns)
					return s.Sync.Status + " " + s.Health.Status, err
				}, 2*time.Second).Should(Equal("Synced Healthy"))
			}
			requests, err := h.ControlPlane.AuditSince(ctx, mark)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(requests.Where(cluster.Write, cluster.InNamespace(w.ns)).Without(cluster.DryRun).
				Without(cluster.Lease)).To(BeEmpty())
		}, soon).Should(Succeed())

		s, err := statusOf(ctx, w.ns)
		Expect(err).NotTo(HaveOccurred())
		var kinds []string
		for _, r := range s.Resources {
			kinds = append(kinds, r.Kind)
		}
		Expect(kinds).To(ConsistOf("KsctlInstall", "KsctlRemove", "KsctlSource"),
			"no child is a resource of the Application")
		Expect(treeKinds(w.ns)).To(ConsistOf("KsctlInstall", "KsctlRemove", "KsctlSource"), "nor is it in the tree")
	},
		Entry("with a client-side diff", SpecTimeout(15*time.Minute), ""),
		Entry("with a server-side diff", SpecTimeout(15*time.Minute),
			`argocd.argoproj.io/compare-options: "ServerSideDiff=true"`, "ServerSideApply=true"),
		Entry("with a server-side apply and a client-side diff", SpecTimeout(15*time.Minute), "",
			"ServerSideApply=true"))

	It("has their health and their message", func(ctx SpecContext) {
		w := newFixture(ctx, content("", map[string]string{"source.yaml": source, "install.yaml": installManifest}))
		w.commit(ctx, map[string]string{"stacks/app/base/web.yaml": deployment("web", never)})
		w.sync(ctx, "")
		By("Progressing while an object is not ready")
		becomes(ctx, w.ns, "Progressing")
		reports(ctx, w.ns, "KsctlInstall", `^Synced Progressing: component "base".*web`)

		By("Degraded when the stack is invalid")
		w.commit(ctx, map[string]string{"stacks/app/stack.yaml": strings.ReplaceAll(stack, "version: 1.0.0",
			"version: none")})
		reports(ctx, w.ns, "KsctlInstall", `^Synced Degraded: .*stack\.yaml:5.*version`)
		becomes(ctx, w.ns, "Degraded")

		By("Healthy when all objects are ready")
		w.commit(ctx, map[string]string{"stacks/app/stack.yaml": stack,
			"stacks/app/base/web.yaml": deployment("web", "")})
		becomes(ctx, w.ns, "Healthy")
		reports(ctx, w.ns, "KsctlInstall", `^Synced Healthy: Applied revision main@sha1:`)

		By("Suspended when it is suspended in the repository")
		w.commit(ctx, map[string]string{"synced/install.yaml": installManifest + "  suspend: true\n"})
		refresh(ctx, w.ns)
		becomes(ctx, w.ns, "Suspended")

		By("Healthy when it is resumed")
		w.commit(ctx, map[string]string{"synced/install.yaml": installManifest})
		refresh(ctx, w.ns)
		becomes(ctx, w.ns, "Healthy")
	}, SpecTimeout(15*time.Minute))

	It("reverts changes, and prunes an install with its objects", func(ctx SpecContext) {
		w := newFixture(ctx, content("", map[string]string{"source.yaml": source, "install.yaml": installManifest}))
		w.sync(ctx, "")
		becomes(ctx, w.ns, "Healthy")

		By("a change of a spec")
		in := install(w.ns, "app")
		patch(ctx, in, `{"spec":{"interval":"2m","stack":"other"}}`)
		Eventually(ctx, func(g Gomega) {
			g.Expect(get(ctx, in)).To(Succeed())
			g.Expect(in.Spec.Stack).To(Equal("app"))
		}, soon).Should(Succeed())
		becomes(ctx, w.ns, "Healthy")

		By("the deletion of an object")
		uid := in.UID
		Expect(h.ControlPlane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			g.Expect(get(ctx, in)).To(Succeed())
			g.Expect(in.UID).NotTo(Equal(uid))
		}, soon).Should(Succeed(), "the install is recreated")
		Eventually(ctx, func() bool {
			return absent(ctx, configMapOf(w.ns, "base"))
		}, soon).Should(BeFalse(), "its objects are recreated")
		becomes(ctx, w.ns, "Healthy")

		By("removing the install from the repository")
		w.commit(ctx, nil, gitserver.Delete("synced/install.yaml"))
		refresh(ctx, w.ns)
		Eventually(ctx, func() bool { return absent(ctx, in) }, soon).Should(BeTrue())
		Expect(absent(ctx, configMapOf(w.ns, "base"))).To(BeTrue())
		Expect(absent(ctx, configMapOf(w.ns, "extra"))).To(BeTrue())
		becomes(ctx, w.ns, "Healthy")
	}, SpecTimeout(15*time.Minute))

	It("waits for an install before the next sync wave", func(ctx SpecContext) {
		inWave := func(name string, wave int) string {
			return strings.Replace(installManifest, "metadata: {name: app}",
				fmt.Sprintf("metadata: {name: %s, annotations: {argocd.argoproj.io/sync-wave: %q}}\n", name,
					fmt.Sprint(wave)), 1)
		}
		second := strings.ReplaceAll(inWave("second", 2), "stack: app", "stack: second")
		w := newFixture(ctx,
			content("", map[string]string{"source.yaml": source, "first.yaml": inWave("first", 1),
				"second.yaml": second}))
		w.commit(ctx, map[string]string{"stacks/app/base/web.yaml": deployment("web", never),
			"stacks/second/stack.yaml":       strings.NewReplacer("name: app", "name: second").Replace(stack),
			"stacks/second/base/base.yaml":   configMap("second-base", ""),
			"stacks/second/extra/extra.yaml": configMap("second-extra", "")})
		w.sync(ctx, "")
		reports(ctx, w.ns, "KsctlInstall", `^Synced Progressing: component "base".*web`)
		Consistently(ctx, func() bool {
			return absent(ctx, install(w.ns, "second"))
		}, 5*time.Second).Should(BeTrue(), "its wave has not started")

		w.commit(ctx, map[string]string{"stacks/app/base/web.yaml": deployment("web", "")})
		becomes(ctx, w.ns, "Healthy")
		Expect(absent(ctx, configMapOf(w.ns, "second-extra"))).To(BeFalse())
	}, SpecTimeout(15*time.Minute))

	It("is deleted after the installed objects", func(ctx SpecContext) {
		w := newFixture(ctx, content("", map[string]string{"source.yaml": source, "install.yaml": installManifest}))
		w.sync(ctx, "")
		becomes(ctx, w.ns, "Healthy")
		patch(ctx, configMapOf(w.ns, "base"), `{"metadata":{"finalizers":["example.com/hold"]}}`)
		Expect(h.ControlPlane.Client().Delete(ctx, application(w.ns))).To(Succeed())

		Eventually(ctx, func() bool {
			return absent(ctx, configMapOf(w.ns, "extra"))
		}, soon).Should(BeTrue(), "the removal continues")
		Consistently(ctx, func() bool {
			return absent(ctx, application(w.ns)) || absent(ctx, install(w.ns, "app"))
		}, 5*time.Second).
			Should(BeFalse(), "both wait for the object with the finalizer")
		in := install(w.ns, "app")
		Eventually(ctx, func() (string, error) {
			err := get(ctx, in)
			return harness.ReadyCondition(in).Message, err
		}, soon).Should(ContainSubstring("example.com/hold"))

		patch(ctx, configMapOf(w.ns, "base"), `{"metadata":{"finalizers":null}}`)
		Eventually(ctx, func() bool { return absent(ctx, application(w.ns)) }, soon).Should(BeTrue())
		Expect(absent(ctx, configMapOf(w.ns, "base"))).To(BeTrue())
		Expect(absent(ctx, in)).To(BeTrue())
	}, SpecTimeout(15*time.Minute))
})
