package install_test

import (
	"encoding/base64"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/cluster"
)

var _ = Describe("A field that others fill", func() {
	It("is left to them: the rules of an aggregated role, and the certificates of a webhook", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(oneComponent, map[string]string{"main/all.yaml": fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[1]s-all}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {part-of: %[1]s}}]}
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[1]s-part, labels: {part-of: %[1]s}}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %[1]s}
webhooks:
- name: pods.example.com
  clientConfig: {caBundle: "", service: {namespace: %[1]s, name: none}}
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  namespaceSelector: {matchLabels: {no: namespace}}
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
`, ns)}))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")

		role := &rbacv1.ClusterRole{}
		Eventually(ctx, func() ([]rbacv1.PolicyRule, error) {
			err := plane.Client().Get(ctx, client.ObjectKey{Name: ns + "-all"}, role)
			return role.Rules, err
		}, soon).Should(HaveLen(1), "the control plane writes the rules")
		hook := &admissionv1.ValidatingWebhookConfiguration{}
		Expect(plane.Client().Get(ctx, client.ObjectKey{Name: ns}, hook)).To(Succeed())
		ca := base64.StdEncoding.EncodeToString(plane.Config().CAData)
		Expect(plane.Client().Patch(ctx, hook, client.RawPatch(types.JSONPatchType,
			fmt.Appendf(nil, `[{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":%q}]`, ca)),
			client.FieldOwner("injector"))).To(Succeed())

		mark := auditMark(ctx)
		requestReconcile(ctx, in, "after they filled their fields")
		becomes(ctx, in, "True", "")
		Consistently(ctx, func() int {
			return len(requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Write))
		}, quiet, "500ms").Should(BeZero())
		Expect(plane.Client().Get(ctx, client.ObjectKey{Name: ns}, hook)).To(Succeed())
		Expect(hook.Webhooks[0].ClientConfig.CABundle).NotTo(BeEmpty())
	})
})
