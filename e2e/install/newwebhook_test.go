package install_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/cluster"
)

// podWebhook is the configuration of a webhook for the Pods of a namespace that its Service web
// answers. It has the name of the namespace.
func podWebhook(ns string) string {
	return fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %[1]s}
webhooks:
- name: pods.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  clientConfig: {service: {namespace: %[1]s, name: web}}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
`, ns)
}

var _ = Describe("A new webhook for Pods that Pods of its component answer", func() {
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n" +
		"spec: {selector: {app: web}, ports: [{port: 443}]}\n"

	It("is taken over without a wait if another tool has created it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: objectMeta("", ns)}
		Expect(plane.ApplyYAML(ctx, []byte(strings.Replace(podWebhook(ns), "Fail", "Ignore", 1)))).To(Succeed())
		Expect(get(ctx, configuration)).To(Succeed())
		before := configuration.UID
		publish(ctx, ns, "src", "main@sha1:1", tree(components("main"), map[string]string{"main/a.yaml": podWebhook(ns),
			"main/b.yaml": service, "main/c.yaml": deployment("web", cluster.FateNeverReady)}))
		in := newInstall(ctx, ns, "i", hourly, func(in *appsv1.KsctlInstall) { in.Spec.Adopt = appsv1.AdoptAlways })
		Eventually(ctx, func(g Gomega) {
			g.Expect(get(ctx, configuration)).To(Succeed())
			g.Expect(configuration.Labels).To(HaveKey(live.OwnerLabel))
		}, soon, "20ms").Should(Succeed(), "it is ours")
		Expect(configuration.UID).To(Equal(before))
		Expect(*configuration.Webhooks[0].FailurePolicy).To(Equal(admissionregistrationv1.Fail))
		reports(ctx, in, "Unknown", "Progressing", "Deployment "+ns+"/web is InProgress")
		deleteAndWait(ctx, in)
		Expect(absent(ctx, configuration)).To(BeTrue())
	})

	It("is created when they are ready, and alone waits for them", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: objectMeta("", ns)}
		publish(ctx, ns, "src", "main@sha1:1", tree(components("main", "after:main"), map[string]string{
			"main/a.yaml": podWebhook(ns), "main/b.yaml": service,
			"main/c.yaml": deployment("web", cluster.FateNeverReady),
			"main/d.yaml": configMap("beside", "1"), "after/a.yaml": configMap("after", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		reports(ctx, in, "Unknown", "Progressing", "ValidatingWebhookConfiguration "+ns+" waits until Deployment "+ns+
			"/web, which answers it, is ready", "Deployment "+ns+"/web is InProgress")
		Expect(absent(ctx, aConfigMap(ns, "beside"))).To(BeFalse(), "the other objects of the step are there")
		Expect(absent(ctx, configuration)).To(BeTrue())

		makePodsReady(ctx, ns) // it would have refused them
		atRevision(ctx, in, "main@sha1:1")
		Expect(absent(ctx, configuration)).To(BeFalse())
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeFalse())

		By("restoring it at once while they are not ready")
		makePodsUnready(ctx, ns)
		becomes(ctx, in, "Unknown", "Progressing")
		Expect(get(ctx, configuration)).To(Succeed())
		before := configuration.UID
		Expect(plane.Client().Delete(ctx, configuration)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			g.Expect(get(ctx, configuration)).To(Succeed())
			g.Expect(configuration.UID).NotTo(Equal(before))
		}, soon, "20ms").Should(Succeed(), "it is created again")
		deleteAndWait(ctx, in)
		Expect(absent(ctx, configuration)).To(BeTrue())
	})
})
