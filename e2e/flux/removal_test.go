package flux_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/suite"
)

const krmExtra = `apiVersion: apps.ksctl.com/v1
kind: KsctlRemove
metadata: {name: without-extra}
spec:
  interval: 1h
  installRef: {name: app}
  components: [extra]
`

var _ = Describe("A Kustomization of an install and a removal", suite.Safety, func() {
	It("waits for both, which do not fight", func(ctx SpecContext) {
		files := content(map[string]string{"clusters/prod/install.yaml": kinInstall})
		w := newWorld(ctx, files)
		base, extra := configMapOf(w.ns, "base"), configMapOf(w.ns, "extra")
		in := w.object("KsctlInstall", "app")

		By("an install")
		k := w.sync(ctx, "cluster", "./clusters/prod", "")
		readyAt(ctx, k, w.head(ctx))
		Expect(gone(ctx, base)).To(BeFalse(), "it is Ready when what it installs is")
		Expect(gone(ctx, extra)).To(BeFalse())

		By("a removal of a component beside it")
		files["clusters/prod/remove.yaml"] = krmExtra
		readyAt(ctx, k, w.commit(ctx, files))
		Expect(gone(ctx, extra)).To(BeTrue(), "it is Ready when the component is gone")
		Expect(gone(ctx, base)).To(BeFalse())
		Eventually(ctx, told, soon).WithArguments(ctx, in).Should(ContainSubstring(" True RemovedByRequest: "))

		By("neither writing against the other, while Flux applies both again and again")
		Eventually(ctx, func(g Gomega) {
			mark, err := h.Plane.AuditMark(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			for range 3 {
				at := ask(ctx, k)
				Eventually(ctx, answered, soon).WithArguments(ctx, k).Should(Equal(at))
				Eventually(ctx, told, soon).WithArguments(ctx, k).Should(ContainSubstring(" True "))
			}
			requests, err := h.Plane.AuditSince(ctx, mark)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(requests.Where(cluster.By(cluster.ServiceAccountUser(fluxNamespace, fluxAccount)), cluster.Resource("ksctlremoves"), cluster.Named("without-extra"))).
				NotTo(BeEmpty(), "Flux looks at it meanwhile")
			ours := requests.Where(cluster.Write, cluster.In(w.ns)).Without(cluster.DryRun).Without(cluster.Lease)
			for _, resource := range []string{"ksctlinstalls/*", "ksctlremoves/*", "configmaps"} {
				g.Expect(ours.Where(cluster.Resource(resource))).To(BeEmpty())
			}
		}, soon).Should(Succeed(), "nothing is written once both are settled")
		Expect(gone(ctx, extra)).To(BeTrue())

		By("the removal leaving the repository")
		delete(files, "clusters/prod/remove.yaml")
		readyAt(ctx, k, w.commit(ctx, files))
		Eventually(ctx, gone, soon).WithArguments(ctx, extra).Should(BeFalse(), "the install brings it back")

		By("everything leaving the repository")
		delete(files, "clusters/prod/install.yaml")
		readyAt(ctx, k, w.commit(ctx, files))
		Eventually(ctx, gone, soon).WithArguments(ctx, in).Should(BeTrue(), "the install is pruned")
		Expect(gone(ctx, base)).To(BeTrue())
		Expect(gone(ctx, extra)).To(BeTrue())
	}, SpecTimeout(15*time.Minute))
})
