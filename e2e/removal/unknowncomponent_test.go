package removal_test

import (
	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/harness"
)

var _ = Describe("A KsctlRemove of components", func() {
	It("reports unknown components, and removes nothing until they are corrected", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publishThree(ctx, ns, "a", "r1", "1")
		a := install(ctx, ns, "a")
		becomesReady(ctx, a)
		rm := newRemove(ctx, ns, "parts", "a", forComponents("dash", "bsae"))
		removeReports(ctx, rm, metav1.ConditionFalse, "NoSuchComponent",
			`KsctlInstall a has no component "bsae" (did you mean "base"?)`, "it has app, base, dash")
		Consistently(ctx, func() bool { return absent(ctx, aConfigMap(ns, "dash")) }, quiet, "200ms").Should(BeFalse())
		mergePatch(ctx, rm, `{"spec":{"components":["dash"]}}`)
		removeReports(ctx, rm, metav1.ConditionTrue, "", "1 object removed, 1 kept")

		By("a removed component stays valid when it leaves the stack")
		Expect(h.PublishSource(ctx, ns, "a", "r2", harness.SourceTree("spec:\n  version: 1.0.0\n  components: "+
			"[{name: base, manifests: [base/]}, {name: app, manifests: [app/], dependsOn: [base]}]\n",
			map[string]string{"base/base.yaml": configMap("base", "2"), "app/app.yaml": configMap("app", "2")}))).
			To(Succeed())
		reports(ctx, a, metav1.ConditionTrue, "RemovedByRequest", "r2")
		Expect(a.Status.Components).NotTo(ContainElement(HaveField("Name", "dash")))
		mergePatch(ctx, rm, `{"metadata":{"annotations":{"`+appsv1.RequestedAtAnnotation+`":"now"}}}`)
		Eventually(ctx, func() string { _ = get(ctx, rm); return rm.Status.LastHandledReconcileAt }, soon, "20ms").
			Should(Equal("now"))
		removeReports(ctx, rm, metav1.ConditionTrue, "", "1 object removed, 1 kept")

		By("waiting for a component of a revision that the install has not applied yet")
		suspend(ctx, a)
		Expect(h.PublishSource(ctx, ns, "a", "r3", harness.SourceTree("spec:\n  version: 1.0.0\n  components: "+
			"[{name: base, manifests: [base/]}, {name: more, manifests: [more/]}]\n",
			map[string]string{"base/base.yaml": configMap("base", "3"), "more/more.yaml": configMap("more", "3")}))).
			To(Succeed())
		more := newRemove(ctx, ns, "more", "a", forComponents("more"))
		removeReports(ctx, more, metav1.ConditionUnknown, fluxmeta.ProgressingReason, `no component "more"`,
			"revision r3 is not rendered yet", "suspended: resume it")
		mergePatch(ctx, a, `{"spec":{"suspend":false}}`)
		removeReports(ctx, more, metav1.ConditionTrue, "")
		Expect(absent(ctx, aConfigMap(ns, "more"))).To(BeTrue())
		remove(ctx, a, rm, more)
		awaitGone(ctx, a, rm, more)
	})
})
