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

// jobManifest returns the manifest of a Job whose pod has a fate.
func jobManifest(name, fate, meta string) string {
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

const preRemoveStack = `spec:
  version: 1.0.0
  components:
  - {name: web, manifests: [web/]}
  - {name: db, manifests: [db/]}
  - {name: drain, manifests: [drain/], dependsOn: [db], preRemove: true}
`

// installWithPreRemoveJob installs a stack with a Job that runs before the removal.
func installWithPreRemoveJob(ctx context.Context, ns, fate string,
	change ...func(*appsv1.KsctlInstall)) *appsv1.KsctlInstall {
	GinkgoHelper()
	Expect(h.PublishSource(ctx, ns, "a", "r1", harness.SourceTree(preRemoveStack, map[string]string{
		"web/a.yaml": configMap("web", "1"), "db/a.yaml": configMap("db", "1"),
		"drain/j.yaml": jobManifest("drain", fate, "")}))).To(Succeed())
	a := install(ctx, ns, "a", change...)
	becomesReady(ctx, a)
	return a
}

func jobObject(ns, name string) *batchv1.Job { return &batchv1.Job{ObjectMeta: objectMeta(ns, name)} }

// endlessPods returns a function for Eventually with the pods of a namespace that never end.
func endlessPods(ctx context.Context, ns string) func() ([]corev1.Pod, error) {
	return func() ([]corev1.Pod, error) {
		var list corev1.PodList
		err := h.ControlPlane.Client().List(ctx, &list, inNamespace(ns))
		return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
			return p.Annotations[cluster.FateAnnotation] != cluster.FateNeverEnds
		}), err
	}
}

// completePods lets the endless pods of a namespace end, as soon as there are any.
func completePods(ctx context.Context, ns string) {
	GinkgoHelper()
	var pods []corev1.Pod
	Eventually(ctx, func() (_ []corev1.Pod, err error) {
		pods, err = endlessPods(ctx, ns)()
		return pods, err
	}, soon, "50ms").ShouldNot(BeEmpty(), "the pods exist")
	for i := range pods {
		body := []byte(`{"metadata":{"annotations":{"` + cluster.FateAnnotation + `":null}}}`)
		err := h.ControlPlane.Client().Patch(ctx, &pods[i], client.RawPatch(types.MergePatchType, body))
		Expect(client.IgnoreNotFound(err)).To(Succeed(), "a pod may be deleted with its Job")
	}
}

// writtenObjects returns the Jobs that were patched and deleted since a mark, and the ConfigMaps
// that were deleted, in order.
func writtenObjects(ctx context.Context, ns string, mark cluster.Mark) (out []string) {
	GinkgoHelper()
	requests, err := h.ControlPlane.AuditSince(ctx, mark)
	Expect(err).NotTo(HaveOccurred())
	// A write that conflicts with a late status write of the Job is rejected and retried.
	for _, r := range requests.Where(cluster.InNamespace(ns), cluster.Write,
		cluster.ByEffectiveUser(cluster.ServiceAccountUser(ns, harness.Deployer))).Without(cluster.Failed) {
		if r.Resource == "jobs" || r.Resource == "configmaps" {
			out = append(out, r.Verb+" "+r.Name)
		}
	}
	return out
}

var _ = Describe("A Job that runs before a removal", func() {
	It("stays suspended until then, and completes before anything is removed, also without source "+
		"and stack", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a := installWithPreRemoveJob(ctx, ns, cluster.FateNeverEnds)
		job := jobObject(ns, "drain")
		Expect(get(ctx, job)).To(Succeed())
		Expect(job.Spec.Suspend).To(HaveValue(BeTrue()))
		By("another client that resumes it is corrected")
		mergePatch(ctx, job, `{"spec":{"suspend":false}}`)
		Eventually(ctx, func() *bool {
			_ = get(ctx, job)
			return job.Spec.Suspend
		}, soon, "20ms").Should(HaveValue(BeTrue()))
		Eventually(ctx, endlessPods(ctx, ns), soon, "50ms").Should(BeEmpty(), "its pods are deleted")

		mark, err := h.ControlPlane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		remove(ctx, &appsv1.KsctlSource{ObjectMeta: objectMeta(ns, "a")}, a)
		reports(ctx, a, metav1.ConditionUnknown, "Removing", "3 objects are left to remove",
			"Job "+ns+"/drain runs before anything is removed, and is not done")
		Eventually(ctx, eventMessages(ctx, a, "PreRemove"), soon, "20ms").
			Should(ConsistOf(ContainSubstring("Job " + ns + "/drain (it runs before anything is removed)")))
		Consistently(ctx, func() bool {
			return absent(ctx, aConfigMap(ns, "web")) || absent(ctx, aConfigMap(ns, "db"))
		}, quiet, "200ms").Should(BeFalse())
		completePods(ctx, ns)
		awaitGone(ctx, a, job, aConfigMap(ns, "db"), aConfigMap(ns, "web"))
		did := writtenObjects(ctx, ns, mark)
		Expect(did[:2]).To(Equal([]string{"patch drain", "delete drain"}), "the dependents of db are deleted before it")
		Expect(did[2:]).To(ConsistOf("delete db", "delete web"))
		Eventually(ctx, eventMessages(ctx, a, "PreRemove"), soon, "20ms").
			Should(ContainElement(ContainSubstring("Job " + ns + "/drain (it succeeded)")))
	})

	It("blocks the removal when it fails, which is reported, until a user deletes the Job", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a := installWithPreRemoveJob(ctx, ns, cluster.FateFails)
		remove(ctx, a)
		reports(ctx, a, metav1.ConditionFalse, "PreRemoveFailed", "3 objects are left to remove",
			"Job "+ns+"/drain, which runs before anything is removed, has failed", "delete the Job")
		Consistently(ctx, func() bool {
			return absent(ctx, aConfigMap(ns, "db")) || absent(ctx, jobObject(ns, "drain"))
		}, quiet, "200ms").Should(BeFalse())
		Expect(h.ControlPlane.Client().
			Delete(ctx, jobObject(ns, "drain"), client.PropagationPolicy(metav1.DeletePropagationBackground))).
			To(Succeed())
		awaitGone(ctx, a, aConfigMap(ns, "db"), aConfigMap(ns, "web"))
		Eventually(ctx, eventMessages(ctx, a, "PreRemoveSkipped"), soon, "20ms").
			Should(ConsistOf(ContainSubstring("Job " + ns + "/drain (it is gone: it did not run)")))
	})

	It("does not run with deletionPolicy Orphan, or when a user abandons the removal", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a := installWithPreRemoveJob(ctx, ns, cluster.FateFails, func(in *appsv1.KsctlInstall) {
			in.Spec.DeletionPolicy = appsv1.DeletionOrphan
		})
		remove(ctx, a)
		awaitGone(ctx, a)
		job := jobObject(ns, "drain")
		Expect(get(ctx, job)).To(Succeed())
		Expect(job.Spec.Suspend).To(HaveValue(BeTrue()))

		ns = namespaceFor(ctx)
		a = installWithPreRemoveJob(ctx, ns, cluster.FateFails)
		remove(ctx, a)
		reports(ctx, a, metav1.ConditionFalse, "PreRemoveFailed")
		mergePatch(ctx, a, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, appsv1.AbandonAnnotation, a.UID))
		awaitGone(ctx, a)
		Eventually(ctx, eventMessages(ctx, a, "Abandoned"), soon, "20ms").
			Should(ConsistOf(ContainSubstring("Job " + ns + "/drain")))
		Expect(get(ctx, aConfigMap(ns, "db"))).To(Succeed())
	})

	It("runs when its components are disabled, and again when they are enabled and "+
		"disabled again", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a := installWithPreRemoveJob(ctx, ns, cluster.FateNeverEnds)
		const off = `{"spec":{"components":[{"name":"db","enabled":false},{"name":"drain","enabled":false}]}}`
		first := jobObject(ns, "drain")
		Expect(get(ctx, first)).To(Succeed())
		mergePatch(ctx, a, off)
		reports(ctx, a, metav1.ConditionUnknown, "", "Job "+ns+"/drain runs before anything is removed")
		Expect(absent(ctx, aConfigMap(ns, "db"))).To(BeFalse())
		Eventually(ctx, endlessPods(ctx, ns), soon, "50ms").
			ShouldNot(BeEmpty(), "its pod exists, which must be gone when the Job is suspended")

		By("enabling the components again suspends it")
		mergePatch(ctx, a, `{"spec":{"components":null}}`)
		becomesReady(ctx, a)
		Expect(get(ctx, first)).To(Succeed())
		Expect(first.Spec.Suspend).To(HaveValue(BeTrue()))
		Eventually(ctx, endlessPods(ctx, ns), soon, "50ms").Should(BeEmpty(), "its pod is deleted")

		By("the components are removed when it is complete")
		mergePatch(ctx, a, off)
		reports(ctx, a, metav1.ConditionUnknown, "", "Job "+ns+"/drain runs before anything is removed")
		completePods(ctx, ns)
		becomesReady(ctx, a)
		Expect(absent(ctx, aConfigMap(ns, "db"))).To(BeTrue())
		Expect(absent(ctx, first)).To(BeTrue())
		Expect(absent(ctx, aConfigMap(ns, "web"))).To(BeFalse())
		mergePatch(ctx, a, `{"spec":{"components":null}}`)
		becomesReady(ctx, a)
		again := jobObject(ns, "drain")
		Expect(get(ctx, again)).To(Succeed())
		Expect(again.UID).NotTo(Equal(first.UID))
		Expect(again.Spec.Suspend).To(HaveValue(BeTrue()))
		remove(ctx, a)
		reports(ctx, a, metav1.ConditionUnknown, "Removing", "Job "+ns+"/drain runs before")
		completePods(ctx, ns)
		awaitGone(ctx, a, again)
	})
})
