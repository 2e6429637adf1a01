package removal_test

import (
	"context"
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
)

// aJob is the manifest of a Job whose pod has a fate.
func aJob(name, fate, meta string) string {
	return fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata: {name: %s%s}
spec:
  backoffLimit: 0
  template:
    metadata: {annotations: {%s: %q}}
    spec: {restartPolicy: Never, containers: [{name: main, image: "example.com/main:1"}]}
`, name, meta, cluster.FateAnnotation, fate)
}

const drainedStack = `spec:
  version: 1.0.0
  components:
  - {name: web, manifests: [web/]}
  - {name: db, manifests: [db/]}
  - {name: drain, manifests: [drain/], dependsOn: [db], preRemove: true}
`

// drained is a stack with a Job that runs before its removal, installed.
func drained(ctx context.Context, ns, fate string, change ...func(*appsv1.KsctlInstall)) *appsv1.KsctlInstall {
	GinkgoHelper()
	Expect(h.Publish(ctx, ns, "a", "r1", harness.Tree(drainedStack, map[string]string{
		"web/a.yaml": configMap("web", "1"), "db/a.yaml": configMap("db", "1"), "drain/j.yaml": aJob("drain", fate, "")}))).To(Succeed())
	a := install(ctx, ns, "a", change...)
	becomesReady(ctx, a)
	return a
}

func theJob(ns, name string) *batchv1.Job { return &batchv1.Job{ObjectMeta: named(ns, name)} }

// endless are the pods of a namespace that are never to end.
func endless(ctx context.Context, ns string) func() ([]corev1.Pod, error) {
	return func() ([]corev1.Pod, error) {
		var list corev1.PodList
		err := h.Plane.Client().List(ctx, &list, inNamespace(ns))
		return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.Annotations[cluster.FateAnnotation] != cluster.FateNeverEnds }), err
	}
}

// letEnd lets the pods of a namespace end that were never to, as soon as there are any.
func letEnd(ctx context.Context, ns string) {
	GinkgoHelper()
	var pods []corev1.Pod
	Eventually(ctx, func() (_ []corev1.Pod, err error) {
		pods, err = endless(ctx, ns)()
		return pods, err
	}, soon, "50ms").ShouldNot(BeEmpty(), "the pods are made")
	for i := range pods {
		body := []byte(`{"metadata":{"annotations":{"` + cluster.FateAnnotation + `":null}}}`)
		err := h.Plane.Client().Patch(ctx, &pods[i], client.RawPatch(types.MergePatchType, body))
		Expect(client.IgnoreNotFound(err)).To(Succeed(), "one that goes with its Job needs no leave")
	}
}

// changedJobs are the names of the Jobs that were patched and deleted since a mark, and
// of the ConfigMaps that were deleted, in order.
func changedJobs(ctx context.Context, ns string, mark cluster.Mark) (out []string) {
	GinkgoHelper()
	requests, err := h.Plane.AuditSince(ctx, mark)
	Expect(err).NotTo(HaveOccurred())
	// What meets a late write of a Job's status is refused, and tried again.
	for _, r := range requests.Where(cluster.In(ns), cluster.Write, cluster.As(cluster.ServiceAccountUser(ns, harness.Deployer))).Without(cluster.Failed) {
		if r.Resource == "jobs" || r.Resource == "configmaps" {
			out = append(out, r.Verb+" "+r.Name)
		}
	}
	return out
}

var _ = Describe("What must run before a removal", func() {
	It("stays suspended until then, and is done before anything goes, with source and stack gone", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a := drained(ctx, ns, cluster.FateNeverEnds)
		job := theJob(ns, "drain")
		Expect(get(ctx, job)).To(Succeed())
		Expect(job.Spec.Suspend).To(HaveValue(BeTrue()))
		By("somebody who lets it run is put right")
		change(ctx, job, `{"spec":{"suspend":false}}`)
		Eventually(ctx, func() *bool { _ = get(ctx, job); return job.Spec.Suspend }, soon, "20ms").Should(HaveValue(BeTrue()))
		Eventually(ctx, endless(ctx, ns), soon, "50ms").Should(BeEmpty(), "what it ran meanwhile is taken away")

		mark, err := h.Plane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		remove(ctx, &appsv1.KsctlSource{ObjectMeta: named(ns, "a")}, a)
		says(ctx, a, metav1.ConditionUnknown, "Removing", "3 objects are left to remove", "Job "+ns+"/drain runs before anything is removed, and is not done")
		Eventually(ctx, events(ctx, a, "PreRemove"), soon, "20ms").Should(ConsistOf(ContainSubstring("Job " + ns + "/drain (it runs before anything is removed)")))
		Consistently(ctx, func() bool { return absent(ctx, aConfigMap(ns, "web")) || absent(ctx, aConfigMap(ns, "db")) }, quiet, "200ms").Should(BeFalse())
		letEnd(ctx, ns)
		gone(ctx, a, job, aConfigMap(ns, "db"), aConfigMap(ns, "web"))
		did := changedJobs(ctx, ns, mark)
		Expect(did[:2]).To(Equal([]string{"patch drain", "delete drain"}), "the dependents of db go before it, as ever")
		Expect(did[2:]).To(ConsistOf("delete db", "delete web"))
		Eventually(ctx, events(ctx, a, "PreRemove"), soon, "20ms").Should(ContainElement(ContainSubstring("Job " + ns + "/drain (it succeeded)")))
	})

	It("holds it when it fails, which is said, until a person deletes the Job", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a := drained(ctx, ns, cluster.FateFails)
		remove(ctx, a)
		says(ctx, a, metav1.ConditionFalse, "PreRemoveFailed", "3 objects are left to remove", "Job "+ns+"/drain, which runs before anything is removed, has failed", "delete the Job")
		Consistently(ctx, func() bool { return absent(ctx, aConfigMap(ns, "db")) || absent(ctx, theJob(ns, "drain")) }, quiet, "200ms").Should(BeFalse())
		Expect(h.Plane.Client().Delete(ctx, theJob(ns, "drain"), client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		gone(ctx, a, aConfigMap(ns, "db"), aConfigMap(ns, "web"))
		Eventually(ctx, events(ctx, a, "PreRemoveSkipped"), soon, "20ms").Should(ConsistOf(ContainSubstring("Job " + ns + "/drain (it is gone: it did not run)")))
	})

	It("is left out when everything is left, and when a person gives up", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a := drained(ctx, ns, cluster.FateFails, func(in *appsv1.KsctlInstall) { in.Spec.DeletionPolicy = appsv1.DeletionOrphan })
		remove(ctx, a)
		gone(ctx, a)
		job := theJob(ns, "drain")
		Expect(get(ctx, job)).To(Succeed())
		Expect(job.Spec.Suspend).To(HaveValue(BeTrue()))

		ns = namespaceFor(ctx)
		a = drained(ctx, ns, cluster.FateFails)
		remove(ctx, a)
		says(ctx, a, metav1.ConditionFalse, "PreRemoveFailed")
		change(ctx, a, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, appsv1.AbandonAnnotation, a.UID))
		gone(ctx, a)
		Eventually(ctx, events(ctx, a, "Abandoned"), soon, "20ms").Should(ConsistOf(ContainSubstring("Job " + ns + "/drain")))
		Expect(get(ctx, aConfigMap(ns, "db"))).To(Succeed())
	})

	It("runs when its component leaves with what it is for, and anew when they come back and leave again", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a := drained(ctx, ns, cluster.FateNeverEnds)
		const off = `{"spec":{"components":[{"name":"db","enabled":false},{"name":"drain","enabled":false}]}}`
		first := theJob(ns, "drain")
		Expect(get(ctx, first)).To(Succeed())
		change(ctx, a, off)
		says(ctx, a, metav1.ConditionUnknown, "", "Job "+ns+"/drain runs before anything is removed")
		Expect(absent(ctx, aConfigMap(ns, "db"))).To(BeFalse())
		Eventually(ctx, endless(ctx, ns), soon, "50ms").ShouldNot(BeEmpty(), "its pod is made, which is not to come when it was stopped")

		By("a change of mind stops it")
		change(ctx, a, `{"spec":{"components":null}}`)
		becomesReady(ctx, a)
		Expect(get(ctx, first)).To(Succeed())
		Expect(first.Spec.Suspend).To(HaveValue(BeTrue()))
		Eventually(ctx, endless(ctx, ns), soon, "50ms").Should(BeEmpty(), "its pod goes")

		By("what is for the whole component goes when it is done")
		change(ctx, a, off)
		says(ctx, a, metav1.ConditionUnknown, "", "Job "+ns+"/drain runs before anything is removed")
		letEnd(ctx, ns)
		becomesReady(ctx, a)
		Expect(absent(ctx, aConfigMap(ns, "db"))).To(BeTrue())
		Expect(absent(ctx, first)).To(BeTrue())
		Expect(absent(ctx, aConfigMap(ns, "web"))).To(BeFalse())
		change(ctx, a, `{"spec":{"components":null}}`)
		becomesReady(ctx, a)
		again := theJob(ns, "drain")
		Expect(get(ctx, again)).To(Succeed())
		Expect(again.UID).NotTo(Equal(first.UID))
		Expect(again.Spec.Suspend).To(HaveValue(BeTrue()))
		remove(ctx, a)
		says(ctx, a, metav1.ConditionUnknown, "Removing", "Job "+ns+"/drain runs before")
		letEnd(ctx, ns)
		gone(ctx, a, again)
	})

	It("is what hooks of a chart before deletion are, by weight; a hook that is to go when it succeeded does", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		hook := func(event, rest string) string {
			return fmt.Sprintf(", annotations: {helm.sh/hook: %q%s}", event, rest)
		}
		Expect(h.Publish(ctx, ns, "a", "r1", harness.Tree("spec:\n  version: 1.0.0\n  components:\n  - {name: shop, helm: {chart: ./chart}}\n", map[string]string{
			"chart/Chart.yaml":             "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
			"chart/templates/main.yaml":    configMap("main", "1"),
			"chart/templates/migrate.yaml": aJob("migrate", "", hook("pre-install,pre-upgrade", ", helm.sh/hook-delete-policy: hook-succeeded")),
			"chart/templates/late.yaml":    aJob("late", cluster.FateNeverEnds, hook("pre-delete", `, helm.sh/hook-weight: "5"`)),
			"chart/templates/early.yaml":   aJob("early", cluster.FateNeverEnds, hook("pre-delete", `, helm.sh/hook-weight: "-5", helm.sh/hook-delete-policy: hook-succeeded`)),
			"chart/templates/account.yaml": "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: bye" + hook("pre-delete", "") + "}\n",
		}))).To(Succeed())
		mark, err := h.Plane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		a := install(ctx, ns, "a")
		becomesReady(ctx, a)
		gone(ctx, theJob(ns, "migrate"))
		Expect(get(ctx, &corev1.ServiceAccount{ObjectMeta: named(ns, "bye")})).To(Succeed())
		Expect(changedJobs(ctx, ns, mark)).To(ConsistOf("patch migrate", "patch main", "patch late", "patch early", "delete migrate"), "nothing runs twice")

		mark, err = h.Plane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		remove(ctx, a)
		says(ctx, a, metav1.ConditionUnknown, "Removing", "Job "+ns+"/early runs before")
		letEnd(ctx, ns)
		says(ctx, a, metav1.ConditionUnknown, "Removing", "Job "+ns+"/late runs before")
		letEnd(ctx, ns)
		gone(ctx, a, aConfigMap(ns, "main"), theJob(ns, "late"), theJob(ns, "early"))
		did := changedJobs(ctx, ns, mark)
		Expect(did[:2]).To(Equal([]string{"patch early", "patch late"}))
		Expect(did[2:]).To(ConsistOf("delete early", "delete late", "delete main"))
	})
})
