package install_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
)

// stackInNamespace publishes a source with a stack whose component has a namespace and
// createNamespace. It returns the change of an install that uses this source.
func stackInNamespace(ctx context.Context, ns, name, namespace string, docs ...string) func(*appsv1.KsctlInstall) {
	GinkgoHelper()
	files := map[string]string{}
	for i, d := range docs {
		files[fmt.Sprintf("main/%d.yaml", i)] = d
	}
	publish(ctx, ns, name, "main@sha1:1", tree("spec:\n  version: 1.0.0\n  components:\n"+
		"  - {name: main, manifests: [main/], namespace: "+namespace+", createNamespace: true}\n", files))
	return func(in *appsv1.KsctlInstall) { hourly(in); in.Spec.SourceRef.Name = name }
}

func aNamespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// awaitNamespaceGone waits until a namespace does not exist.
func awaitNamespaceGone(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(ctx, func() bool {
		return absent(ctx, aNamespace(name))
	}, soon, "50ms").Should(BeTrue(), "namespace %s is gone", name)
}

var _ = Describe("A namespace that installs create", func() {
	It("is shared by installs, and deleted with the last of them", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		shared := ns + "-shared"
		one := newInstall(ctx, ns, "one", stackInNamespace(ctx, ns, "one", shared, configMap("a", "1")))
		atRevision(ctx, one, "main@sha1:1")
		two := newInstall(ctx, ns, "two", stackInNamespace(ctx, ns, "two", shared, configMap("b", "1")))
		atRevision(ctx, two, "main@sha1:1")
		before := aNamespace(shared)
		Expect(get(ctx, before)).To(Succeed())

		deleteAndWait(ctx, one)
		Expect(absent(ctx, aConfigMap(shared, "a"))).To(BeTrue())
		now := aNamespace(shared)
		Expect(get(ctx, now)).To(Succeed(), "the other install uses it")
		Expect(now.UID).To(Equal(before.UID))
		Expect(now.DeletionTimestamp).To(BeNil())
		Expect(getConfigMap(ctx, shared, "b").Data).To(HaveKeyWithValue("value", "1"))
		requestReconcile(ctx, two, "still fine?")
		Expect(ready(two).Status).To(BeEquivalentTo("True"))

		deleteAndWait(ctx, two)
		awaitNamespaceGone(ctx, shared)
	})

	It("is deleted when all its installs are removed at the same time", func(ctx SpecContext) {
		const namespaces = 6
		ns := namespaceFor(ctx)
		var all []*appsv1.KsctlInstall
		for i := range namespaces {
			shared := fmt.Sprintf("%s-%d", ns, i)
			for _, name := range []string{"one", "two", "three"} {
				in := fmt.Sprintf("%s-%d", name, i)
				all = append(all, newInstall(ctx, ns, in, stackInNamespace(ctx, ns, in, shared, configMap(name, "1"))))
			}
		}
		for _, in := range all {
			atRevision(ctx, in, "main@sha1:1")
		}
		for _, in := range all {
			Expect(plane.Client().Delete(ctx, in)).To(Succeed())
		}
		for i := range namespaces {
			awaitNamespaceGone(ctx, fmt.Sprintf("%s-%d", ns, i))
		}
		for _, in := range all {
			deleteAndWait(ctx, in)
		}
	})

	It("stays while it contains an object of another owner", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		shared := ns + "-shared"
		in := newInstall(ctx, ns, "i", stackInNamespace(ctx, ns, "i", shared, configMap("a", "1")))
		atRevision(ctx, in, "main@sha1:1")
		foreign := foreignConfigMap(ctx, shared, "foreign", metav1.ObjectMeta{})
		deleteAndWait(ctx, in)
		Expect(absent(ctx, aConfigMap(shared, "a"))).To(BeTrue())
		expectReleased(ctx, foreign, "theirs")
		kept := aNamespace(shared)
		Expect(get(ctx, kept)).To(Succeed())
		Expect(kept.DeletionTimestamp).To(BeNil())
		Eventually(ctx, eventsWithReason(ctx, in, "Released"), soon).
			Should(ContainElement(HaveField("Message",
				And(ContainSubstring(shared), ContainSubstring("foreign is in the namespace")))),
				"the event has the reason")

		By("a later install deletes it when it is empty")
		again := newInstall(ctx, ns, "again", stackInNamespace(ctx, ns, "i", shared, configMap("a", "1")))
		atRevision(ctx, again, "main@sha1:1")
		Expect(plane.Client().Delete(ctx, foreign)).To(Succeed())
		deleteAndWait(ctx, again)
		awaitNamespaceGone(ctx, shared)
	})

	It("stays when it existed before the install", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		shared, err := plane.Namespace(ctx, "before")
		Expect(err).NotTo(HaveOccurred())
		before := aNamespace(shared)
		Expect(get(ctx, before)).To(Succeed())
		in := newInstall(ctx, ns, "i", stackInNamespace(ctx, ns, "i", shared, configMap("a", "1")),
			withAdopt(appsv1.AdoptNever))
		atRevision(ctx, in, "main@sha1:1")
		deleteAndWait(ctx, in)
		after := aNamespace(shared)
		Expect(get(ctx, after)).To(Succeed())
		Expect(after.DeletionTimestamp).To(BeNil())
		Expect(after.Labels).To(Equal(before.Labels))
		Expect(after.Annotations).To(Equal(before.Annotations), "our annotations are removed")
	})

	It("records all its installs again after it was replaced while one install was suspended", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		shared := ns + "-shared"
		one := newInstall(ctx, ns, "one", stackInNamespace(ctx, ns, "one", shared, configMap("a", "1")))
		two := newInstall(ctx, ns, "two", stackInNamespace(ctx, ns, "two", shared, configMap("b", "1")))
		atRevision(ctx, one, "main@sha1:1")
		atRevision(ctx, two, "main@sha1:1")
		suspend(ctx, two)
		before := aNamespace(shared)
		Expect(get(ctx, before)).To(Succeed())
		Expect(plane.Client().Delete(ctx, before)).To(Succeed())
		Eventually(ctx, func() bool {
			now := aNamespace(shared)
			return get(ctx, now) == nil && now.UID != before.UID && !absent(ctx, aConfigMap(shared, "a"))
		}, 2*soon, "50ms").Should(BeTrue(), "the first install recreates it")
		commit(ctx, two, resume)
		Eventually(ctx, func() bool {
			return absent(ctx, aConfigMap(shared, "b"))
		}, soon, "50ms").Should(BeFalse(), "the object of the second install is back")
		deleteAndWait(ctx, one)
		kept := aNamespace(shared)
		Expect(get(ctx, kept)).To(Succeed())
		Expect(kept.DeletionTimestamp).To(BeNil(), "the second install uses it")
		deleteAndWait(ctx, two)
		awaitNamespaceGone(ctx, shared)
	})

	It("is recreated with its objects after another client deletes it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		shared := ns + "-shared"
		one := newInstall(ctx, ns, "one",
			stackInNamespace(ctx, ns, "one", shared, configMap("a", "1"), deployment("web", "")))
		two := newInstall(ctx, ns, "two", stackInNamespace(ctx, ns, "two", shared, configMap("b", "1")))
		atRevision(ctx, one, "main@sha1:1")
		atRevision(ctx, two, "main@sha1:1")
		before := aNamespace(shared)
		Expect(get(ctx, before)).To(Succeed())
		began := time.Now()
		Expect(plane.Client().Delete(ctx, before)).To(Succeed())
		for _, name := range []string{"a", "b"} {
			Eventually(ctx, func() bool {
				now := aNamespace(shared)
				return get(ctx, now) == nil && now.UID != before.UID && !absent(ctx, aConfigMap(shared, name))
				// emptying a namespace takes the control plane a while
			}, 2*soon, "50ms").Should(BeTrue(), "%s is back in the new namespace", name)
		}
		AddReportEntry("back after", time.Since(began).Round(100*time.Millisecond).String(),
			ReportEntryVisibilityAlways)
		becomes(ctx, one, "True", "")
		becomes(ctx, two, "True", "")
		deleteAndWait(ctx, one)
		deleteAndWait(ctx, two)
		awaitNamespaceGone(ctx, shared)
	})
})

var _ = Describe("A terminating namespace", func() {
	It("causes no writes and no change of the inventory, and its objects are recreated when it "+
		"is gone", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		shared := ns + "-shared"
		var docs []string
		for i := range 10 {
			docs = append(docs, configMap(letter(i), "1"))
		}
		in := newInstall(ctx, ns, "i", stackInNamespace(ctx, ns, "i", shared, docs...))
		atRevision(ctx, in, "main@sha1:1")
		entries := len(in.Status.Inventory.Entries)
		stuck := foreignConfigMap(ctx, shared, "stuck", metav1.ObjectMeta{Finalizers: []string{"example.com/theirs"}})
		Expect(plane.Client().Delete(ctx, aNamespace(shared))).To(Succeed())
		Eventually(ctx, func() bool {
			return absent(ctx, aConfigMap(shared, "a"))
		}, soon, "10ms").Should(BeTrue(), "its objects are deleted")
		reports(ctx, in, "False", "ReconciliationFailed", shared, "terminat")
		Expect(in.Status.Inventory.Entries).To(HaveLen(entries), "the inventory keeps all entries")

		mark := auditMark(ctx)
		Consistently(ctx, func() cluster.Requests {
			return requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Write)
		}, 17*time.Second, time.Second).Should(HaveLen(0), "writes stop")
		Expect(get(ctx, in)).To(Succeed())
		Expect(ready(in).Message).NotTo(ContainSubstring("keeps being changed"), "it is not reported as contested")

		Expect(mergePatch(`{"metadata":{"finalizers":null}}`)(ctx, stuck)).To(Succeed())
		becomes(ctx, in, "True", "")
		for i := range 10 {
			Expect(getConfigMap(ctx, shared, letter(i)).Data).To(HaveKeyWithValue("value", "1"))
		}
		deleteAndWait(ctx, in)
		awaitNamespaceGone(ctx, shared)
	})

	It("does not block the removal of an install", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		shared := ns + "-shared"
		in := newInstall(ctx, ns, "i", stackInNamespace(ctx, ns, "i", shared, configMap("a", "1")))
		atRevision(ctx, in, "main@sha1:1")
		stuck := foreignConfigMap(ctx, shared, "stuck", metav1.ObjectMeta{Finalizers: []string{"example.com/theirs"}})
		Expect(plane.Client().Delete(ctx, aNamespace(shared))).To(Succeed())
		Expect(plane.Client().Delete(ctx, in)).To(Succeed())
		reports(ctx, in, "Unknown", "Removing", "Namespace "+shared+" is being deleted since",
			"has finalizers remaining: example.com/theirs in 1 resource instances")
		Expect(mergePatch(`{"metadata":{"finalizers":null}}`)(ctx, stuck)).To(Succeed())
		deleteAndWait(ctx, in)
		awaitNamespaceGone(ctx, shared)
	})

	It("is reported with what remains in it, also when it is an object of the stack", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		own := ns + "-own"
		publish(ctx, ns, "i", "main@sha1:1", tree("spec:\n  version: 1.0.0\n  components: [{name: main, manifests: "+
			"[main/]}]\n",
			map[string]string{"main/ns.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + own + "}\n"}))
		in := newInstall(ctx, ns, "i", func(in *appsv1.KsctlInstall) { hourly(in); in.Spec.SourceRef.Name = "i" })
		atRevision(ctx, in, "main@sha1:1")
		stuck := foreignConfigMap(ctx, own, "stuck", metav1.ObjectMeta{Finalizers: []string{"example.com/theirs"}})
		Expect(plane.Client().Delete(ctx, aNamespace(own))).To(Succeed())
		Expect(plane.Client().Delete(ctx, in)).To(Succeed())
		reports(ctx, in, "Unknown", "Removing", "Namespace "+own+" is being deleted since",
			"has finalizers remaining: example.com/theirs in 1 resource instances")
		Expect(mergePatch(`{"metadata":{"finalizers":null}}`)(ctx, stuck)).To(Succeed())
		deleteAndWait(ctx, in)
		awaitNamespaceGone(ctx, own)
	})
})
