package removal_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
)

// unavailableWebhook returns a webhook without a server for deletions of ConfigMaps in a
// namespace.
func unavailableWebhook(ns string) *admissionv1.ValidatingWebhookConfiguration {
	return &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
		Name: ns}, Webhooks: []admissionv1.ValidatingWebhook{{
		Name: "nobody." + ns + ".example.com", AdmissionReviewVersions: []string{"v1"},
		SideEffects:   ptr.To(admissionv1.SideEffectClassNone),
		FailurePolicy: ptr.To(admissionv1.Fail), TimeoutSeconds: ptr.To[int32](2),
		ClientConfig:      admissionv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/none")},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}},
		Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Delete},
			Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
				Resources: []string{"configmaps"}}}},
	}}}
}

// blockDeletions creates that webhook, and returns it once it takes effect.
func blockDeletions(ctx context.Context, ns string) *admissionv1.ValidatingWebhookConfiguration {
	GinkgoHelper()
	webhook := unavailableWebhook(ns)
	Expect(h.ControlPlane.Client().Create(ctx, webhook)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { remove(ctx, webhook) })
	Eventually(ctx, func() bool { // webhooks take effect with a delay
		probe := aConfigMap(ns, "doomed")
		_ = h.ControlPlane.Client().Create(ctx, probe)
		return client.IgnoreNotFound(h.ControlPlane.Client().Delete(ctx, probe)) != nil
	}, soon, "50ms").Should(BeTrue(), "the webhook blocks")
	return webhook
}

// awaitRetry waits until the deletion of a ConfigMap was rejected twice since a mark.
func awaitRetry(ctx context.Context, ns, name string, mark cluster.Mark) {
	GinkgoHelper()
	Eventually(ctx, func() int {
		requests, err := h.ControlPlane.AuditSince(ctx, mark)
		Expect(err).NotTo(HaveOccurred())
		return len(requests.Where(cluster.Verb("delete"), cluster.Resource("configmaps"), cluster.Named(name),
			cluster.InNamespace(ns), cluster.Failed))
	}, soon, "200ms").Should(BeNumerically(">=", 2), "the deletion is retried")
}

func retryEvery(every time.Duration) func(*appsv1.KsctlInstall) {
	return func(in *appsv1.KsctlInstall) { in.Spec.RetryInterval = &metav1.Duration{Duration: every} }
}

const account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: other}\n"

var _ = Describe("A removal", func() {
	It("that a webhook blocks reports it, removes the other objects, and completes by itself", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "a", "r1", configMap("a", "1"), account)
		a := install(ctx, ns, "a", retryEvery(time.Second))
		becomesReady(ctx, a)
		webhook := blockDeletions(ctx, ns)
		mark, err := h.ControlPlane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		remove(ctx, a)
		reports(ctx, a, metav1.ConditionUnknown, "Removing", "objects are left to remove", "delete ConfigMap "+ns+"/a",
			webhook.Webhooks[0].Name)
		Eventually(ctx, eventMessages(ctx, a, "Removing"), soon, "50ms").ShouldNot(BeEmpty())
		awaitRetry(ctx, ns, "a", mark)
		remove(ctx, webhook)
		awaitGone(ctx, a, aConfigMap(ns, "a"))
	})

	It("of a component that a webhook blocks is retried while the stack is invalid", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "a", "r1", configMap("a", "1"))
		a := install(ctx, ns, "a", retryEvery(time.Second))
		becomesReady(ctx, a)
		Expect(h.PublishSource(ctx, ns, "a", "r2",
			harness.SourceTree("spec: {version: 1.0.0, components: wrong}\n", nil))).To(Succeed())
		reports(ctx, a, metav1.ConditionFalse, "InvalidStack")
		webhook := blockDeletions(ctx, ns)
		mark, err := h.ControlPlane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		rm := newRemove(ctx, ns, "away", "a", forComponents("main"))
		awaitRetry(ctx, ns, "a", mark)
		reports(ctx, a, metav1.ConditionFalse, "InvalidStack")
		remove(ctx, webhook)
		awaitGone(ctx, aConfigMap(ns, "a"))
		removeReports(ctx, rm, metav1.ConditionTrue, "")
		remove(ctx, a, rm)
		awaitGone(ctx, a, rm)
	})

	It("without progress reports a timeout, and continues", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a := installConfigMap(ctx, ns, "a", func(in *appsv1.KsctlInstall) {
			in.Spec.Timeout = &metav1.Duration{Duration: time.Second}
		})
		becomesReady(ctx, a)
		mergePatch(ctx, aConfigMap(ns, "a"), `{"metadata":{"finalizers":["example.com/theirs"]}}`)
		remove(ctx, a)
		reports(ctx, a, metav1.ConditionFalse, "Timeout",
			"removal made no progress within 1s: 1 objects are left to remove", "example.com/theirs")
		mergePatch(ctx, aConfigMap(ns, "a"), `{"metadata":{"finalizers":null}}`)
		awaitGone(ctx, a)
	})

	It("needs only the inventory, also by a controller that has not seen source, artifact "+
		"and stack", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		c := startController(ns)
		publish(ctx, ns, "a", "r1", configMap("a", "1"), configMap("b", "1"), definition(ns+".example.com"),
			fmt.Sprintf("apiVersion: %s.example.com/v1\nkind: Widget\nmetadata: {name: w}\n", ns))
		a := install(ctx, ns, "a", func(in *appsv1.KsctlInstall) { in.Labels = map[string]string{controllerLabel: ns} })
		becomesReady(ctx, a)
		Expect(c.Stop()).To(Succeed())
		remove(ctx, &appsv1.KsctlSource{ObjectMeta: objectMeta(ns, "a")}, a)
		c.Start()
		awaitGone(ctx, a, aConfigMap(ns, "a"), aConfigMap(ns, "b"),
			&apiextensionsv1.CustomResourceDefinition{ObjectMeta: objectMeta("", "widgets."+ns+".example.com")})
	})

	It("that starts during the installation leaves nothing", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		Expect(h.PublishSource(ctx, ns, "a", "r1", harness.SourceTree("spec:\n  version: 1.0.0\n  components:\n  - "+
			"{name: one, manifests: [one/]}\n  - {name: two, manifests: [two/], dependsOn: [one]}\n",
			map[string]string{"one/j.yaml": jobManifest("endless", cluster.FateNeverEnds, ""),
				"one/a.yaml": configMap("a", "1"), "two/b.yaml": configMap("b", "1")}))).To(Succeed())
		a := install(ctx, ns, "a")
		reports(ctx, a, metav1.ConditionUnknown, "Progressing", "Job "+ns+"/endless")
		remove(ctx, a)
		awaitGone(ctx, a, aConfigMap(ns, "a"), jobObject(ns, "endless"), aConfigMap(ns, "b"))
	})

	It("does not delete the same objects of another namespace's install that starts meanwhile", func(ctx SpecContext) {
		ns, elsewhere := namespaceFor(ctx), namespaceFor(ctx)
		var docs []string
		for _, name := range []string{"a", "b", "c"} {
			docs = append(docs, strings.Replace(configMap(name, "1"), "name: ", "namespace: "+ns+", name: ", 1))
		}
		publish(ctx, ns, "old", "r1", docs...)
		publish(ctx, elsewhere, "new", "r1", docs...)
		before := install(ctx, ns, "old")
		becomesReady(ctx, before)
		uids := map[types.UID]bool{}
		for _, name := range []string{"a", "b", "c"} {
			cm := aConfigMap(ns, name)
			Expect(get(ctx, cm)).To(Succeed())
			uids[cm.UID] = true
		}
		mergePatch(ctx, aConfigMap(ns, "b"), `{"metadata":{"finalizers":["example.com/theirs"]}}`)
		finalized := aConfigMap(ns, "b")
		Expect(get(ctx, finalized)).To(Succeed())
		remove(ctx, before)
		next := install(ctx, elsewhere, "new", retryEvery(time.Second))
		reports(ctx, before, metav1.ConditionUnknown, "Removing", "ConfigMap "+ns+"/b is being deleted since",
			"example.com/theirs")
		made := func(name string) bool {
			cm := aConfigMap(ns, name)
			return get(ctx, cm) == nil && !uids[cm.UID]
		}
		Eventually(ctx, func() bool {
			return made("a") && made("c")
		}, soon, "20ms").Should(BeTrue(), "deleted objects are created again")
		mark, err := h.ControlPlane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		mergePatch(ctx, finalized, `{"metadata":{"finalizers":null}}`)
		awaitGone(ctx, before)
		becomesReady(ctx, next)
		for _, name := range []string{"a", "b", "c"} {
			Expect(made(name)).To(BeTrue())
		}
		requests, err := h.ControlPlane.AuditSince(ctx, mark)
		Expect(err).NotTo(HaveOccurred())
		Expect(requests.Where(cluster.Verb("delete"), cluster.Resource("configmaps"), cluster.InNamespace(ns))).
			To(BeEmpty(), "no object of the new install is deleted")
		remove(ctx, next)
		awaitGone(ctx, next)
	})
})
