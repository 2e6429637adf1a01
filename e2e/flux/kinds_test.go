package flux_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	workloads "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
)

const boothStack = `apiVersion: apps.ksctl.com/v1
kind: Stack
metadata: {name: booth}
spec:
  version: 1.0.0
  components: [{name: main, manifests: [web.yaml]}]
  serves:
    group: ` + kindGroup + `
    kind: Booth
    versions: [{name: v1alpha1}]
    install:
      retryInterval: 1s
      components: [{name: main, namePrefix: {expr: self.metadata.name + '-'}}]
`

const boothKind = `apiVersion: apps.ksctl.com/v1
kind: KsctlKind
metadata: {name: booth}
spec:
  retryInterval: 1s
  sourceRef: {kind: GitRepository, namespace: NAMESPACE, name: fleet}
  path: stacks
  stack: booth
  serviceAccountName: ` + harness.Deployer + "\n"

const booth = `apiVersion: ` + kindGroup + `/v1alpha1
kind: Booth
metadata: {name: corner}
`

// ksctlKind returns a KsctlKind without content. What is left of it is removed at the end of the
// spec.
func ksctlKind(name string) *appsv1.KsctlKind {
	k := &appsv1.KsctlKind{ObjectMeta: metav1.ObjectMeta{Name: name}}
	DeferCleanup(func(ctx SpecContext) {
		if absent(ctx, k) {
			return
		}
		patch(ctx, k, `{"spec":{"deletionPolicy":"Delete"}}`)
		Expect(client.IgnoreNotFound(h.ControlPlane.Client().Delete(ctx, k))).To(Succeed())
		Eventually(ctx, absent, soon).WithArguments(ctx, k).Should(BeTrue(), "the kind is removed")
	})
	return k
}

var _ = Describe("A repository with a KsctlKind and objects of its kind", func() {
	It("serves the kind first, and its Kustomization is Ready only when the objects are", func(ctx SpecContext) {
		ns, err := h.Namespace(ctx, "flux")
		Expect(err).NotTo(HaveOccurred())
		kind := ksctlKind("booth")
		files := content(map[string]string{"stacks/booth/stack.yaml": strings.Replace(boothStack, "kind: Booth",
			"kind: booth", 1), "stacks/booth/web.yaml": deployment(cluster.FateNeverReady),
			"clusters/kinds/kind.yaml":    strings.Replace(boothKind, "NAMESPACE", ns, 1),
			"clusters/kinds/none.yaml":    configMap("kinds", "1"),
			"clusters/objects/booth.yaml": booth, "clusters/objects/none.yaml": configMap("objects", "1")})
		By("a stack with an invalid kind")
		w := newFixtureIn(ctx, ns, files)
		objects := w.sync(ctx, "objects", "./clusters/objects", "{dependsOn: [{name: kinds}], timeout: 30s}")
		kinds := w.sync(ctx, "kinds", "./clusters/kinds", "timeout: 30s")
		notReady(ctx, kinds, "HealthCheckFailed", "KsctlKind/booth status: 'Failed'")
		notReady(ctx, objects, "DependencyNotReady", "/kinds")

		By("an object with an unready Deployment")
		files["stacks/booth/stack.yaml"] = boothStack
		revision := w.commit(ctx, files)
		readyAt(ctx, kinds, revision)
		notReady(ctx, objects, "HealthCheckFailed", "Booth/"+w.ns+"/corner status: 'InProgress'")

		By("a ready Deployment")
		files["stacks/booth/web.yaml"] = deployment("")
		revision = w.commit(ctx, files)
		corner := w.object("Booth", "corner")
		readyAt(ctx, corner, revision)
		readyAt(ctx, objects, revision)

		By("removing both in one commit")
		delete(files, "clusters/kinds/kind.yaml")
		delete(files, "clusters/objects/booth.yaml")
		revision = w.commit(ctx, files)
		readyAt(ctx, objects, revision)
		Eventually(ctx, absent, soon).WithArguments(ctx, kind).Should(BeTrue(), "the kind is removed after its object")
		Expect(deployments(ctx, w.ns)).To(BeZero(), "the object is removed with what it installed")
	}, SpecTimeout(15*time.Minute))
})

// deployments returns the number of Deployments in a namespace.
func deployments(ctx context.Context, ns string) int {
	GinkgoHelper()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(workloads.SchemeGroupVersion.WithKind("DeploymentList"))
	Expect(h.ControlPlane.Client().List(ctx, list, client.InNamespace(ns))).To(Succeed())
	return len(list.Items)
}
