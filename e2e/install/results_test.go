package install_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/cluster"
)

// endPod ends the pod of a Job, which has the fate FateNeverEnds, with a termination message.
func endPod(ctx context.Context, ns, job string, exitCode int32, message string) {
	GinkgoHelper()
	var pod corev1.Pod
	Eventually(ctx, func(g Gomega) {
		var pods corev1.PodList
		g.Expect(plane.Client().List(ctx, &pods, client.InNamespace(ns), client.MatchingLabels{"job-name": job})).
			To(Succeed())
		g.Expect(pods.Items).To(HaveLen(1))
		g.Expect(pods.Items[0].Status.Phase).To(Equal(corev1.PodRunning))
		pod = pods.Items[0]
	}, soon).Should(Succeed(), "the Job has a pod that runs")
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodSucceeded
	if exitCode != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Image: "example.com/main:1",
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: exitCode, Message: message,
			StartedAt: metav1.Now(), FinishedAt: metav1.Now()}}}}
	Expect(plane.Client().Status().Patch(ctx, &pod, client.MergeFrom(before))).To(Succeed())
}

var _ = Describe("Results of Jobs", func() {
	// result waits until the result of a Job is recorded.
	result := func(ctx context.Context, ns, name string) string {
		GinkgoHelper()
		j := &batchv1.Job{ObjectMeta: objectMeta(ns, name)}
		Eventually(ctx, func() (map[string]string, error) {
			err := get(ctx, j)
			return j.Annotations, err
		}, soon).Should(HaveKey(live.ResultAnnotation), "the result of Job %s is recorded", name)
		return j.Annotations[live.ResultAnnotation]
	}

	It("are read once, stay, and say why a Job failed", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		files := func(meta string) map[string]string {
			return map[string]string{"run/a.yaml": job("silent", "", "", meta),
				"run/b.yaml": job("counts", cluster.FateNeverEnds, "", meta),
				"run/c.yaml": job("fails", cluster.FateNeverEnds, "", meta)}
		}
		publish(ctx, ns, "src", "main@sha1:1", tree(components("run"), files("")))
		mark := auditMark(ctx)
		in := newInstall(ctx, ns, "i", hourly)
		Expect(result(ctx, ns, "silent")).To(BeEmpty())
		endPod(ctx, ns, "counts", 0, `{"items": 3}`)
		Expect(result(ctx, ns, "counts")).To(Equal(`{"items": 3}`))
		endPod(ctx, ns, "fails", 2, `{"message": "table orders does not exist"}`)
		Expect(result(ctx, ns, "fails")).To(Equal(`{"message": "table orders does not exist"}`))
		reports(ctx, in, "False", "JobFailed", "Job "+ns+"/fails failed: table orders does not exist")

		requestReconcile(ctx, in, "again")
		publish(ctx, ns, "src", "main@sha1:2", tree(components("run"), files(`, labels: {changed: "yes"}`)))
		Eventually(ctx, func() (string, error) {
			j := &batchv1.Job{ObjectMeta: objectMeta(ns, "fails")}
			err := get(ctx, j)
			return j.Labels["changed"] + " " + j.Annotations[live.ResultAnnotation], err
		}, soon).Should(Equal(`yes {"message": "table orders does not exist"}`), "an apply leaves the result")
		Expect(result(ctx, ns, "counts")).To(Equal(`{"items": 3}`))
		reports(ctx, in, "False", "JobFailed", "table orders does not exist")
		lists := requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Resource("pods"))
		Expect(lists).To(HaveLen(3), fmt.Sprintf("one list for each Job that ended: %v", lists))
	})
})
