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

// patch changes an object as somebody at the cluster would.
func patch(ctx context.Context, o client.Object, body string) {
	GinkgoHelper()
	Expect(h.Plane.Client().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(body)), client.FieldOwner("somebody"))).To(Succeed())
}

var _ = Describe("An Application of our kinds", func() {
	DescribeTable("stays Synced, and shows nothing but them", func(ctx SpecContext, annotations string, options ...string) {
		w := newWorld(ctx, nil)
		w.commit(ctx, content(w.ns, map[string]string{"source.yaml": source, "install.yaml": kinInstall, "remove.yaml": krmExtra}))
		w.sync(ctx, annotations, options...)
		is(ctx, w.ns, "Healthy")
		Expect(gone(ctx, configMapOf(w.ns, "base"))).To(BeFalse(), "it is Healthy when what is installed is there")

		By("looking at it again and again, while nobody writes")
		Eventually(ctx, func(g Gomega) {
			mark, err := h.Plane.AuditMark(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			for range 3 {
				refresh(ctx, w.ns)
				g.Consistently(ctx, func() (string, error) {
					s, err := statusOf(ctx, w.ns)
					return s.Sync.Status + " " + s.Health.Status, err
				}, 2*time.Second).Should(Equal("Synced Healthy"))
			}
			requests, err := h.Plane.AuditSince(ctx, mark)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(requests.Where(cluster.Write, cluster.In(w.ns)).Without(cluster.DryRun).Without(cluster.Lease)).To(BeEmpty())
		}, soon).Should(Succeed())

		s, err := statusOf(ctx, w.ns)
		Expect(err).NotTo(HaveOccurred())
		var kinds []string
		for _, r := range s.Resources {
			kinds = append(kinds, r.Kind)
		}
		Expect(kinds).To(ConsistOf("KsctlInstall", "KsctlRemove", "KsctlSource"), "no child counts as its own")
		Expect(shows(w.ns)).To(ConsistOf("KsctlInstall", "KsctlRemove", "KsctlSource"), "nor is it in the tree")
	},
		Entry("with a client-side diff", SpecTimeout(15*time.Minute), ""),
		Entry("with a server-side diff", SpecTimeout(15*time.Minute), `argocd.argoproj.io/compare-options: "ServerSideDiff=true"`, "ServerSideApply=true"),
		Entry("with a server-side apply and a client-side diff", SpecTimeout(15*time.Minute), "", "ServerSideApply=true"))

	It("is as healthy as they are, with their message", func(ctx SpecContext) {
		w := newWorld(ctx, content("", map[string]string{"source.yaml": source, "install.yaml": kinInstall}))
		w.commit(ctx, map[string]string{"stacks/app/base/web.yaml": deployment("web", never)})
		w.sync(ctx, "")
		By("Progressing while something is not ready")
		is(ctx, w.ns, "Progressing")
		says(ctx, w.ns, "KsctlInstall", `^Synced Progressing: component "base".*web`)

		By("Degraded when it can't be")
		w.commit(ctx, map[string]string{"stacks/app/stack.yaml": strings.ReplaceAll(stack, "version: 1.0.0", "version: none")})
		says(ctx, w.ns, "KsctlInstall", `^Synced Degraded: .*stack\.yaml:5.*version`)
		is(ctx, w.ns, "Degraded")

		By("Healthy when all is well")
		w.commit(ctx, map[string]string{"stacks/app/stack.yaml": stack, "stacks/app/base/web.yaml": deployment("web", "")})
		is(ctx, w.ns, "Healthy")
		says(ctx, w.ns, "KsctlInstall", `^Synced Healthy: Applied revision main@sha1:`)

		By("Suspended when it is suspended in the repository")
		w.commit(ctx, map[string]string{"synced/install.yaml": kinInstall + "  suspend: true\n"})
		refresh(ctx, w.ns)
		is(ctx, w.ns, "Suspended")

		By("Healthy when it is resumed")
		w.commit(ctx, map[string]string{"synced/install.yaml": kinInstall})
		refresh(ctx, w.ns)
		is(ctx, w.ns, "Healthy")
	}, SpecTimeout(15*time.Minute))

	It("heals what somebody changes, and prunes with all that was installed", func(ctx SpecContext) {
		w := newWorld(ctx, content("", map[string]string{"source.yaml": source, "install.yaml": kinInstall}))
		w.sync(ctx, "")
		is(ctx, w.ns, "Healthy")

		By("a change of a spec")
		in := install(w.ns, "app")
		patch(ctx, in, `{"spec":{"interval":"2m","stack":"other"}}`)
		Eventually(ctx, func(g Gomega) {
			g.Expect(get(ctx, in)).To(Succeed())
			g.Expect(in.Spec.Stack).To(Equal("app"))
		}, soon).Should(Succeed())
		is(ctx, w.ns, "Healthy")

		By("the deletion of an object")
		uid := in.UID
		Expect(h.Plane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			g.Expect(get(ctx, in)).To(Succeed())
			g.Expect(in.UID).NotTo(Equal(uid))
		}, soon).Should(Succeed(), "it comes back")
		Eventually(ctx, func() bool { return gone(ctx, configMapOf(w.ns, "base")) }, soon).Should(BeFalse(), "and so does what it installs")
		is(ctx, w.ns, "Healthy")

		By("the install leaving the repository")
		w.commit(ctx, nil, gitserver.Delete("synced/install.yaml"))
		refresh(ctx, w.ns)
		Eventually(ctx, func() bool { return gone(ctx, in) }, soon).Should(BeTrue())
		Expect(gone(ctx, configMapOf(w.ns, "base"))).To(BeTrue())
		Expect(gone(ctx, configMapOf(w.ns, "extra"))).To(BeTrue())
		is(ctx, w.ns, "Healthy")
	}, SpecTimeout(15*time.Minute))

	It("has waves that wait for an install", func(ctx SpecContext) {
		inWave := func(name string, wave int) string {
			return strings.Replace(kinInstall, "metadata: {name: app}",
				fmt.Sprintf("metadata: {name: %s, annotations: {argocd.argoproj.io/sync-wave: %q}}\n", name, fmt.Sprint(wave)), 1)
		}
		second := strings.ReplaceAll(inWave("second", 2), "stack: app", "stack: second")
		w := newWorld(ctx, content("", map[string]string{"source.yaml": source, "first.yaml": inWave("first", 1), "second.yaml": second}))
		w.commit(ctx, map[string]string{"stacks/app/base/web.yaml": deployment("web", never),
			"stacks/second/stack.yaml":     strings.NewReplacer("name: app", "name: second").Replace(stack),
			"stacks/second/base/base.yaml": configMap("second-base", ""), "stacks/second/extra/extra.yaml": configMap("second-extra", "")})
		w.sync(ctx, "")
		says(ctx, w.ns, "KsctlInstall", `^Synced Progressing: component "base".*web`)
		Consistently(ctx, func() bool { return gone(ctx, install(w.ns, "second")) }, 5*time.Second).Should(BeTrue(), "its wave has not begun")

		w.commit(ctx, map[string]string{"stacks/app/base/web.yaml": deployment("web", "")})
		is(ctx, w.ns, "Healthy")
		Expect(gone(ctx, configMapOf(w.ns, "second-extra"))).To(BeFalse())
	}, SpecTimeout(15*time.Minute))

	It("goes when what it installed has gone", func(ctx SpecContext) {
		w := newWorld(ctx, content("", map[string]string{"source.yaml": source, "install.yaml": kinInstall}))
		w.sync(ctx, "")
		is(ctx, w.ns, "Healthy")
		patch(ctx, configMapOf(w.ns, "base"), `{"metadata":{"finalizers":["example.com/hold"]}}`)
		Expect(h.Plane.Client().Delete(ctx, application(w.ns))).To(Succeed())

		Eventually(ctx, func() bool { return gone(ctx, configMapOf(w.ns, "extra")) }, soon).Should(BeTrue(), "the removal goes on")
		Consistently(ctx, func() bool { return gone(ctx, application(w.ns)) || gone(ctx, install(w.ns, "app")) }, 5*time.Second).
			Should(BeFalse(), "both wait for what is held")
		in := install(w.ns, "app")
		Eventually(ctx, func() (string, error) { err := get(ctx, in); return harness.Ready(in).Message, err }, soon).Should(ContainSubstring("example.com/hold"))

		patch(ctx, configMapOf(w.ns, "base"), `{"metadata":{"finalizers":null}}`)
		Eventually(ctx, func() bool { return gone(ctx, application(w.ns)) }, soon).Should(BeTrue())
		Expect(gone(ctx, configMapOf(w.ns, "base"))).To(BeTrue())
		Expect(gone(ctx, in)).To(BeTrue())
	}, SpecTimeout(15*time.Minute))
})
