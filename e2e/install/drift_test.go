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
)

// settled installs ConfigMaps a, b, ... and returns the install.
func settled(ctx context.Context, ns string, n int, change ...func(*appsv1.KsctlInstall)) *appsv1.KsctlInstall {
	GinkgoHelper()
	var docs []string
	for i := range n {
		docs = append(docs, configMap(letter(i), "1"))
	}
	stack(ctx, ns, "main@sha1:1", docs...)
	in := newInstall(ctx, ns, "i", append([]func(*appsv1.KsctlInstall){hourly}, change...)...)
	atRevision(ctx, in, "main@sha1:1")
	return in
}

// letter avoids n and y, which YAML 1.1 takes for booleans.
func letter(i int) string { return string("abcdefghijklmopqrstuvwxz"[i]) }

// restored waits until a ConfigMap is as it was, as far as it is ours.
func restored(ctx context.Context, was *corev1.ConfigMap) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		cm := aConfigMap(was.Namespace, was.Name)
		g.Expect(get(ctx, cm)).To(Succeed())
		g.Expect(cm.Data).To(Equal(was.Data))
		g.Expect(cm.Labels).To(Equal(was.Labels))
		g.Expect(cm.Annotations).To(Equal(was.Annotations))
	}, soon, 5*time.Millisecond).Should(Succeed(), "%s is put right", was.Name)
}

// percentile is the least of the values that p percent of them do not exceed.
func percentile(all []time.Duration, p int) time.Duration {
	return slices.Sorted(slices.Values(all))[(len(all)*p+99)/100-1]
}

// merge is a change by another writer.
func merge(body string) func(context.Context, *corev1.ConfigMap) error {
	return func(ctx context.Context, cm *corev1.ConfigMap) error {
		return patch(ctx, cm.DeepCopy(), "mallory", body)
	}
}

var _ = Describe("Drift", func() {
	DescribeTable("is put right by its event",
		func(ctx SpecContext, change func(context.Context, *corev1.ConfigMap) error) {
			const objects = 20
			ns := namespaceFor(ctx)
			in := settled(ctx, ns, objects)
			status := ready(in)
			mark := marked(ctx)
			var took []time.Duration
			for i := range objects {
				was := seen(ctx, ns, letter(i))
				began := time.Now()
				Expect(change(ctx, was)).To(Succeed())
				restored(ctx, was)
				took = append(took, time.Since(began))
			}
			p50, p95 := percentile(took, 50), percentile(took, 95)
			AddReportEntry("put right", fmt.Sprintf("p50 %s, p95 %s of %d", p50.Round(time.Millisecond), p95.Round(time.Millisecond), objects),
				ReportEntryVisibilityAlways)
			Expect(p50).To(BeNumerically("<=", 30*time.Second), "also on a busy machine: every timer is an hour away")
			n := writes(ctx, ns, mark)
			Expect(n).To(HaveLen(objects), n.String())
			Expect(get(ctx, in)).To(Succeed())
			Expect(ready(in)).To(Equal(status), "it never stopped being ready")
		},
		Entry("an edited field", merge(`{"data":{"value":"drifted"}}`)),
		Entry("a field taken out", merge(`{"data":{"value":null}}`)),
		Entry("a deleted object", func(ctx context.Context, cm *corev1.ConfigMap) error { return plane.Client().Delete(ctx, cm) }),
		Entry("the label taken off", merge(`{"metadata":{"labels":{"`+live.OwnerLabel+`":null}}}`)),
		Entry("another value of the label", merge(`{"metadata":{"labels":{"`+live.OwnerLabel+`":"someone"}}}`)),
		Entry("the mark taken off", merge(`{"metadata":{"annotations":{"`+live.MarkAnnotation+`":null}}}`)),
		Entry("the mark made unreadable", merge(`{"metadata":{"annotations":{"`+live.MarkAnnotation+`":"x"}}}`)),
		Entry("label and mark taken off", merge(`{"metadata":{"labels":null,"annotations":null}}`)),
	)

	It("is put right whatever tool another writer uses", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		settled(ctx, ns, 4)
		foreign := func(name string) string { return configMap(name, "theirs") }

		By("replacing the object, as kubectl edit and kubectl replace do")
		a := seen(ctx, ns, "a")
		changed := a.DeepCopy()
		changed.Data["value"] = "theirs"
		Expect(plane.Client().Update(ctx, changed, client.FieldOwner("kubectl-edit"))).To(Succeed())
		restored(ctx, a)

		By("kubectl apply, client-side")
		kubectl(ctx, ns, foreign("b"), "apply", "-f", "-")
		Eventually(ctx, func() map[string]string { return seen(ctx, ns, "b").Data }, soon, "20ms").Should(Equal(map[string]string{"value": "1"}))
		Expect(seen(ctx, ns, "b").Annotations).To(HaveKey(corev1.LastAppliedConfigAnnotation), "what is theirs stays")

		By("kubectl apply, server-side and forced")
		c := seen(ctx, ns, "c")
		kubectl(ctx, ns, foreign("c"), "apply", "--server-side", "--force-conflicts", "-f", "-")
		restored(ctx, c)

		By("deleting it and making another one at once")
		Expect(plane.Client().Delete(ctx, aConfigMap(ns, "d"))).To(Succeed())
		other := aConfigMap(ns, "d")
		other.Data = map[string]string{"value": "theirs"}
		Expect(client.IgnoreAlreadyExists(plane.Client().Create(ctx, other))).To(Succeed())
		Eventually(ctx, func() map[string]string { return seen(ctx, ns, "d").Data }, soon, "20ms").Should(Equal(map[string]string{"value": "1"}))
	})

	It("is put right where the API server would not have theirs and ours together", func(ctx SpecContext) {
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
			Eventually(ctx, func() error { // as often as somebody writes in between
				changed := service()
				changed.Spec.Ports[0].Port = 81 // the key of the item
				changed.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
				return plane.Client().Update(ctx, changed, client.FieldOwner(manager))
			}, soon).Should(Succeed())
			Eventually(ctx, func() []corev1.ServicePort { return service().Spec.Ports }, soon, "20ms").Should(Equal(was.Spec.Ports), "%s is undone", manager)
			is := service()
			Expect(is.UID).To(Equal(was.UID))
			Expect(is.Spec.ClusterIP).To(Equal(was.Spec.ClusterIP))
			Expect(is.Spec.SessionAffinity).To(Equal(corev1.ServiceAffinityClientIP), "what is only theirs stays")
			becomes(ctx, in, "True", "")
		}
	})

	It("is said and left under Warn", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := settled(ctx, ns, 3, drifting(appsv1.Drift{Mode: appsv1.DriftWarn}))
		mark := marked(ctx)
		Expect(merge(`{"data":{"value":"theirs"}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
		Expect(plane.Client().Delete(ctx, aConfigMap(ns, "b"))).To(Succeed())
		says(ctx, in, "True", "ReconciliationSucceeded", "left so", "ConfigMap "+ns+"/a", "ConfigMap "+ns+"/b")
		Expect(ready(in).Message).NotTo(ContainSubstring("ConfigMap " + ns + "/c"))
		noWrites(ctx, ns, mark, "it is left")
		Expect(seen(ctx, ns, "a").Data).To(HaveKeyWithValue("value", "theirs"))

		stack(ctx, ns, "main@sha1:2", configMap("a", "2"), configMap("b", "1"), configMap("c", "1"))
		atRevision(ctx, in, "main@sha1:2")
		Expect(seen(ctx, ns, "a").Data).To(HaveKeyWithValue("value", "2"), "a change in Git is applied")
		Expect(ready(in).Message).NotTo(ContainSubstring("ConfigMap " + ns + "/a"))

		edit(ctx, in, func(in *appsv1.KsctlInstall) { in.Spec.Drift.Mode = appsv1.DriftCorrect })
		Eventually(ctx, func() bool { return absent(ctx, aConfigMap(ns, "b")) }, soon, "20ms").Should(BeFalse(), "what was left is put right")
		becomes(ctx, in, "True", "")
		Expect(ready(in).Message).NotTo(ContainSubstring("left so"))
	})

	It("is left in silence under Ignore", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := settled(ctx, ns, 2, drifting(appsv1.Drift{Mode: appsv1.DriftIgnore}))
		was := ready(in).Message
		mark := marked(ctx)
		Expect(merge(`{"data":{"value":"theirs"}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
		Expect(plane.Client().Delete(ctx, aConfigMap(ns, "b"))).To(Succeed())
		noWrites(ctx, ns, mark, "it is left")
		answered(ctx, in, "again")
		Expect(ready(in).Message).To(Equal(was))
		Expect(ready(in).Status).To(BeEquivalentTo("True"))
		noWrites(ctx, ns, mark, "it is left")
	})

	It("is not what others do with fields of their own", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"), deployment("web", ""))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		mark := marked(ctx)
		for _, what := range []string{"configmap/a", "deployment/web"} {
			kubectl(ctx, ns, "", "annotate", what, "note=theirs")
			kubectl(ctx, ns, "", "annotate", what, "note=changed", "--overwrite")
			kubectl(ctx, ns, "", "annotate", what, "note-")
			kubectl(ctx, ns, "", "label", what, "team=theirs")
		}
		Expect(merge(`{"data":{"more":"theirs"},"metadata":{"finalizers":["example.com/theirs"]}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
		Expect(patch(ctx, aDeployment(ns, "web"), "mallory", `{"spec":{"template":{"metadata":{"annotations":{"restarted":"now"}}},"minReadySeconds":1}}`)).To(Succeed())
		kubectl(ctx, ns, "", "patch", "deployment/web", "--subresource=status", "--type=merge", "-p", `{"status":{"conditions":[]}}`)
		becomes(ctx, in, "True", "")
		noWrites(ctx, ns, mark, "nothing of ours was changed")
		Eventually(ctx, func() string { becomes(ctx, in, "True", ""); return ready(in).Message }, soon).Should(ContainSubstring("2 objects ready"))
		own := since(ctx, mark, cluster.By(cluster.ServiceAccountUser(systemNamespace, account)), cluster.Resource("ksctlinstalls/status"), cluster.In(ns))
		AddReportEntry("status writes while pods were replaced", len(own))
		Expect(merge(`{"metadata":{"finalizers":null}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
	})
})
