package cluster_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/cluster"
)

// deployment returns a Deployment with two replicas of one fate ("" for the default).
func deployment(namespace, name, fate string) *appsv1.Deployment {
	replicas := int32(2)
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: fateAnnotations(fate)},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/main:1"}}},
			},
		},
	}
}

// job returns a Job without retries, with a fate.
func job(namespace, name, fate string) *batchv1.Job {
	never := int32(0)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: batchv1.JobSpec{
			BackoffLimit: &never,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: fateAnnotations(fate)},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever,
					Containers:    []corev1.Container{{Name: "main", Image: "example.com/main:1"}},
				},
			},
		},
	}
}

func fateAnnotations(fate string) map[string]string {
	if fate == "" {
		return nil
	}
	return map[string]string{cluster.FateAnnotation: fate}
}

// pods lists the pods of a namespace.
func pods(ctx context.Context, namespace string) []corev1.Pod {
	GinkgoHelper()
	list := &corev1.PodList{}
	Expect(controlPlane.Client().List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	return list.Items
}

// available returns the number of available replicas of a Deployment.
func available(ctx context.Context, d *appsv1.Deployment) func() (int32, error) {
	return func() (int32, error) {
		err := controlPlane.Client().Get(ctx, client.ObjectKeyFromObject(d), d)
		return d.Status.AvailableReplicas, err
	}
}

var _ = Describe("Workloads on fake nodes", func() {
	It("become Ready on nodes that the scheduler selects", func(ctx SpecContext) {
		ns := namespace(ctx)
		d := deployment(ns, "web", "")
		Expect(controlPlane.Client().Create(ctx, d)).To(Succeed())
		Eventually(ctx, available(ctx, d)).WithTimeout(waitTimeout).Should(BeEquivalentTo(2),
			"needs the ReplicaSet controller, the scheduler and kwok")
		for _, pod := range pods(ctx, ns) {
			Expect(pod.Spec.NodeName).To(HavePrefix("node-"))
			Expect(pod.Status.PodIP).NotTo(BeEmpty())
		}
	})

	It("succeed, fail or keep running, for Jobs with different fates", func(ctx SpecContext) {
		ns := namespace(ctx)
		good, bad, endless := job(ns, "good", ""), job(ns, "bad", cluster.FateFails),
			job(ns, "endless", cluster.FateNeverEnds)
		for _, j := range []*batchv1.Job{good, bad, endless} {
			Expect(controlPlane.Client().Create(ctx, j)).To(Succeed())
		}
		status := func(j *batchv1.Job) func() (batchv1.JobStatus, error) {
			return func() (batchv1.JobStatus, error) {
				err := controlPlane.Client().Get(ctx, client.ObjectKeyFromObject(j), j)
				return j.Status, err
			}
		}
		Eventually(ctx, status(good)).WithTimeout(waitTimeout).Should(HaveField("Succeeded", BeEquivalentTo(1)))
		Eventually(ctx, status(bad)).WithTimeout(waitTimeout).Should(HaveField("Failed", BeEquivalentTo(1)))
		Eventually(ctx, status(endless)).WithTimeout(waitTimeout).
			Should(HaveField("Ready", HaveValue(BeEquivalentTo(1))))
		// It still runs although the other two Jobs have ended.
		Expect(endless.Status.Succeeded + endless.Status.Failed).To(BeZero())
	})

	It("stay not Ready with the fates never-ready and fails, and ReplicaSets do not "+
		"replace them", func(ctx SpecContext) {
		ns := namespace(ctx)
		stuck, crashing := deployment(ns, "stuck", cluster.FateNeverReady),
			deployment(ns, "crashing", cluster.FateFails)
		Expect(controlPlane.Client().Create(ctx, stuck)).To(Succeed())
		Expect(controlPlane.Client().Create(ctx, crashing)).To(Succeed())
		waiting := func(_ Gomega) []corev1.Pod {
			var crashed []corev1.Pod
			for _, pod := range pods(ctx, ns) {
				for _, s := range pod.Status.ContainerStatuses {
					if s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff" {
						crashed = append(crashed, pod)
					}
				}
			}
			return crashed
		}
		Eventually(ctx, waiting).WithTimeout(waitTimeout).
			Should(HaveLen(2), "both replicas of the crashing Deployment restart")
		Eventually(ctx, func() []corev1.Pod {
			var scheduled []corev1.Pod
			for _, pod := range pods(ctx, ns) {
				if pod.Labels["app"] == "stuck" && pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodPending {
					scheduled = append(scheduled, pod)
				}
			}
			return scheduled
		}).WithTimeout(waitTimeout).Should(HaveLen(2), "the stuck pods have a node and stay Pending")
		Expect(pods(ctx, ns)).To(HaveLen(4))
	})

	It("follow a change of their fate", func(ctx SpecContext) {
		ns := namespace(ctx)
		d := deployment(ns, "web", "")
		Expect(controlPlane.Client().Create(ctx, d)).To(Succeed())
		Eventually(ctx, available(ctx, d)).WithTimeout(waitTimeout).Should(BeEquivalentTo(2))

		for _, fate := range []string{cluster.FateNeverReady, cluster.FateFails} {
			for _, pod := range pods(ctx, ns) {
				before := pod.DeepCopy()
				pod.Annotations = fateAnnotations(fate)
				Expect(controlPlane.Client().Patch(ctx, &pod, client.MergeFrom(before))).To(Succeed())
			}
			Eventually(ctx, available(ctx, d)).WithTimeout(waitTimeout).Should(BeEquivalentTo(0), "with the fate "+fate)
			for _, pod := range pods(ctx, ns) {
				before := pod.DeepCopy()
				pod.Annotations = nil
				Expect(controlPlane.Client().Patch(ctx, &pod, client.MergeFrom(before))).To(Succeed())
			}
			Eventually(ctx, available(ctx, d)).WithTimeout(waitTimeout).
				Should(BeEquivalentTo(2), "after the fate "+fate)
		}
	})

	It("are garbage collected when their Deployment is deleted", func(ctx SpecContext) {
		ns := namespace(ctx)
		d := deployment(ns, "web", "")
		Expect(controlPlane.Client().Create(ctx, d)).To(Succeed())
		Eventually(ctx, func() []corev1.Pod { return pods(ctx, ns) }).WithTimeout(waitTimeout).Should(HaveLen(2))

		Expect(controlPlane.Client().Delete(ctx, d, client.PropagationPolicy(metav1.DeletePropagationBackground))).
			To(Succeed())
		Eventually(ctx, func() []corev1.Pod { return pods(ctx, ns) }).WithTimeout(waitTimeout).Should(BeEmpty(),
			"the garbage collector deletes the ReplicaSet and the pods, and kwok ends the pods")
	})

	It("include garbage collection of a custom resource's children, for CRDs of "+
		"Options.CRDPaths", func(ctx SpecContext) {
		ns := namespace(ctx)
		owner := widget(ns, "owner")
		Expect(controlPlane.Client().Create(ctx, owner)).To(Succeed())
		child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: "child",
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(),
			}},
		}}
		Expect(controlPlane.Client().Create(ctx, child)).To(Succeed())
		Expect(controlPlane.Client().Delete(ctx, owner)).To(Succeed())
		Eventually(ctx, func() bool {
			return apierrors.IsNotFound(controlPlane.Client().Get(ctx, client.ObjectKeyFromObject(child), child))
		}).WithTimeout(waitTimeout).Should(BeTrue(), "its owner is deleted")
	})

	It("are deleted with their namespace", func(ctx SpecContext) {
		ns, err := controlPlane.Namespace(ctx, "doomed")
		Expect(err).NotTo(HaveOccurred())
		Expect(controlPlane.Client().Create(ctx, deployment(ns, "web", ""))).To(Succeed())
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
		Expect(controlPlane.Client().Delete(ctx, object)).To(Succeed())
		Eventually(ctx, func() bool {
			return apierrors.IsNotFound(controlPlane.Client().Get(ctx, client.ObjectKeyFromObject(object), object))
		}).WithTimeout(waitTimeout).Should(BeTrue(), "the namespace controller empties it first")
	})
})
