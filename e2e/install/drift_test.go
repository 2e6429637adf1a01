package install_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
)

// installConfigMaps installs ConfigMaps a, b, ... and returns the install when it is ready.
func installConfigMaps(ctx context.Context, ns string, n int,
	changes ...func(*appsv1.KsctlInstall)) *appsv1.KsctlInstall {
	GinkgoHelper()
	var docs []string
	for i := range n {
		docs = append(docs, configMap(letter(i), "1"))
	}
	stack(ctx, ns, "main@sha1:1", docs...)
	in := newInstall(ctx, ns, "i", append([]func(*appsv1.KsctlInstall){hourly}, changes...)...)
	atRevision(ctx, in, "main@sha1:1")
	return in
}

// letter skips n and y, which YAML 1.1 parses as booleans.
func letter(i int) string { return string("abcdefghijklmopqrstuvwxz"[i]) }

// awaitRestored waits until data, labels and annotations of a ConfigMap are as before.
func awaitRestored(ctx context.Context, before *corev1.ConfigMap) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		cm := aConfigMap(before.Namespace, before.Name)
		g.Expect(get(ctx, cm)).To(Succeed())
		g.Expect(cm.Data).To(Equal(before.Data))
		g.Expect(cm.Labels).To(Equal(before.Labels))
		g.Expect(cm.Annotations).To(Equal(before.Annotations))
	}, soon, 5*time.Millisecond).Should(Succeed(), "%s is corrected", before.Name)
}

// percentile returns the smallest value v such that p percent of the values are at most v.
func percentile(all []time.Duration, p int) time.Duration {
	return slices.Sorted(slices.Values(all))[(len(all)*p+99)/100-1]
}

// mergePatch returns a change of a ConfigMap by another writer.
func mergePatch(body string) func(context.Context, *corev1.ConfigMap) error {
	return func(ctx context.Context, cm *corev1.ConfigMap) error {
		return patch(ctx, cm.DeepCopy(), "mallory", body)
	}
}

var _ = Describe("Drift", func() {
	DescribeTable("is corrected when its event arrives",
		func(ctx SpecContext, change func(context.Context, *corev1.ConfigMap) error) {
			const objects = 20
			ns := namespaceFor(ctx)
			in := installConfigMaps(ctx, ns, objects)
			status := ready(in)
			mark := auditMark(ctx)
			var took []time.Duration
			for i := range objects {
				was := getConfigMap(ctx, ns, letter(i))
				began := time.Now()
				Expect(change(ctx, was)).To(Succeed())
				awaitRestored(ctx, was)
				took = append(took, time.Since(began))
			}
			p50, p95 := percentile(took, 50), percentile(took, 95)
			AddReportEntry("corrected after",
				fmt.Sprintf("p50 %s, p95 %s of %d", p50.Round(time.Millisecond), p95.Round(time.Millisecond), objects),
				ReportEntryVisibilityAlways)
			Expect(p50).To(BeNumerically("<=", 30*time.Second),
				"also on a busy machine: every timer fires after an hour")
			n := writes(ctx, ns, mark)
			Expect(n).To(HaveLen(objects), n.String())
			Expect(get(ctx, in)).To(Succeed())
			Expect(ready(in)).To(Equal(status), "the install stayed ready")
		},
		Entry("an edited field", mergePatch(`{"data":{"value":"drifted"}}`)),
		Entry("a removed field", mergePatch(`{"data":{"value":null}}`)),
		Entry("a deleted object", func(ctx context.Context, cm *corev1.ConfigMap) error {
			return plane.Client().Delete(ctx, cm)
		}),
		Entry("the removed label", mergePatch(`{"metadata":{"labels":{"`+live.OwnerLabel+`":null}}}`)),
		Entry("a changed label", mergePatch(`{"metadata":{"labels":{"`+live.OwnerLabel+`":"someone"}}}`)),
		Entry("the removed mark", mergePatch(`{"metadata":{"annotations":{"`+live.MarkAnnotation+`":null}}}`)),
		Entry("an unreadable mark", mergePatch(`{"metadata":{"annotations":{"`+live.MarkAnnotation+`":"x"}}}`)),
		Entry("label and mark removed", mergePatch(`{"metadata":{"labels":null,"annotations":null}}`)),
	)

	It("is corrected for every tool of another writer", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		installConfigMaps(ctx, ns, 4)
		foreign := func(name string) string { return configMap(name, "theirs") }

		By("replacing the object, as kubectl edit and kubectl replace do")
		a := getConfigMap(ctx, ns, "a")
		changed := a.DeepCopy()
		changed.Data["value"] = "theirs"
		Expect(plane.Client().Update(ctx, changed, client.FieldOwner("kubectl-edit"))).To(Succeed())
		awaitRestored(ctx, a)

		By("kubectl apply, client-side")
		kubectl(ctx, ns, foreign("b"), "apply", "-f", "-")
		Eventually(ctx, func() map[string]string {
			return getConfigMap(ctx, ns, "b").Data
		}, soon, "20ms").Should(Equal(map[string]string{"value": "1"}))
		Expect(getConfigMap(ctx, ns, "b").Annotations).
			To(HaveKey(corev1.LastAppliedConfigAnnotation), "the annotation of the other writer stays")

		By("kubectl apply, server-side and forced")
		c := getConfigMap(ctx, ns, "c")
		kubectl(ctx, ns, foreign("c"), "apply", "--server-side", "--force-conflicts", "-f", "-")
		awaitRestored(ctx, c)

		By("deleting the object and creating another one at once")
		Expect(plane.Client().Delete(ctx, aConfigMap(ns, "d"))).To(Succeed())
		other := aConfigMap(ns, "d")
		other.Data = map[string]string{"value": "theirs"}
		Expect(client.IgnoreAlreadyExists(plane.Client().Create(ctx, other))).To(Succeed())
		Eventually(ctx, func() map[string]string {
			return getConfigMap(ctx, ns, "d").Data
		}, soon, "20ms").Should(Equal(map[string]string{"value": "1"}))
	})

	It("is corrected when the API server rejects the union of both writers' list items", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", `apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
`)
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		service := func() *corev1.Service {
			s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}}
			Expect(get(ctx, s)).To(Succeed())
			return s
		}
		was := service()
		for _, manager := range []string{"kubectl-edit", "kubectl-patch"} {
			Eventually(ctx, func() error { // retry conflicts
				changed := service()
				changed.Spec.Ports[0].Port = 81 // the merge key of the item
				changed.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
				return plane.Client().Update(ctx, changed, client.FieldOwner(manager))
			}, soon).Should(Succeed())
			Eventually(ctx, func() []corev1.ServicePort {
				return service().Spec.Ports
			}, soon, "20ms").Should(Equal(was.Spec.Ports), "the change by %s is corrected", manager)
			is := service()
			Expect(is.UID).To(Equal(was.UID))
			Expect(is.Spec.ClusterIP).To(Equal(was.Spec.ClusterIP))
			Expect(is.Spec.SessionAffinity).
				To(Equal(corev1.ServiceAffinityClientIP), "a field that only the other writer sets stays")
			becomes(ctx, in, "True", "")
		}
	})

	It("is reported and not corrected in mode Warn", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := installConfigMaps(ctx, ns, 3, withDrift(appsv1.Drift{Mode: appsv1.DriftWarn}))
		mark := auditMark(ctx)
		Expect(mergePatch(`{"data":{"value":"theirs"}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
		Expect(plane.Client().Delete(ctx, aConfigMap(ns, "b"))).To(Succeed())
		reports(ctx, in, "True", "ReconciliationSucceeded", "drift is not corrected", "ConfigMap "+ns+"/a",
			"ConfigMap "+ns+"/b")
		Expect(ready(in).Message).NotTo(ContainSubstring("ConfigMap " + ns + "/c"))
		expectNoWrites(ctx, ns, mark, "drift is not corrected")
		Expect(getConfigMap(ctx, ns, "a").Data).To(HaveKeyWithValue("value", "theirs"))

		stack(ctx, ns, "main@sha1:2", configMap("a", "2"), configMap("b", "1"), configMap("c", "1"))
		atRevision(ctx, in, "main@sha1:2")
		Expect(getConfigMap(ctx, ns, "a").Data).To(HaveKeyWithValue("value", "2"), "a change in Git is applied")
		Expect(ready(in).Message).NotTo(ContainSubstring("ConfigMap " + ns + "/a"))

		edit(ctx, in, func(in *appsv1.KsctlInstall) { in.Spec.Drift.Mode = appsv1.DriftCorrect })
		Eventually(ctx, func() bool {
			return absent(ctx, aConfigMap(ns, "b"))
		}, soon, "20ms").Should(BeFalse(), "earlier drift is corrected")
		becomes(ctx, in, "True", "")
		Expect(ready(in).Message).NotTo(ContainSubstring("drift is not corrected"))
	})

	It("is neither reported nor corrected in mode Ignore", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := installConfigMaps(ctx, ns, 2, withDrift(appsv1.Drift{Mode: appsv1.DriftIgnore}))
		was := ready(in).Message
		mark := auditMark(ctx)
		Expect(mergePatch(`{"data":{"value":"theirs"}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
		Expect(plane.Client().Delete(ctx, aConfigMap(ns, "b"))).To(Succeed())
		expectNoWrites(ctx, ns, mark, "drift is not corrected")
		requestReconcile(ctx, in, "again")
		Expect(ready(in).Message).To(Equal(was))
		Expect(ready(in).Status).To(BeEquivalentTo("True"))
		expectNoWrites(ctx, ns, mark, "drift is not corrected")
	})

	It("does not include fields that only other writers set", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"), deployment("web", ""))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		mark := auditMark(ctx)
		for _, what := range []string{"configmap/a", "deployment/web"} {
			kubectl(ctx, ns, "", "annotate", what, "note=theirs")
			kubectl(ctx, ns, "", "annotate", what, "note=changed", "--overwrite")
			kubectl(ctx, ns, "", "annotate", what, "note-")
			kubectl(ctx, ns, "", "label", what, "team=theirs")
		}
		Expect(mergePatch(`{"data":{"more":"theirs"},"metadata":{"finalizers":["example.com/theirs"]}}`)(ctx,
			aConfigMap(ns, "a"))).To(Succeed())
		Expect(patch(ctx, aDeployment(ns, "web"), "mallory",
			`{"spec":{"template":{"metadata":{"annotations":{"restarted":"now"}}},"minReadySeconds":1}}`)).To(Succeed())
		kubectl(ctx, ns, "", "patch", "deployment/web", "--subresource=status", "--type=merge", "-p",
			`{"status":{"conditions":[]}}`)
		becomes(ctx, in, "True", "")
		expectNoWrites(ctx, ns, mark, "no field of the stack was changed")
		Eventually(ctx, func() string {
			becomes(ctx, in, "True", "")
			return ready(in).Message
		}, soon).Should(ContainSubstring("2 objects ready"))
		own := requestsSince(ctx, mark,
			cluster.ByUser(cluster.ServiceAccountUser(harness.SystemNamespace, harness.ServiceAccount)),
			cluster.Resource("ksctlinstalls/status"), cluster.InNamespace(ns))
		AddReportEntry("status writes while pods were replaced", len(own))
		Expect(mergePatch(`{"metadata":{"finalizers":null}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
	})
})
