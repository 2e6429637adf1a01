package flux_test

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/cluster/registry"
)

var _ = Describe("An OCIRepository", func() {
	It("that is pinned by digest is applied at that digest, also when its tag moves", func(ctx SpecContext) {
		server, err := registry.New()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(server.Close)
		push := func(value string) string {
			GinkgoHelper()
			digest, err := server.Push(ctx, "team/stacks", "latest",
				artifacts.Files(map[string]string{"stacks/app/stack.yaml": stack,
					"stacks/app/base/base.yaml":   configMap("base", value),
					"stacks/app/extra/extra.yaml": configMap("extra", value)}), "main@sha1:"+value)
			Expect(err).NotTo(HaveOccurred())
			return digest
		}
		pinned := func(digest string) map[string]string {
			return map[string]string{"clusters/prod/install.yaml": strings.ReplaceAll(installManifest,
				"kind: GitRepository, name: fleet", "kind: OCIRepository, name: stacks"),
				"clusters/prod/stacks.yaml": fmt.Sprintf(`apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: stacks}
spec:
  url: %s
  ref: {digest: %q}
  insecure: true
  interval: 1h
`, server.URL("team/stacks"), digest)}
		}
		first := push("1")
		w := newFixture(ctx, pinned(first))
		k, source, in := w.sync(ctx, "cluster", "./clusters/prod", ""), w.object("OCIRepository", "stacks"),
			w.object("KsctlInstall", "app")
		readyAt(ctx, k, w.head(ctx))
		Eventually(ctx, readySummary, soon).WithArguments(ctx, in).Should(ContainSubstring(first + " True "))
		Expect(value(ctx, w.ns, "base", "value")).To(Equal("1"))

		By("moving the tag")
		second := push("2")
		at := requestReconcile(ctx, source)
		Eventually(ctx, lastHandledRequest, soon).WithArguments(ctx, source).Should(Equal(at))
		at = requestReconcile(ctx, in)
		Eventually(ctx, lastHandledRequest, soon).WithArguments(ctx, in).Should(Equal(at))
		Eventually(ctx, readySummary, soon).WithArguments(ctx, in).Should(ContainSubstring(first + " True "))
		Expect(value(ctx, w.ns, "base", "value")).To(Equal("1"))

		By("a commit with the other digest")
		readyAt(ctx, k, w.commit(ctx, pinned(second)))
		Eventually(ctx, readySummary, soon).WithArguments(ctx, in).Should(ContainSubstring(second + " True "))
		Expect(value(ctx, w.ns, "base", "value")).To(Equal("2"))
	}, SpecTimeout(15*time.Minute))
})
