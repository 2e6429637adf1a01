package removal_test

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/suite"
)

// publishTwoStacks publishes a source with the stacks "one" and "other".
func publishTwoStacks(ctx SpecContext, ns, revision string, one, other []string) {
	GinkgoHelper()
	files := map[string]string{}
	for name, docs := range map[string][]string{"one": one, "other": other} {
		files[fmt.Sprintf("stacks/%s/stack.yaml", name)] = fmt.Sprintf("apiVersion: apps.ksctl.com/v1\nkind: "+
			"Stack\nmetadata: {name: %s}\n", name) + harness.OneComponent
		for i, d := range docs {
			files[fmt.Sprintf("stacks/%s/main/%d.yaml", name, i)] = d
		}
	}
	Expect(h.PublishSource(ctx, ns, "src", revision, artifacts.Files(files))).To(Succeed())
}

func fromStack(stack string) func(*appsv1.KsctlInstall) {
	return func(in *appsv1.KsctlInstall) { in.Spec.SourceRef.Name, in.Spec.Stack = "src", stack }
}

var _ = Describe("An object that moves between installs", suite.Safety, func() {
	It("in one commit is handed over, not deleted", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		var moved []string
		for i := range 5 {
			moved = append(moved, configMap(fmt.Sprintf("c%d", i), "1"))
		}
		stays, own := configMap("stays", "1"), configMap("new", "1")
		publishTwoStacks(ctx, ns, "r1", append([]string{stays}, moved...), []string{own})
		one, other := install(ctx, ns, "one", fromStack("one")), install(ctx, ns, "other", fromStack("other"))
		becomesReady(ctx, one, other)
		uids := map[string]bool{}
		for i := range 5 {
			cm := aConfigMap(ns, fmt.Sprintf("c%d", i))
			Expect(get(ctx, cm)).To(Succeed())
			uids[string(cm.UID)] = true
		}
		mark, err := h.ControlPlane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		publishTwoStacks(ctx, ns, "r2", []string{stays}, append([]string{own}, moved...))
		reports(ctx, one, "True", "", "r2", "1 objects")
		reports(ctx, other, "True", "", "r2", "6 objects")
		for i := range 5 {
			cm := aConfigMap(ns, fmt.Sprintf("c%d", i))
			Expect(get(ctx, cm)).To(Succeed())
			Expect(uids).To(HaveKey(string(cm.UID)))
			Expect(cm.Annotations[live.MarkAnnotation]).To(ContainSubstring("/" + ns + "/other|"))
		}
		requests, err := h.ControlPlane.AuditSince(ctx, mark)
		Expect(err).NotTo(HaveOccurred())
		Expect(requests.Where(cluster.Verb("delete"), cluster.Resource("configmaps"), cluster.InNamespace(ns))).
			To(BeEmpty())
		Eventually(ctx, eventMessages(ctx, one, "HandedOver"), soon, "20ms").ShouldNot(BeEmpty())
		remove(ctx, one, other)
		awaitGone(ctx, one, other, aConfigMap(ns, "c0"))
	})

	It("is kept while another install of the source is suspended, and that install is reported", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a, b, c := configMap("a", "1"), configMap("b", "1"), configMap("c", "1")
		publishTwoStacks(ctx, ns, "r1", []string{a, b}, []string{c})
		one, other := install(ctx, ns, "one", fromStack("one")), install(ctx, ns, "other", fromStack("other"))
		becomesReady(ctx, one, other)
		suspend(ctx, other)
		publishTwoStacks(ctx, ns, "r2", []string{a}, []string{c, b})
		reports(ctx, one, "Unknown", "", "KsctlInstall "+ns+"/other", "suspended")
		Consistently(ctx, func() bool { return absent(ctx, aConfigMap(ns, "b")) }, quiet, "200ms").Should(BeFalse())
		before := aConfigMap(ns, "b")
		Expect(get(ctx, before)).To(Succeed())
		mergePatch(ctx, other, `{"spec":{"suspend":false}}`)
		reports(ctx, other, "True", "", "r2")
		reports(ctx, one, "True", "", "r2")
		after := aConfigMap(ns, "b")
		Expect(get(ctx, after)).To(Succeed())
		Expect(after.UID).To(Equal(before.UID))

		By("not waiting for an install that cannot be rendered, and neither has the object nor planned it")
		publishTwoStacks(ctx, ns, "r3", []string{a, configMap("x", "1")}, []string{c, b})
		reports(ctx, one, "True", "", "r3")
		reports(ctx, other, "True", "", "r3")
		publishTwoStacks(ctx, ns, "r4", []string{a}, []string{"kind: broken"})
		reports(ctx, other, "False", "InvalidStack")
		reports(ctx, one, "True", "", "r4")
		awaitGone(ctx, aConfigMap(ns, "x"))
		publishTwoStacks(ctx, ns, "r5", []string{a}, []string{c})
		reports(ctx, other, "True", "", "r5")
		awaitGone(ctx, aConfigMap(ns, "b"))
		remove(ctx, one, other)
		awaitGone(ctx, one, other)
	})

	It("to a renamed install is not recreated", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		files := map[string]string{"main/a.yaml": configMap("a", "1"), "main/b.yaml": configMap("b", "1")}
		stack := "spec:\n  version: 1.0.0\n  components:\n  - {name: main, manifests: [main/], namespace: " + ns +
			"-x, createNamespace: true}\n"
		Expect(h.PublishSource(ctx, ns, "src", "r1", harness.SourceTree(stack, files))).To(Succeed())
		old := install(ctx, ns, "old", fromStack("app"))
		becomesReady(ctx, old)
		before := aConfigMap(ns+"-x", "a")
		Expect(get(ctx, before)).To(Succeed())

		By("renaming the install and removing an object in one commit")
		mark, err := h.ControlPlane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		delete(files, "main/b.yaml")
		Expect(h.PublishSource(ctx, ns, "src2", "r1", harness.SourceTree(stack, files))).To(Succeed())
		renamed := install(ctx, ns, "new", fromStack("app"), func(in *appsv1.KsctlInstall) {
			in.Spec.SourceRef.Name = "src2"
			in.Spec.TakeOver = &appsv1.TakeOver{Name: "old"}
		})
		remove(ctx, old)
		awaitGone(ctx, old)
		becomesReady(ctx, renamed)
		after := aConfigMap(ns+"-x", "a")
		Expect(get(ctx, after)).To(Succeed())
		Expect(after.UID).To(Equal(before.UID))
		awaitGone(ctx, aConfigMap(ns+"-x", "b"))
		requests, err := h.ControlPlane.AuditSince(ctx, mark)
		Expect(err).NotTo(HaveOccurred())
		Expect(requests.Where(cluster.Verb("delete"), cluster.Resource("configmaps"), cluster.Named("a"))).To(BeEmpty())
		Expect(requests.Where(cluster.Verb("delete"), cluster.Resource("namespaces"))).To(BeEmpty())
		remove(ctx, renamed)
		awaitGone(ctx, renamed, &corev1.Namespace{ObjectMeta: objectMeta("", ns+"-x")})
	})
})
