package removal_test

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/stacks/generated"
)

// hookMeta returns the annotations of a hook, to be added to metadata in braces.
func hookMeta(events string, weight int) string {
	return fmt.Sprintf(`, annotations: {helm.sh/hook: %q, helm.sh/hook-weight: "%d"}`, events, weight)
}

func podManifest(name, fate, events string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, annotations: {helm.sh/hook: %q, %s: %q}}\n"+
		"spec: {restartPolicy: Never, containers: [{name: main, image: \"example.com/main:1\"}]}\n",
		name, events, cluster.FateAnnotation, fate)
}

// installChartWithHooks installs a chart with hooks for its removal; the last of them has a fate.
func installChartWithHooks(ctx context.Context, ns, fate string,
	change ...func(*appsv1.KsctlInstall)) *appsv1.KsctlInstall {
	GinkgoHelper()
	Expect(h.PublishSource(ctx, ns, "a", "r1", harness.SourceTree("spec:\n  version: 1.0.0\n  components:\n"+
		"  - {name: base, manifests: [base.yaml]}\n  - {name: shop, dependsOn: [base], helm: {chart: ./chart}}\n",
		map[string]string{
			"base.yaml":                  configMap("base", "1"),
			"chart/Chart.yaml":           "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
			"chart/templates/main.yaml":  configMap("main", "1"),
			"chart/templates/late.yaml":  jobManifest("late", cluster.FateNeverEnds, hookMeta("pre-delete", 5)),
			"chart/templates/early.yaml": jobManifest("early", cluster.FateNeverEnds, hookMeta("pre-delete", -5)),
			"chart/templates/account.yaml": "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: bye" +
				hookMeta("pre-delete,post-delete", -9) + "}\n",
			"chart/templates/both.yaml":  jobManifest("both", "", hookMeta("post-install,post-delete", 0)),
			"chart/templates/after.yaml": podManifest("after", fate, "post-delete"),
		}))).To(Succeed())
	a := install(ctx, ns, "a", change...)
	becomesReady(ctx, a)
	return a
}

func countHookSecrets(ctx context.Context, ns string) int {
	GinkgoHelper()
	var list corev1.SecretList
	Expect(h.ControlPlane.Client().List(ctx, &list, client.InNamespace(ns))).To(Succeed())
	n := 0
	for i := range list.Items {
		if list.Items[i].Type == generated.SecretType {
			n++
		}
	}
	return n
}

func aPod(ns, name string) *corev1.Pod { return &corev1.Pod{ObjectMeta: objectMeta(ns, name)} }

var _ = Describe("The hooks of a chart for its removal", func() {
	It("run before and after it, by weight, also without source and stack, and nothing is left", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a := installChartWithHooks(ctx, ns, cluster.FateNeverEnds)
		By("they do not exist before")
		first := jobObject(ns, "both")
		Expect(get(ctx, first)).To(Succeed(), "it is a hook of the install, too")
		for _, o := range []client.Object{jobObject(ns, "late"), jobObject(ns, "early"), aPod(ns, "after"),
			&corev1.ServiceAccount{ObjectMeta: objectMeta(ns, "bye")}} {
			Expect(absent(ctx, o)).To(BeTrue(), o.GetName())
		}
		Expect(countHookSecrets(ctx, ns)).To(Equal(1))

		remove(ctx, &appsv1.KsctlSource{ObjectMeta: objectMeta(ns, "a")}, a)
		reports(ctx, a, metav1.ConditionUnknown, "Removing",
			`hooks of component "shop" run before the removal: Job `+ns+
				"/early is InProgress")
		Expect(get(ctx, &corev1.ServiceAccount{ObjectMeta: objectMeta(ns, "bye")})).To(Succeed())
		Expect(absent(ctx, jobObject(ns, "late"))).To(BeTrue())
		completePods(ctx, ns)
		reports(ctx, a, metav1.ConditionUnknown, "Removing", "Job "+ns+"/late is InProgress")
		Expect(absent(ctx, aConfigMap(ns, "main"))).To(BeFalse())
		Expect(absent(ctx, aConfigMap(ns, "base"))).To(BeFalse())
		completePods(ctx, ns)
		reports(ctx, a, metav1.ConditionUnknown, "Removing", `hooks of component "shop" run after the removal: Pod `+ns+
			"/after runs, and is not done")
		awaitGone(ctx, aConfigMap(ns, "main"), aConfigMap(ns, "base"), jobObject(ns, "late"), jobObject(ns, "early"))
		again := jobObject(ns, "both")
		Expect(get(ctx, again) != nil || again.UID != first.UID).To(BeTrue(), "the Job runs again")
		completePods(ctx, ns)
		awaitGone(ctx, a, aPod(ns, "after"), again, &corev1.ServiceAccount{ObjectMeta: objectMeta(ns, "bye")})
		Expect(countHookSecrets(ctx, ns)).To(BeZero())
	})

	It("hold the removal when one fails, and are skipped without the Secret that keeps them", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a := installChartWithHooks(ctx, ns, cluster.FateFails)
		remove(ctx, a)
		for range 2 {
			completePods(ctx, ns)
		}
		reports(ctx, a, metav1.ConditionFalse, "PreRemoveFailed", "after the removal has failed: Pod "+ns+
			"/after is Failed",
			"delete Secret "+ns+"/ksctl-generated-")
		Expect(get(ctx, a)).To(Succeed())
		var secrets corev1.SecretList
		Expect(h.ControlPlane.Client().List(ctx, &secrets, client.InNamespace(ns))).To(Succeed())
		for i := range secrets.Items {
			if strings.HasPrefix(secrets.Items[i].Name, "ksctl-generated-") {
				remove(ctx, &secrets.Items[i])
			}
		}
		awaitGone(ctx, a, aPod(ns, "after"))
		Eventually(ctx, eventMessages(ctx, a, appsv1.RemovalHooksSkippedReason), soon, "20ms").
			Should(ContainElement(
				ContainSubstring(`the hooks of component "shop" for its removal, if it has any, do not run`)))
	})

	It("do not run when another install takes the objects over, which runs its own", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a := installChartWithHooks(ctx, ns, "")
		before := uidOf(ctx, ns, "main")
		b := install(ctx, ns, "b", func(in *appsv1.KsctlInstall) {
			in.Spec.SourceRef.Name, in.Spec.TakeOver = "a", &appsv1.TakeOver{Name: "a"}
		})
		reports(ctx, b, "False", appsv1.OwnedByAnotherReason)
		mark, err := h.ControlPlane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		remove(ctx, a)
		awaitGone(ctx, a)
		becomesReady(ctx, b)
		Expect(uidOf(ctx, ns, "main")).To(Equal(before))
		Expect(writtenObjects(ctx, ns, mark)).NotTo(ContainElement(HaveSuffix(" early")), "no hook has run")
		Expect(countHookSecrets(ctx, ns)).To(Equal(1))
		remove(ctx, b)
		completePods(ctx, ns)
		completePods(ctx, ns)
		awaitGone(ctx, b, aConfigMap(ns, "main"), aPod(ns, "after"))
		Expect(countHookSecrets(ctx, ns)).To(BeZero())
	})

	It("run when the component is disabled, and when a KsctlRemove removes it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a := installChartWithHooks(ctx, ns, "")
		mergePatch(ctx, a, `{"spec":{"components":[{"name":"shop","enabled":false}]}}`)
		completePods(ctx, ns)
		completePods(ctx, ns)
		awaitGone(ctx, aConfigMap(ns, "main"), aPod(ns, "after"))
		becomesReady(ctx, a)
		Expect(countHookSecrets(ctx, ns)).To(BeZero())
		Expect(get(ctx, aConfigMap(ns, "base"))).To(Succeed())

		mergePatch(ctx, a, `{"spec":{"components":null}}`)
		becomesReady(ctx, a)
		Expect(countHookSecrets(ctx, ns)).To(Equal(1))
		r := &appsv1.KsctlRemove{ObjectMeta: objectMeta(ns, "r"),
			Spec: appsv1.KsctlRemoveSpec{InstallRef: &appsv1.InstallRef{Name: "a"}}}
		Expect(h.ControlPlane.Client().Create(ctx, r)).To(Succeed())
		completePods(ctx, ns)
		completePods(ctx, ns)
		awaitGone(ctx, aConfigMap(ns, "main"), aConfigMap(ns, "base"), aPod(ns, "after"))
		reports(ctx, a, metav1.ConditionTrue, appsv1.RemovedByRequestReason)
		Expect(countHookSecrets(ctx, ns)).To(BeZero())
		remove(ctx, r, a)
		awaitGone(ctx, r, a)
	})
})
