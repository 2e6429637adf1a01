package install_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
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

// webhookTemplate is the template of a webhook configuration with a placeholder, as of kubebuilder.
const webhookTemplate = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: "{{ .Release.Namespace }}-%[1]s"}
webhooks:
- name: pods.example.com
  clientConfig: {caBundle: Cg==, service: {namespace: "{{ .Release.Namespace }}", name: none}}
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  timeoutSeconds: {{ .Values.timeout }}
  namespaceSelector: {matchLabels: {no: namespace}}
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
---
`

type webhookConfiguration = admissionv1.ValidatingWebhookConfiguration

// injectCA starts a CA injector that writes the caBundle of a webhook configuration whenever it is
// another one, at most the given number of times. It returns the number of its writes.
func injectCA(ctx context.Context, name string, limit int64,
	write func(context.Context, *webhookConfiguration) error) *atomic.Int64 {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(ctx)
	w, err := plane.Client().Watch(ctx, &admissionv1.ValidatingWebhookConfigurationList{},
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", name)})
	Expect(err).NotTo(HaveOccurred())
	injected, done := &atomic.Int64{}, make(chan struct{})
	DeferCleanup(func() { cancel(); w.Stop(); <-done })
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			hook, ok := e.Object.(*webhookConfiguration)
			if !ok || e.Type == watch.Deleted || injected.Load() >= limit || hasCA(hook) {
				continue
			}
			if write(ctx, hook) == nil { // a conflict is followed by another event
				injected.Add(1)
			}
		}
	}()
	return injected
}

func hasCA(hook *webhookConfiguration) bool {
	return bytes.Equal(hook.Webhooks[0].ClientConfig.CABundle, plane.Config().CAData)
}

var _ = Describe("A CA injector", func() {
	It("may update a webhook configuration of a chart, apply to it without force, or write it only once", func(
		ctx SpecContext) {
		update := func(ctx context.Context, hook *webhookConfiguration) error {
			hook.Webhooks[0].ClientConfig.CABundle = plane.Config().CAData
			return plane.Client().Update(ctx, hook, client.FieldOwner("injector"))
		}
		apply := func(ctx context.Context, hook *webhookConfiguration) error {
			patch := fmt.Sprintf(`{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
				"metadata": {"name": %q}, "webhooks": [{"name": "pods.example.com", "clientConfig": {"caBundle": %q}}]}`,
				hook.Name, base64.StdEncoding.EncodeToString(plane.Config().CAData))
			return plane.Client().Patch(ctx, hook, client.RawPatch(types.ApplyPatchType, []byte(patch)),
				client.FieldOwner("injector"))
		}
		ns := namespaceFor(ctx)
		always := []*atomic.Int64{injectCA(ctx, ns+"-update", 100, update), injectCA(ctx, ns+"-apply", 100, apply)}
		once := injectCA(ctx, ns+"-once", 1, update)
		hooks := func(g Gomega, timeout int32) {
			for _, name := range []string{"update", "apply", "once"} {
				hook := &webhookConfiguration{}
				g.Expect(plane.Client().Get(ctx, client.ObjectKey{Name: ns + "-" + name}, hook)).To(Succeed())
				g.Expect(hasCA(hook)).To(BeTrue(), hook.Name)
				g.Expect(*hook.Webhooks[0].TimeoutSeconds).To(Equal(timeout), hook.Name)
			}
		}
		template := fmt.Sprintf(webhookTemplate, "update") + fmt.Sprintf(webhookTemplate, "apply") +
			fmt.Sprintf(webhookTemplate, "once")
		const chart = "spec:\n  version: 1.0.0\n  components:\n  - {name: chart, helm: {chart: ./chart}}\n"

		publish(ctx, ns, "src", "main@sha1:1", tree(chart, chartOf("timeout: 5", template)))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		Eventually(ctx, func(g Gomega) { hooks(g, 5) }, soon).Should(Succeed(), "all certificates are injected")
		mark := auditMark(ctx)
		requestReconcile(ctx, in, "again")
		expectNoWrites(ctx, ns, mark, "an injected certificate is no drift")

		publish(ctx, ns, "src", "main@sha1:2", tree(chart, chartOf("timeout: 6", template)))
		atRevision(ctx, in, "main@sha1:2")
		hooks(Default, 6)
		hook := &webhookConfiguration{}
		hook.Name = ns + "-once"
		Expect(plane.Client().Patch(ctx, hook, client.RawPatch(types.JSONPatchType,
			[]byte(`[{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 7}]`)))).To(Succeed())
		Eventually(ctx, func(g Gomega) { hooks(g, 6) }, soon).Should(Succeed(), "another field is corrected")
		Expect(always[0].Load()+always[1].Load()+once.Load()).To(BeEquivalentTo(3), "no certificate was lost")
		Expect(ready(in).Status).To(BeEquivalentTo("True"))
	})
})
