package cost_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
)

var _ = Describe("Cost is proportional to change", func() {
	It("with one status write per requestedAt of each of 100 installs, and no request "+
		"afterwards", func(ctx SpecContext) {
		const n = 100
		ns, err := h.Namespace(ctx, "hundred")
		Expect(err).NotTo(HaveOccurred())
		c := startController(ns)
		var installs []*appsv1.KsctlInstall
		for i := range n {
			name := fmt.Sprintf("i%d", i)
			src := fmt.Sprintf("src%d", i)
			Expect(h.PublishSource(ctx, ns, src, "r1",
				harness.SourceTree(harness.OneComponent, map[string]string{"main/a.yaml": configMap(name, "1")}))).
				To(Succeed())
			in := harness.NewInstall(ns, name)
			in.Labels = map[string]string{"spec": ns}
			in.Spec.SourceRef.Name = src
			Expect(h.ControlPlane.Client().Create(ctx, in)).To(Succeed())
			installs = append(installs, in)
		}
		for _, in := range installs {
			atRevision(ctx, in, "r1")
		}
		expectIdle := func(when string) {
			GinkgoHelper()
			requestAll(ctx, installs, when)
			mark, err := h.ControlPlane.AuditMark(ctx)
			Expect(err).NotTo(HaveOccurred())
			requestAll(ctx, installs, when+" again")
			requests, err := h.ControlPlane.AuditSince(ctx, mark)
			Expect(err).NotTo(HaveOccurred())
			discovery := requests.Where(cluster.ByUser(cluster.ServiceAccountUser(harness.SystemNamespace,
				harness.ServiceAccount)), cluster.Discovery)
			Expect(len(discovery)).To(BeNumerically("<", n), "not for each install: %s", discovery)
			requests = ours(requests)
			Expect(len(requests.Where(cluster.Verb("patch"), cluster.Resource("ksctlinstalls/status")))).
				To(Equal(n), requests.String())
			Expect(len(requests)).To(Equal(n), requests.String())
		}
		expectIdle("first start")
		Expect(c.Stop()).To(Succeed())
		startController(ns)
		expectIdle("second start")
	})

	It("with one write of the object and one of the status when one of 5,000 objects changes, also after a "+
		"restart", func(ctx SpecContext) {
		const n = 5000
		ns, err := h.Namespace(ctx, "many")
		Expect(err).NotTo(HaveOccurred())
		files := map[string]string{}
		for i := range n {
			files[fmt.Sprintf("main/%d.yaml", i)] = configMap(fmt.Sprintf("c%d", i), "1")
		}
		Expect(h.PublishSource(ctx, ns, "src", "r1", harness.SourceTree(harness.OneComponent, files))).To(Succeed())
		c := startController(ns)
		in := install(ctx, ns, ns, "i")
		began := time.Now()
		atRevisionWithin(ctx, long, in, "r1")
		AddReportEntry("first apply of 5,000", time.Since(began).Round(time.Millisecond).String(),
			ReportEntryVisibilityAlways)
		Expect(in.Status.Inventory.Chunks).To(HaveLen(5))

		change := func(revision string) {
			GinkgoHelper()
			files["main/7.yaml"] = configMap("c7", revision)
			mark, err := h.ControlPlane.AuditMark(ctx)
			Expect(err).NotTo(HaveOccurred())
			began := time.Now()
			Expect(h.PublishSource(ctx, ns, "src", revision, harness.SourceTree(harness.OneComponent, files))).
				To(Succeed())
			atRevision(ctx, in, revision)
			AddReportEntry("one change among 5,000", time.Since(began).Round(time.Millisecond).String(),
				ReportEntryVisibilityAlways)
			requests, err := h.ControlPlane.AuditSince(ctx, mark)
			Expect(err).NotTo(HaveOccurred())
			requests = ours(requests)
			Expect(len(requests)).To(Equal(2), requests.String())
			Expect(len(requests.Where(cluster.Verb("patch"), cluster.Resource("configmaps"), cluster.Named("c7")))).
				To(Equal(1), requests.String())
			Expect(len(requests.Where(cluster.Verb("patch"), cluster.Resource("ksctlinstalls/status")))).
				To(Equal(1), requests.String())
		}
		change("r2")
		Expect(c.Stop()).To(Succeed())
		startController(ns)
		requestAll(ctx, []*appsv1.KsctlInstall{in}, "second start")
		change("r3")

		mark, err := h.ControlPlane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		began = time.Now()
		Expect(h.ControlPlane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, func() bool {
			return h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(in), in) != nil
		}, long, 50*time.Millisecond).Should(BeTrue(), "5,000 objects are removed")
		took := time.Since(began)
		AddReportEntry("removal of 5,000", took.Round(time.Millisecond).String(), ReportEntryVisibilityAlways)
		requests, err := h.ControlPlane.AuditSince(ctx, mark)
		Expect(err).NotTo(HaveOccurred())
		requests = ours(requests)
		objects := requests.Where(cluster.Resource("configmaps"))
		// Each object is deleted, and the response shows that it is gone. The margin is for
		// requests that a busy API server rejected the first time.
		Expect(len(objects)).To(BeNumerically("~", n, 5), objects.Without(cluster.Verb("delete")).String())
		Expect(len(objects.Where(cluster.Verb("delete")))).To(BeNumerically(">=", n))
		Expect(len(requests)).To(BeNumerically("<", n+25+int(took/time.Second)),
			"inventory chunks, the status at most once a second, and the finalizer")
	})
})
