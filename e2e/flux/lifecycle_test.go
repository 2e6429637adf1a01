package flux_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	workloads "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ksctl/gitops/e2e/cluster"
)

// clusterOverride is an override that changes the ConfigMaps of one component.
const clusterOverride = `  components:
  - name: base
    override:
      patches:
      - target: {kind: ConfigMap}
        patch: |
          - {op: add, path: /data/site, value: e2e}
`

var _ = Describe("A Kustomization that waits for installs", func() {
	It("is Ready only when their objects are, and its dependents start then", func(ctx SpecContext) {
		files := content(map[string]string{"clusters/prod/install.yaml": installManifest,
			"clusters/after/after.yaml": configMap("after", "1")})
		By("an invalid stack")
		files["stacks/app/stack.yaml"] = strings.Replace(stack, "version: 1.0.0", "version: none", 1)
		w := newFixture(ctx, files)
		// It waits for its timeout, at least 30 seconds, before it applies another revision.
		k := w.sync(ctx, "cluster", "./clusters/prod", "timeout: 30s")
		after := w.sync(ctx, "after", "./clusters/after", "dependsOn: [{name: cluster}]")
		notReady(ctx, k, "HealthCheckFailed", "KsctlInstall/"+w.ns+"/app status: 'Failed'")
		notReady(ctx, after, "DependencyNotReady", "/cluster")

		By("an unready Deployment")
		files["stacks/app/stack.yaml"], files["stacks/app/base/web.yaml"] = stack, deployment(cluster.FateNeverReady)
		w.commit(ctx, files)
		notReady(ctx, k, "HealthCheckFailed", "KsctlInstall/"+w.ns+"/app status: 'InProgress'")
		notReady(ctx, after, "DependencyNotReady", "/cluster")
		Expect(absent(ctx, configMapOf(w.ns, "base"))).To(BeFalse(), "the ConfigMap is applied")
		Expect(absent(ctx, configMapOf(w.ns, "after"))).To(BeTrue(), "it waits for readiness, not only for the apply")

		By("a ready Deployment")
		files["stacks/app/base/web.yaml"] = deployment("")
		revision := w.commit(ctx, files)
		readyAt(ctx, after, revision)
		readyAt(ctx, k, revision)
		web := &workloads.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "web"}}
		Expect(get(ctx, web)).To(Succeed())
		Expect(web.Status.AvailableReplicas).To(BeEquivalentTo(1))
		Expect(absent(ctx, configMapOf(w.ns, "after"))).To(BeFalse())
	}, SpecTimeout(15*time.Minute))

	It("applies each commit, and removes in order what leaves the repository", func(ctx SpecContext) {
		files := content(map[string]string{"clusters/prod/install.yaml": installManifest})
		w := newFixture(ctx, files)
		k, in := w.sync(ctx, "cluster", "./clusters/prod", ""), w.object("KsctlInstall", "app")
		readyAt(ctx, k, w.head(ctx))
		Expect(value(ctx, w.ns, "extra", "value")).To(Equal("1"))

		By("a commit to the stack alone")
		files["stacks/app/extra/extra.yaml"] = configMap("extra", "2")
		revision := w.commit(ctx, files)
		readyAt(ctx, in, revision)
		Expect(value(ctx, w.ns, "extra", "value")).To(Equal("2"))
		readyAt(ctx, k, revision)

		By("a commit to the install")
		files["clusters/prod/install.yaml"] = installManifest + clusterOverride
		readyAt(ctx, k, w.commit(ctx, files))
		Expect(value(ctx, w.ns, "base", "site")).To(Equal("e2e"), "the Kustomization has waited for the install")

		By("removing the install from the repository")
		patch(ctx, configMapOf(w.ns, "extra"), `{"metadata":{"finalizers":["example.com/hold"]}}`)
		delete(files, "clusters/prod/install.yaml")
		revision = w.commit(ctx, files)
		Eventually(ctx, readySummary, soon).WithArguments(ctx, in).
			Should(ContainSubstring("example.com/hold"), "the install reports what blocks its removal")
		base := configMapOf(w.ns, "base")
		Expect(get(ctx, base)).To(Succeed())
		Expect(base.DeletionTimestamp).To(BeNil(), "a dependency is removed after its dependents")
		patch(ctx, configMapOf(w.ns, "extra"), `{"metadata":{"finalizers":null}}`)
		Eventually(ctx, absent, soon).WithArguments(ctx, in).Should(BeTrue())
		Expect(absent(ctx, configMapOf(w.ns, "extra"))).To(BeTrue())
		Expect(absent(ctx, base)).To(BeTrue())
		readyAt(ctx, k, revision)
	}, SpecTimeout(15*time.Minute))
})
