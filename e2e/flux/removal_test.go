package flux_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/suite"
)

const removeExtraManifest = `apiVersion: apps.ksctl.com/v1
kind: KsctlRemove
metadata: {name: without-extra}
spec:
  interval: 1h
  installRef: {name: app}
  components: [extra]
`

var _ = Describe("A Kustomization of a KsctlInstall and a KsctlRemove", suite.Safety, func() {
	It("waits for both, which do not revert each other", func(ctx SpecContext) {
		files := content(map[string]string{"clusters/prod/install.yaml": installManifest})
		w := newFixture(ctx, files)
		base, extra := configMapOf(w.ns, "base"), configMapOf(w.ns, "extra")
		in := w.object("KsctlInstall", "app")

		By("a KsctlInstall")
		k := w.sync(ctx, "cluster", "./clusters/prod", "")
		readyAt(ctx, k, w.head(ctx))
		Expect(absent(ctx, base)).To(BeFalse(), "it is Ready when the objects of the install are")
		Expect(absent(ctx, extra)).To(BeFalse())

		By("a KsctlRemove of a component beside it")
		files["clusters/prod/remove.yaml"] = removeExtraManifest
		readyAt(ctx, k, w.commit(ctx, files))
		Expect(absent(ctx, extra)).To(BeTrue(), "it is Ready when the component is removed")
		Expect(absent(ctx, base)).To(BeFalse())
		Eventually(ctx, readySummary, soon).WithArguments(ctx, in).Should(ContainSubstring(" True RemovedByRequest: "))

		By("no writes while Flux reconciles both repeatedly")
		Eventually(ctx, func(g Gomega) {
			mark, err := h.ControlPlane.AuditMark(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			for range 3 {
				at := requestReconcile(ctx, k)
				Eventually(ctx, lastHandledRequest, soon).WithArguments(ctx, k).Should(Equal(at))
				Eventually(ctx, readySummary, soon).WithArguments(ctx, k).Should(ContainSubstring(" True "))
			}
			requests, err := h.ControlPlane.AuditSince(ctx, mark)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(requests.Where(cluster.ByUser(cluster.ServiceAccountUser(fluxNamespace, fluxAccount)),
				cluster.Resource("ksctlremoves"), cluster.Named("without-extra"))).
				NotTo(BeEmpty(), "Flux reconciles it meanwhile")
			ours := requests.Where(cluster.Write, cluster.InNamespace(w.ns)).Without(cluster.DryRun).
				Without(cluster.Lease)
			for _, resource := range []string{"ksctlinstalls/*", "ksctlremoves/*", "configmaps"} {
				g.Expect(ours.Where(cluster.Resource(resource))).To(BeEmpty())
			}
		}, soon).Should(Succeed(), "nothing is written when both are done")
		Expect(absent(ctx, extra)).To(BeTrue())

		By("removing the KsctlRemove from the repository")
		delete(files, "clusters/prod/remove.yaml")
		readyAt(ctx, k, w.commit(ctx, files))
		Eventually(ctx, absent, soon).WithArguments(ctx, extra).Should(BeFalse(), "the install applies it again")

		By("removing everything from the repository")
		delete(files, "clusters/prod/install.yaml")
		readyAt(ctx, k, w.commit(ctx, files))
		Eventually(ctx, absent, soon).WithArguments(ctx, in).Should(BeTrue(), "the install is pruned")
		Expect(absent(ctx, base)).To(BeTrue())
		Expect(absent(ctx, extra)).To(BeTrue())
	}, SpecTimeout(15*time.Minute))
})
