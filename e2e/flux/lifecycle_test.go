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

// site is an override that changes the ConfigMaps of one component.
const site = `  components:
  - name: base
    override:
      patches:
      - target: {kind: ConfigMap}
        patch: |
          - {op: add, path: /data/site, value: e2e}
`

var _ = Describe("A Kustomization that waits for installs", func() {
	It("is Ready only when what they install is, and one that depends on it begins then", func(ctx SpecContext) {
		files := content(map[string]string{"clusters/prod/install.yaml": kinInstall, "clusters/after/after.yaml": configMap("after", "1")})
		By("what can't be installed")
		files["stacks/app/stack.yaml"] = strings.Replace(stack, "version: 1.0.0", "version: none", 1)
		w := newWorld(ctx, files)
		// It waits as long as its timeout, 30 seconds at least, before it looks at another revision.
		k := w.sync(ctx, "cluster", "./clusters/prod", "timeout: 30s")
		after := w.sync(ctx, "after", "./clusters/after", "dependsOn: [{name: cluster}]")
		refuses(ctx, k, "HealthCheckFailed", "KsctlInstall/"+w.ns+"/app status: 'Failed'")
		refuses(ctx, after, "DependencyNotReady", "/cluster")

		By("what is not ready")
		files["stacks/app/stack.yaml"], files["stacks/app/base/web.yaml"] = stack, deployment(cluster.FateNeverReady)
		w.commit(ctx, files)
		refuses(ctx, k, "HealthCheckFailed", "KsctlInstall/"+w.ns+"/app status: 'InProgress'")
		refuses(ctx, after, "DependencyNotReady", "/cluster")
		Expect(gone(ctx, configMapOf(w.ns, "base"))).To(BeFalse(), "it is applied")
		Expect(gone(ctx, configMapOf(w.ns, "after"))).To(BeTrue(), "it waits for workloads, not for a file that was applied")

		By("what is ready")
		files["stacks/app/base/web.yaml"] = deployment("")
		revision := w.commit(ctx, files)
		readyAt(ctx, after, revision)
		readyAt(ctx, k, revision)
		web := &workloads.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "web"}}
		Expect(get(ctx, web)).To(Succeed())
		Expect(web.Status.AvailableReplicas).To(BeEquivalentTo(1))
		Expect(gone(ctx, configMapOf(w.ns, "after"))).To(BeFalse())
	}, SpecTimeout(15*time.Minute))

	It("brings each commit to the cluster, and takes away in order what leaves the repository", func(ctx SpecContext) {
		files := content(map[string]string{"clusters/prod/install.yaml": kinInstall})
		w := newWorld(ctx, files)
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
		files["clusters/prod/install.yaml"] = kinInstall + site
		readyAt(ctx, k, w.commit(ctx, files))
		Expect(value(ctx, w.ns, "base", "site")).To(Equal("e2e"), "the Kustomization has waited for it")

		By("the install leaving the repository")
		patch(ctx, configMapOf(w.ns, "extra"), `{"metadata":{"finalizers":["example.com/hold"]}}`)
		delete(files, "clusters/prod/install.yaml")
		revision = w.commit(ctx, files)
		Eventually(ctx, told, soon).WithArguments(ctx, in).Should(ContainSubstring("example.com/hold"), "it says what holds it")
		base := configMapOf(w.ns, "base")
		Expect(get(ctx, base)).To(Succeed())
		Expect(base.DeletionTimestamp).To(BeNil(), "what others depend on goes after them")
		patch(ctx, configMapOf(w.ns, "extra"), `{"metadata":{"finalizers":null}}`)
		Eventually(ctx, gone, soon).WithArguments(ctx, in).Should(BeTrue())
		Expect(gone(ctx, configMapOf(w.ns, "extra"))).To(BeTrue())
		Expect(gone(ctx, base)).To(BeTrue())
		readyAt(ctx, k, revision)
	}, SpecTimeout(15*time.Minute))
})
