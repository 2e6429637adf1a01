package removal_test

import (
	"context"
	"fmt"
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

// blocker is a webhook that nobody serves, for deletions of ConfigMaps in a namespace.
func blocker(ns string) *admissionv1.ValidatingWebhookConfiguration {
	return &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ns}, Webhooks: []admissionv1.ValidatingWebhook{{
		Name: "nobody." + ns + ".example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionv1.SideEffectClassNone),
		FailurePolicy: ptr.To(admissionv1.Fail), TimeoutSeconds: ptr.To[int32](2),
		ClientConfig:      admissionv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/none")},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}},
		Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Delete},
			Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}}}},
	}}}
}

// blocks makes that webhook, and returns it once it takes effect.
func blocks(ctx context.Context, ns string) *admissionv1.ValidatingWebhookConfiguration {
	GinkgoHelper()
	webhook := blocker(ns)
	Expect(h.Plane.Client().Create(ctx, webhook)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { remove(ctx, webhook) })
	Eventually(ctx, func() bool { // webhooks take effect a moment after they were made
		doomed := aConfigMap(ns, "doomed")
		_ = h.Plane.Client().Create(ctx, doomed)
		return client.IgnoreNotFound(h.Plane.Client().Delete(ctx, doomed)) != nil
	}, soon, "50ms").Should(BeTrue(), "the webhook blocks")
	return webhook
}

// triedAgain waits until a ConfigMap's deletion was refused twice since a mark.
func triedAgain(ctx context.Context, ns, name string, mark cluster.Mark) {
	GinkgoHelper()
	Eventually(ctx, func() int {
		requests, err := h.Plane.AuditSince(ctx, mark)
		Expect(err).NotTo(HaveOccurred())
		return len(requests.Where(cluster.Verb("delete"), cluster.Resource("configmaps"), cluster.Named(name), cluster.In(ns), cluster.Failed))
	}, soon, "200ms").Should(BeNumerically(">=", 2), "it is tried again")
}

func retrying(every time.Duration) func(*appsv1.KsctlInstall) {
	return func(in *appsv1.KsctlInstall) { in.Spec.RetryInterval = &metav1.Duration{Duration: every} }
}

const account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: other}\n"

var _ = Describe("A removal", func() {
	It("that a webhook blocks names it, removes the rest, and goes on by itself", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "a", "r1", configMap("a", "1"), account)
		a := install(ctx, ns, "a", retrying(time.Second))
		becomesReady(ctx, a)
		webhook := blocks(ctx, ns)
		mark, err := h.Plane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		remove(ctx, a)
		says(ctx, a, metav1.ConditionUnknown, "Removing", "objects are left to remove", "delete ConfigMap "+ns+"/a", webhook.Webhooks[0].Name)
		Eventually(ctx, events(ctx, a, "Removing"), soon, "50ms").ShouldNot(BeEmpty())
		triedAgain(ctx, ns, "a", mark)
		remove(ctx, webhook)
		gone(ctx, a, aConfigMap(ns, "a"))
	})

	It("of a component that a webhook blocks is tried again also while the stack is wrong", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "a", "r1", configMap("a", "1"))
		a := install(ctx, ns, "a", retrying(time.Second))
		becomesReady(ctx, a)
		Expect(h.Publish(ctx, ns, "a", "r2", harness.Tree("spec: {version: 1.0.0, components: wrong}\n", nil))).To(Succeed())
		says(ctx, a, metav1.ConditionFalse, "InvalidStack")
		webhook := blocks(ctx, ns)
		mark, err := h.Plane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		rm := ask(ctx, ns, "away", "a", only("main"))
		triedAgain(ctx, ns, "a", mark)
		says(ctx, a, metav1.ConditionFalse, "InvalidStack")
		remove(ctx, webhook)
		gone(ctx, aConfigMap(ns, "a"))
		answers(ctx, rm, metav1.ConditionTrue, "")
		remove(ctx, a, rm)
		gone(ctx, a, rm)
	})

	It("in which nothing moves is late, and goes on all the same", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a := one(ctx, ns, "a", func(in *appsv1.KsctlInstall) { in.Spec.Timeout = &metav1.Duration{Duration: time.Second} })
		becomesReady(ctx, a)
		change(ctx, aConfigMap(ns, "a"), `{"metadata":{"finalizers":["example.com/theirs"]}}`)
		remove(ctx, a)
		says(ctx, a, metav1.ConditionFalse, "Timeout", "nothing moved within 1s: 1 objects are left to remove", "example.com/theirs")
		change(ctx, aConfigMap(ns, "a"), `{"metadata":{"finalizers":null}}`)
		gone(ctx, a)
	})

	It("needs the inventory alone: no source, no artifact, no stack, and a controller that never saw them", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		first, err := h.StartController("--owner-id="+ns, "--watch-label-selector="+own+"="+ns)
		Expect(err).NotTo(HaveOccurred())
		publish(ctx, ns, "a", "r1", configMap("a", "1"), configMap("b", "1"), definition(ns+".example.com"), fmt.Sprintf("apiVersion: %s.example.com/v1\nkind: Widget\nmetadata: {name: w}\n", ns))
		a := install(ctx, ns, "a", func(in *appsv1.KsctlInstall) { in.Labels = map[string]string{own: ns} })
		becomesReady(ctx, a)
		Expect(first.Stop()).To(Succeed())
		remove(ctx, &appsv1.KsctlSource{ObjectMeta: named(ns, "a")}, a)
		second, err := h.StartController("--owner-id="+ns, "--watch-label-selector="+own+"="+ns)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(second.Stop)
		gone(ctx, a, aConfigMap(ns, "a"), aConfigMap(ns, "b"),
			&apiextensionsv1.CustomResourceDefinition{ObjectMeta: named("", "widgets."+ns+".example.com")})
	})

	It("that begins while the install is under way leaves nothing", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		Expect(h.Publish(ctx, ns, "a", "r1", harness.Tree("spec:\n  version: 1.0.0\n  components:\n  - {name: one, manifests: [one/]}\n  - {name: two, manifests: [two/], dependsOn: [one]}\n",
			map[string]string{"one/j.yaml": aJob("endless", cluster.FateNeverEnds, ""), "one/a.yaml": configMap("a", "1"), "two/b.yaml": configMap("b", "1")}))).To(Succeed())
		a := install(ctx, ns, "a")
		says(ctx, a, metav1.ConditionUnknown, "Progressing", "Job "+ns+"/endless")
		remove(ctx, a)
		gone(ctx, a, aConfigMap(ns, "a"), theJob(ns, "endless"), aConfigMap(ns, "b"))
	})

	It("of what another install brings at the same time takes only its own", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		docs := []string{configMap("a", "1"), configMap("b", "1"), configMap("c", "1")}
		publish(ctx, ns, "old", "r1", docs...)
		publish(ctx, ns, "new", "r1", docs...)
		before := install(ctx, ns, "old")
		becomesReady(ctx, before)
		uids := map[types.UID]bool{}
		for _, name := range []string{"a", "b", "c"} {
			cm := aConfigMap(ns, name)
			Expect(get(ctx, cm)).To(Succeed())
			uids[cm.UID] = true
		}
		change(ctx, aConfigMap(ns, "b"), `{"metadata":{"finalizers":["example.com/theirs"]}}`)
		held := aConfigMap(ns, "b")
		Expect(get(ctx, held)).To(Succeed())
		remove(ctx, before)
		next := install(ctx, ns, "new", retrying(time.Second))
		says(ctx, before, metav1.ConditionUnknown, "Removing", "ConfigMap "+ns+"/b is being deleted since", "example.com/theirs")
		made := func(name string) bool {
			cm := aConfigMap(ns, name)
			return get(ctx, cm) == nil && !uids[cm.UID]
		}
		Eventually(ctx, func() bool { return made("a") && made("c") }, soon, "20ms").Should(BeTrue(), "what is free is made")
		mark, err := h.Plane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		change(ctx, held, `{"metadata":{"finalizers":null}}`)
		gone(ctx, before)
		becomesReady(ctx, next)
		for _, name := range []string{"a", "b", "c"} {
			Expect(made(name)).To(BeTrue())
		}
		requests, err := h.Plane.AuditSince(ctx, mark)
		Expect(err).NotTo(HaveOccurred())
		Expect(requests.Where(cluster.Verb("delete"), cluster.Resource("configmaps"), cluster.In(ns))).To(BeEmpty(), "nothing of the new one is deleted")
		remove(ctx, next)
		gone(ctx, next)
	})
})
