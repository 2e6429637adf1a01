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

// into publishes a stack whose component of a name is in a namespace that it
// asks for, under a source of that name, and returns what makes an install of it.
func into(ctx context.Context, ns, name, namespace string, docs ...string) func(*appsv1.KsctlInstall) {
	GinkgoHelper()
	files := map[string]string{}
	for i, d := range docs {
		files[fmt.Sprintf("main/%d.yaml", i)] = d
	}
	publish(ctx, ns, name, "main@sha1:1", tree("spec:\n  version: 1.0.0\n  components:\n"+
		"  - {name: main, manifests: [main/], namespace: "+namespace+", createNamespace: true}\n", files))
	return func(in *appsv1.KsctlInstall) { hourly(in); in.Spec.SourceRef.Name = name }
}

func theNamespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// vanished waits until a namespace does not exist.
func vanished(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(ctx, func() bool { return absent(ctx, theNamespace(name)) }, soon, "50ms").Should(BeTrue(), "namespace %s goes", name)
}

var _ = Describe("A namespace that installs ask for", func() {
	It("has several users, and goes with the last", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		shared := ns + "-shared"
		one := newInstall(ctx, ns, "one", into(ctx, ns, "one", shared, configMap("a", "1")))
		atRevision(ctx, one, "main@sha1:1")
		two := newInstall(ctx, ns, "two", into(ctx, ns, "two", shared, configMap("b", "1")))
		atRevision(ctx, two, "main@sha1:1")
		before := theNamespace(shared)
		Expect(get(ctx, before)).To(Succeed())

		removed(ctx, one)
		Expect(absent(ctx, aConfigMap(shared, "a"))).To(BeTrue())
		now := theNamespace(shared)
		Expect(get(ctx, now)).To(Succeed(), "the other one uses it")
		Expect(now.UID).To(Equal(before.UID))
		Expect(now.DeletionTimestamp).To(BeNil())
		Expect(seen(ctx, shared, "b").Data).To(HaveKeyWithValue("value", "1"))
		answered(ctx, two, "still fine?")
		Expect(ready(two).Status).To(BeEquivalentTo("True"))

		removed(ctx, two)
		vanished(ctx, shared)
	})

	It("goes when its users are removed at the same time", func(ctx SpecContext) {
		const namespaces = 6
		ns := namespaceFor(ctx)
		var all []*appsv1.KsctlInstall
		for i := range namespaces {
			shared := fmt.Sprintf("%s-%d", ns, i)
			for _, name := range []string{"one", "two", "three"} {
				in := fmt.Sprintf("%s-%d", name, i)
				all = append(all, newInstall(ctx, ns, in, into(ctx, ns, in, shared, configMap(name, "1"))))
			}
		}
		for _, in := range all {
			atRevision(ctx, in, "main@sha1:1")
		}
		for _, in := range all {
			Expect(plane.Client().Delete(ctx, in)).To(Succeed())
		}
		for i := range namespaces {
			vanished(ctx, fmt.Sprintf("%s-%d", ns, i))
		}
		for _, in := range all {
			removed(ctx, in)
		}
	})

	It("stays while something foreign is in it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		shared := ns + "-shared"
		in := newInstall(ctx, ns, "i", into(ctx, ns, "i", shared, configMap("a", "1")))
		atRevision(ctx, in, "main@sha1:1")
		foreign := theirs(ctx, shared, "foreign", metav1.ObjectMeta{})
		removed(ctx, in)
		Expect(absent(ctx, aConfigMap(shared, "a"))).To(BeTrue())
		released(ctx, foreign, "theirs")
		kept := theNamespace(shared)
		Expect(get(ctx, kept)).To(Succeed())
		Expect(kept.DeletionTimestamp).To(BeNil())
		Eventually(ctx, told(ctx, in, "Left"), soon).Should(ContainElement(HaveField("Message", And(ContainSubstring(shared), ContainSubstring("foreign is in it")))), "why is said")

		By("an install that comes later and finds it empty takes it along")
		again := newInstall(ctx, ns, "again", into(ctx, ns, "i", shared, configMap("a", "1")))
		atRevision(ctx, again, "main@sha1:1")
		Expect(plane.Client().Delete(ctx, foreign)).To(Succeed())
		removed(ctx, again)
		vanished(ctx, shared)
	})

	It("stays when it was there before", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		shared, err := plane.Namespace(ctx, "before")
		Expect(err).NotTo(HaveOccurred())
		before := theNamespace(shared)
		Expect(get(ctx, before)).To(Succeed())
		in := newInstall(ctx, ns, "i", into(ctx, ns, "i", shared, configMap("a", "1")), adopting(appsv1.AdoptNever))
		atRevision(ctx, in, "main@sha1:1")
		removed(ctx, in)
		after := theNamespace(shared)
		Expect(get(ctx, after)).To(Succeed())
		Expect(after.DeletionTimestamp).To(BeNil())
		Expect(after.Labels).To(Equal(before.Labels))
		Expect(after.Annotations).To(Equal(before.Annotations), "nothing of ours is left on it")
	})

	It("has all its users on it when it was replaced behind the back of one", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		shared := ns + "-shared"
		one := newInstall(ctx, ns, "one", into(ctx, ns, "one", shared, configMap("a", "1")))
		two := newInstall(ctx, ns, "two", into(ctx, ns, "two", shared, configMap("b", "1")))
		atRevision(ctx, one, "main@sha1:1")
		atRevision(ctx, two, "main@sha1:1")
		suspend(ctx, two)
		before := theNamespace(shared)
		Expect(get(ctx, before)).To(Succeed())
		Expect(plane.Client().Delete(ctx, before)).To(Succeed())
		Eventually(ctx, func() bool {
			now := theNamespace(shared)
			return get(ctx, now) == nil && now.UID != before.UID && !absent(ctx, aConfigMap(shared, "a"))
		}, 2*soon, "50ms").Should(BeTrue(), "it is made again for the first")
		commit(ctx, two, resume)
		Eventually(ctx, func() bool { return absent(ctx, aConfigMap(shared, "b")) }, soon, "50ms").Should(BeFalse(), "the second has its object again")
		removed(ctx, one)
		kept := theNamespace(shared)
		Expect(get(ctx, kept)).To(Succeed())
		Expect(kept.DeletionTimestamp).To(BeNil(), "the second uses it")
		removed(ctx, two)
		vanished(ctx, shared)
	})

	It("comes back with everything in it when somebody deletes it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		shared := ns + "-shared"
		one := newInstall(ctx, ns, "one", into(ctx, ns, "one", shared, configMap("a", "1"), deployment("web", "")))
		two := newInstall(ctx, ns, "two", into(ctx, ns, "two", shared, configMap("b", "1")))
		atRevision(ctx, one, "main@sha1:1")
		atRevision(ctx, two, "main@sha1:1")
		before := theNamespace(shared)
		Expect(get(ctx, before)).To(Succeed())
		began := time.Now()
		Expect(plane.Client().Delete(ctx, before)).To(Succeed())
		for _, name := range []string{"a", "b"} {
			Eventually(ctx, func() bool {
				now := theNamespace(shared)
				return get(ctx, now) == nil && now.UID != before.UID && !absent(ctx, aConfigMap(shared, name))
			}, 2*soon, "50ms").Should(BeTrue(), "%s is back in another namespace", name) // the control plane takes its time to empty one
		}
		AddReportEntry("back after", time.Since(began).Round(100*time.Millisecond).String(), ReportEntryVisibilityAlways)
		becomes(ctx, one, "True", "")
		becomes(ctx, two, "True", "")
		removed(ctx, one)
		removed(ctx, two)
		vanished(ctx, shared)
	})
})

var _ = Describe("A namespace that terminates", func() {
	It("is waited for without writes, with the inventory kept, and work goes on when it is gone", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		shared := ns + "-shared"
		var docs []string
		for i := range 10 {
			docs = append(docs, configMap(letter(i), "1"))
		}
		in := newInstall(ctx, ns, "i", into(ctx, ns, "i", shared, docs...))
		atRevision(ctx, in, "main@sha1:1")
		entries := len(in.Status.Inventory.Entries)
		stuck := theirs(ctx, shared, "stuck", metav1.ObjectMeta{Finalizers: []string{"example.com/theirs"}})
		Expect(plane.Client().Delete(ctx, theNamespace(shared))).To(Succeed())
		Eventually(ctx, func() bool { return absent(ctx, aConfigMap(shared, "a")) }, soon, "10ms").Should(BeTrue(), "its content goes")
		says(ctx, in, "False", "ReconciliationFailed", shared, "terminat")
		Expect(in.Status.Inventory.Entries).To(HaveLen(entries), "nothing is forgotten")

		mark := marked(ctx)
		Consistently(ctx, func() cluster.Requests {
			return since(ctx, mark, cluster.As(tenant(ns)), cluster.Write)
		}, 17*time.Second, time.Second).Should(HaveLen(0), "writes stop")
		Expect(get(ctx, in)).To(Succeed())
		Expect(ready(in).Message).NotTo(ContainSubstring("keeps being changed"), "this is no fight")

		Expect(merge(`{"metadata":{"finalizers":null}}`)(ctx, stuck)).To(Succeed())
		becomes(ctx, in, "True", "")
		for i := range 10 {
			Expect(seen(ctx, shared, letter(i)).Data).To(HaveKeyWithValue("value", "1"))
		}
		removed(ctx, in)
		vanished(ctx, shared)
	})

	It("does not hold the removal of an install", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		shared := ns + "-shared"
		in := newInstall(ctx, ns, "i", into(ctx, ns, "i", shared, configMap("a", "1")))
		atRevision(ctx, in, "main@sha1:1")
		stuck := theirs(ctx, shared, "stuck", metav1.ObjectMeta{Finalizers: []string{"example.com/theirs"}})
		Expect(plane.Client().Delete(ctx, theNamespace(shared))).To(Succeed())
		Expect(plane.Client().Delete(ctx, in)).To(Succeed())
		says(ctx, in, "Unknown", "Removing", "Namespace "+shared+" is being deleted since", "has finalizers remaining: example.com/theirs in 1 resource instances")
		Expect(merge(`{"metadata":{"finalizers":null}}`)(ctx, stuck)).To(Succeed())
		removed(ctx, in)
		vanished(ctx, shared)
	})

	It("says what is left in it, also where it is an object of the stack", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		own := ns + "-own"
		publish(ctx, ns, "i", "main@sha1:1", tree("spec:\n  version: 1.0.0\n  components: [{name: main, manifests: [main/]}]\n",
			map[string]string{"main/ns.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + own + "}\n"}))
		in := newInstall(ctx, ns, "i", func(in *appsv1.KsctlInstall) { hourly(in); in.Spec.SourceRef.Name = "i" })
		atRevision(ctx, in, "main@sha1:1")
		stuck := theirs(ctx, own, "stuck", metav1.ObjectMeta{Finalizers: []string{"example.com/theirs"}})
		Expect(plane.Client().Delete(ctx, theNamespace(own))).To(Succeed())
		Expect(plane.Client().Delete(ctx, in)).To(Succeed())
		says(ctx, in, "Unknown", "Removing", "Namespace "+own+" is being deleted since", "has finalizers remaining: example.com/theirs in 1 resource instances")
		Expect(merge(`{"metadata":{"finalizers":null}}`)(ctx, stuck)).To(Succeed())
		removed(ctx, in)
		vanished(ctx, own)
	})
})
