package argocd_test

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/config/argocd"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
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
metadata: {name: booth, annotations: {argocd.argoproj.io/sync-wave: "0"}}
spec:
  retryInterval: 1s
  sourceRef: {kind: KsctlSource, namespace: NAMESPACE, name: stacks}
  path: stacks
  stack: booth
  serviceAccountName: deployer
`

const booth = `apiVersion: ` + kindGroup + `/v1alpha1
kind: Booth
metadata:
  name: corner
  annotations:
    argocd.argoproj.io/sync-wave: "1"
    argocd.argoproj.io/sync-options: SkipDryRunOnMissingResource=true
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

// checkHealth adds a health check to the settings of Argo CD.
func checkHealth(ctx context.Context, key, check string) {
	GinkgoHelper()
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: argoNamespace, Name: "argocd-cm"}}
	change := func(ctx context.Context, value any) {
		GinkgoHelper()
		body, err := json.Marshal(map[string]any{"data": map[string]any{key: value}})
		Expect(err).NotTo(HaveOccurred())
		Expect(h.ControlPlane.Client().Patch(ctx, settings,
			client.RawPatch(types.MergePatchType, body))).To(Succeed())
	}
	change(ctx, check)
	DeferCleanup(func(ctx SpecContext) { change(ctx, nil) })
}

// operation returns phase and message of the last sync of an Application.
func operation(ctx context.Context, name string) (phase, message string) {
	GinkgoHelper()
	u := application(name)
	Expect(get(ctx, u)).To(Succeed())
	phase, _, _ = unstructured.NestedString(u.Object, "status", "operationState", "phase")
	message, _, _ = unstructured.NestedString(u.Object, "status", "operationState", "message")
	return phase, message
}

var _ = Describe("An Application with a KsctlKind and objects of its kind", func() {
	DescribeTable("serves the kind in the first wave, and is Healthy when the objects are "+
		"ready", func(ctx SpecContext, key, check string) {
		checkHealth(ctx, key, check)
		kind := ksctlKind("booth")
		w := newFixture(ctx, map[string]string{"synced/booth.yaml": booth})
		w.commit(ctx, map[string]string{"synced/kind.yaml": strings.Replace(boothKind, "NAMESPACE", w.ns, 1)})
		By("a stack that is not there yet")
		Expect(h.ControlPlane.ApplyYAML(ctx, []byte(strings.NewReplacer("metadata: {name: fleet}",
			"metadata: {name: stacks, namespace: "+w.ns+"}", "REPO", w.repo.URL()+"\n    ref: {branch: stacks}\n  "+
				"retryInterval: 1s").Replace(source)))).To(Succeed())
		w.sync(ctx, "")
		Eventually(ctx, func() string {
			phase, message := operation(ctx, w.ns)
			return phase + " " + message
		}, soon).Should(Equal("Running waiting for healthy state of apps.ksctl.com/KsctlKind/booth"))
		reports(ctx, w.ns, "KsctlKind", `^Synced Progressing: KsctlSource .*stacks has no artifact yet`)

		By("an object with an unready Deployment")
		w.commit(ctx, map[string]string{"stacks/booth/stack.yaml": boothStack,
			"stacks/booth/web.yaml": deployment("web", never)}, gitserver.OnBranch("stacks"))
		reports(ctx, w.ns, "Booth", `^Synced Progressing: component "main".*corner-web`)
		reports(ctx, w.ns, "KsctlKind", `^Synced Healthy: Booth\.`+kindGroup+` is served`)

		By("a ready Deployment")
		w.commit(ctx, map[string]string{"stacks/booth/web.yaml": deployment("web", "")}, gitserver.OnBranch("stacks"))
		becomes(ctx, w.ns, "Healthy")
		reports(ctx, w.ns, "Booth", `^Synced Healthy: Applied revision stacks@sha1:`)

		By("deleting the Application")
		Expect(h.ControlPlane.Client().Delete(ctx, application(w.ns))).To(Succeed())
		Eventually(ctx, func() bool { return absent(ctx, application(w.ns)) }, soon).Should(BeTrue())
		Expect(absent(ctx, kind)).To(BeTrue())
	},
		// kubectl ksctl kind argocd prints this one.
		Entry("with a health check of the kind", SpecTimeout(15*time.Minute),
			"resource.customizations.health."+kindGroup+"_Booth", argocd.Health),
		Entry("with a health check of all kinds of the group", SpecTimeout(15*time.Minute), "resource.customizations",
			kindGroup+"/*:\n  health.lua: |\n    "+strings.ReplaceAll(argocd.Health, "\n", "\n    ")+"\n"))
})
