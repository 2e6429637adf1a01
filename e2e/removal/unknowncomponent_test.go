package removal_test

import (
	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/harness"
)

var _ = Describe("A removal that names components", func() {
	It("says which of them the install has not, and removes nothing until that is mended", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		three(ctx, ns, "a", "r1", "1")
		a := install(ctx, ns, "a")
		becomesReady(ctx, a)
		rm := ask(ctx, ns, "parts", "a", only("dash", "bsae"))
		answers(ctx, rm, metav1.ConditionFalse, "NoSuchComponent", `KsctlInstall a has no component "bsae" (did you mean "base"?)`, "it has app, base, dash")
		Consistently(ctx, func() bool { return absent(ctx, aConfigMap(ns, "dash")) }, quiet, "200ms").Should(BeFalse())
		change(ctx, rm, `{"spec":{"components":["dash"]}}`)
		answers(ctx, rm, metav1.ConditionTrue, "", "1 object removed, 1 kept")

		By("one that was removed stays known when it leaves the stack")
		Expect(h.Publish(ctx, ns, "a", "r2", harness.Tree("spec:\n  version: 1.0.0\n  components: [{name: base, manifests: [base/]}, {name: app, manifests: [app/], dependsOn: [base]}]\n",
			map[string]string{"base/base.yaml": configMap("base", "2"), "app/app.yaml": configMap("app", "2")}))).To(Succeed())
		says(ctx, a, metav1.ConditionTrue, "RemovedByRequest", "r2")
		Expect(a.Status.Components).NotTo(ContainElement(HaveField("Name", "dash")))
		change(ctx, rm, `{"metadata":{"annotations":{"`+appsv1.RequestedAtAnnotation+`":"now"}}}`)
		Eventually(ctx, func() string { _ = get(ctx, rm); return rm.Status.LastHandledReconcileAt }, soon, "20ms").Should(Equal("now"))
		answers(ctx, rm, metav1.ConditionTrue, "", "1 object removed, 1 kept")

		By("one that comes with a revision which the install has not taken in is waited for")
		suspend(ctx, a)
		Expect(h.Publish(ctx, ns, "a", "r3", harness.Tree("spec:\n  version: 1.0.0\n  components: [{name: base, manifests: [base/]}, {name: more, manifests: [more/]}]\n",
			map[string]string{"base/base.yaml": configMap("base", "3"), "more/more.yaml": configMap("more", "3")}))).To(Succeed())
		more := ask(ctx, ns, "more", "a", only("more"))
		answers(ctx, more, metav1.ConditionUnknown, fluxmeta.ProgressingReason, `no component "more"`, "not done with revision r3", "suspended: resume it")
		change(ctx, a, `{"spec":{"suspend":false}}`)
		answers(ctx, more, metav1.ConditionTrue, "")
		Expect(absent(ctx, aConfigMap(ns, "more"))).To(BeTrue())
		remove(ctx, a, rm, more)
		gone(ctx, a, rm, more)
	})
})
