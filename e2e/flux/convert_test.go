package flux_test

import (
	"context"
	"maps"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/harness"
)

// shopKustomization uses what a conversion has to keep: variables, metadata, a suffix and a patch.
const shopKustomization = `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: shop, namespace: NAMESPACE}
spec:
  interval: 1h
  retryInterval: 1s
  path: ./apps/shop
  prune: true
  serviceAccountName: deployer
  sourceRef: {kind: GitRepository, name: fleet}
  targetNamespace: NAMESPACE
  commonMetadata: {labels: {team: shop}}
  postBuild: {substitute: {greeting: 'good "morning"', replicas: "1"}}
  patches:
  - target: {kind: Deployment}
    patch: |
      - {op: add, path: /spec/minReadySeconds, value: 0}
`

// uidsOf returns the uids of objects by name.
func uidsOf(ctx context.Context, objects ...client.Object) map[string]types.UID {
	GinkgoHelper()
	out := map[string]types.UID{}
	for _, o := range objects {
		Expect(get(ctx, o)).To(Succeed())
		out[o.GetName()] = o.GetUID()
	}
	return out
}

var _ = Describe("Converting a Kustomization", func() {
	It("moves its objects, which keep their uids", func(ctx SpecContext) {
		files := map[string]string{
			"apps/shop/web.yaml": strings.Replace(deployment(""), "spec:\n", "spec:\n  replicas: ${replicas}\n", 1),
			"apps/shop/settings.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n" +
				"data: {greeting: '${greeting}', region: '${region:=eu}'}\n",
			"clusters/prod/none.yaml": configMap("synced", "1"),
		}
		w := newFixture(ctx, files)
		files["clusters/prod/shop.yaml"] = strings.ReplaceAll(shopKustomization, "NAMESPACE", w.ns)
		revision := w.commit(ctx, files)
		k, shop, in := w.sync(ctx, "cluster", "./clusters/prod", "wait: false"), w.object("Kustomization", "shop"),
			w.object("KsctlInstall", "shop")
		readyAt(ctx, shop, revision)
		was := awaitRunning(ctx, w.ns)
		uids := uidsOf(ctx, webOf(w.ns), configMapOf(w.ns, "settings"))
		Expect(value(ctx, w.ns, "settings", "greeting")).To(Equal(`good "morning"`))

		By("converting, and stopping the Kustomization")
		converted, err := harness.Convert(ctx, files, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(converted).To(And(HaveLen(2), HaveKey("clusters/prod/shop-install.yaml")))
		files["clusters/prod/shop.yaml"] = strings.Replace(files["clusters/prod/shop.yaml"], "  prune: true\n",
			"  prune: false\n  suspend: true\n", 1)
		readyAt(ctx, k, w.commit(ctx, files))

		By("adding the stack and the install")
		maps.Copy(files, converted)
		readyAt(ctx, in, w.commit(ctx, files))
		Expect(fluxReleased(ctx, w.ns)).To(Succeed())
		Expect(running(ctx, w.ns)).To(Equal(was))

		By("removing the Kustomization")
		delete(files, "clusters/prod/shop.yaml")
		files["clusters/prod/shop-install.yaml"] = strings.Replace(files["clusters/prod/shop-install.yaml"],
			"  adopt: Always\n", "", 1)
		revision = w.commit(ctx, files)
		readyAt(ctx, k, revision)
		Eventually(ctx, absent, soon).WithArguments(ctx, shop).Should(BeTrue())
		readyAt(ctx, in, revision)
		Expect(running(ctx, w.ns)).To(Equal(was))
		Expect(uidsOf(ctx, webOf(w.ns), configMapOf(w.ns, "settings"))).To(Equal(uids))
		Expect(value(ctx, w.ns, "settings", "region")).To(Equal("eu"))
	}, SpecTimeout(10*time.Minute))
})
