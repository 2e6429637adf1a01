package install_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/stacks"
)

var _ = Describe("Two installs with the same object", suite.Safety, func() {
	It("leave it to the first install, and the second takes over when the first is removed", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"))
		first := newInstall(ctx, ns, "first")
		atRevision(ctx, first, "main@sha1:1")
		uid := getConfigMap(ctx, ns, "a").UID

		second := newInstall(ctx, ns, "second")
		becomes(ctx, second, "False", appsv1.OwnedByAnotherReason)
		Expect(ready(second).Message).
			To(And(ContainSubstring("ConfigMap "+ns+"/a"), ContainSubstring("KsctlInstall "+ns+"/first")))
		a := getConfigMap(ctx, ns, "a")
		Expect(a.UID).To(Equal(uid))
		expectOwnedBy(a, first)
		mark := auditMark(ctx)
		requestReconcile(ctx, second, "again")
		Expect(writes(ctx, ns, mark)).To(BeEmpty(), "the index answers without a request")
		Expect(ready(second).Message).To(ContainSubstring("KsctlInstall " + ns + "/first"))

		deleteAndWait(ctx, first)
		atRevision(ctx, second, "main@sha1:1")
		a = getConfigMap(ctx, ns, "a")
		Expect(a.UID).To(Equal(uid), "an object of the second install is handed over, not deleted")
		expectOwnedBy(a, second)
	})

	It("hand over an adopted object, which stays adopted", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		before := foreignConfigMap(ctx, ns, "a", metav1.ObjectMeta{})
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"))
		first := newInstall(ctx, ns, "first", hourly)
		atRevision(ctx, first, "main@sha1:1")
		second := newInstall(ctx, ns, "second", hourly)
		becomes(ctx, second, "False", appsv1.OwnedByAnotherReason)
		mark := auditMark(ctx)
		deleteAndWait(ctx, first)
		atRevision(ctx, second, "main@sha1:1")
		a := getConfigMap(ctx, ns, "a")
		Expect(a.UID).To(Equal(before.UID))
		expectOwnedBy(a, second)
		n := writes(ctx, ns, mark)
		Expect(n).To(HaveLen(2), "the handover of the mark, and the apply of the second install: %s", n)
		Expect(mergePatch(`{"data":{"value":"drifted"}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
		awaitRestored(ctx, a)
		deleteAndWait(ctx, second)
		expectReleased(ctx, before, "1")
	})

	It("do not write the object of the first install when the second is removed", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"))
		first := newInstall(ctx, ns, "first")
		atRevision(ctx, first, "main@sha1:1")
		second := newInstall(ctx, ns, "second", withAdopt(appsv1.AdoptAlways))
		becomes(ctx, second, "False", appsv1.OwnedByAnotherReason)
		before := getConfigMap(ctx, ns, "a")
		deleteAndWait(ctx, second)
		Expect(getConfigMap(ctx, ns, "a").ResourceVersion).To(Equal(before.ResourceVersion), "it was not written")
		Consistently(ctx, eventsWithReason(ctx, second, "Released"), "1s").
			Should(BeEmpty(), "the second install released nothing")
	})
})

var _ = Describe("An object that existed before the install", suite.Safety, func() {
	It("is adopted with Unowned, and released by the removal of the install", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		before := foreignConfigMap(ctx, ns, "a",
			metav1.ObjectMeta{Labels: map[string]string{"app": "theirs"},
				Annotations: map[string]string{"note": "theirs"}})
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"))
		in := newInstall(ctx, ns, "i")
		atRevision(ctx, in, "main@sha1:1")
		a := getConfigMap(ctx, ns, "a")
		expectOwnedBy(a, in)
		Expect(a.UID).To(Equal(before.UID))
		Expect(a.Data).To(Equal(map[string]string{"value": "1", "more": "theirs"}))
		Expect(in.Status.Inventory.Entries[0].State).To(Equal(appsv1.EntryAdopted))
		Eventually(ctx, eventsWithReason(ctx, in, "Adopted"), soon).Should(HaveLen(1), "the adoption has an event")

		stack(ctx, ns, "main@sha1:2", configMap("a", "2"))
		atRevision(ctx, in, "main@sha1:2")
		deleteAndWait(ctx, in)
		expectReleased(ctx, before, "2")
	})

	It("is released when it leaves the stack", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		before := foreignConfigMap(ctx, ns, "a", metav1.ObjectMeta{})
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"), configMap("b", "1"))
		in := newInstall(ctx, ns, "i")
		atRevision(ctx, in, "main@sha1:1")
		stack(ctx, ns, "main@sha1:2", configMap("b", "1"))
		atRevision(ctx, in, "main@sha1:2")
		expectReleased(ctx, before, "1")
		Expect(in.Status.Inventory.Entries).To(HaveLen(1))
	})

	It("is not adopted with Never, and stays when the install is removed", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		before := foreignConfigMap(ctx, ns, "a", metav1.ObjectMeta{})
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"), configMap("b", "1"))
		in := newInstall(ctx, ns, "i", withAdopt(appsv1.AdoptNever))
		becomes(ctx, in, "False", appsv1.OwnedByAnotherReason)
		Expect(ready(in).Message).To(And(ContainSubstring("ConfigMap "+ns+"/a"), ContainSubstring("spec.adopt")))
		Expect(getConfigMap(ctx, ns, "b").Data).To(HaveKeyWithValue("value", "1"), "the others are applied")
		deleteAndWait(ctx, in)
		expectReleased(ctx, before, "theirs")
		Consistently(ctx, eventsWithReason(ctx, in, "Released"), "1s").Should(BeEmpty(), "the install released nothing")
	})

	It("is taken over with Always from any owner, and deleted with the install", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		before := foreignConfigMap(ctx, ns, "a",
			metav1.ObjectMeta{Labels: map[string]string{"kustomize.toolkit.fluxcd.io/name": "apps",
				"kustomize.toolkit.fluxcd.io/namespace": "flux-system"}})
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"))
		in := newInstall(ctx, ns, "i", withAdopt(appsv1.AdoptAlways))
		atRevision(ctx, in, "main@sha1:1")
		a := getConfigMap(ctx, ns, "a")
		Expect(a.UID).To(Equal(before.UID))
		Expect(a.Data).
			To(Equal(map[string]string{"value": "1"}), "fields of the former owner's field manager are removed")
		Expect(a.Labels).NotTo(HaveKey("kustomize.toolkit.fluxcd.io/name"),
			"otherwise the former owner could prune the object")
		Expect(a.ManagedFields).To(HaveEach(HaveField("Manager", live.FieldManager)))
		Eventually(ctx, eventsWithReason(ctx, in, "Adopted"), soon).
			Should(ContainElement(HaveField("Message",
				ContainSubstring("taken over from Flux Kustomization flux-system/apps"))))
		deleteAndWait(ctx, in)
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeTrue())
	})

	DescribeTable("is not adopted with Unowned while it has another owner",
		func(ctx SpecContext, meta metav1.ObjectMeta, owner string) {
			ns := namespaceFor(ctx)
			for i := range meta.OwnerReferences { // the garbage collector deletes objects whose owner does not exist
				account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns,
					Name: meta.OwnerReferences[i].Name}}
				Expect(get(ctx, account)).To(Succeed())
				meta.OwnerReferences[i].UID = account.UID
			}
			before := foreignConfigMap(ctx, ns, "a", meta)
			stack(ctx, ns, "main@sha1:1", configMap("a", "1"), configMap("b", "1"))
			in := newInstall(ctx, ns, "i", retryEvery(time.Second))
			becomes(ctx, in, "False", appsv1.OwnedByAnotherReason)
			Expect(ready(in).Message).To(And(ContainSubstring(owner), ContainSubstring("spec.adopt")))
			Expect(getConfigMap(ctx, ns, "a").ResourceVersion).To(Equal(before.ResourceVersion), "it was not written")
			Expect(getConfigMap(ctx, ns, "b").Data).To(HaveKeyWithValue("value", "1"), "the others are applied")

			before.Labels, before.Annotations, before.OwnerReferences = nil, nil, nil
			Expect(plane.Client().Update(ctx, before)).To(Succeed())
			atRevision(ctx, in, "main@sha1:1") // it is adopted when its owner has released it
			deleteAndWait(ctx, in)
			expectReleased(ctx, before, "1")
		},
		Entry("Flux Kustomization", metav1.ObjectMeta{Labels: map[string]string{
			"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}},
			"Flux Kustomization flux-system/apps"),
		Entry("Flux HelmRelease", metav1.ObjectMeta{Labels: map[string]string{"app.kubernetes.io/managed-by": "Helm",
			"helm.toolkit.fluxcd.io/name":      "podinfo",
			"helm.toolkit.fluxcd.io/namespace": "apps"}, Annotations: map[string]string{
			"meta.helm.sh/release-name": "podinfo", "meta.helm.sh/release-namespace": "apps"}},
			"Flux HelmRelease apps/podinfo"),
		Entry("Argo CD", metav1.ObjectMeta{Annotations: map[string]string{
			"argocd.argoproj.io/tracking-id": "guestbook:/ConfigMap:default/a"}},
			"Argo CD (guestbook:/ConfigMap:default/a)"),
		Entry("Helm", metav1.ObjectMeta{Labels: map[string]string{
			"app.kubernetes.io/managed-by": "Helm"}, Annotations: map[string]string{
			"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "prod"}}, "Helm release prod/web"),
		Entry("a controller", metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1",
			Kind: "ServiceAccount", Name: "deployer",
			Controller: ptr.To(true)}}}, "ServiceAccount deployer, which created it"),
	)
})

var _ = Describe("A rebuilt management cluster", func() {
	It("takes over its objects without recreating them, and adopted objects stay adopted", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		shared := ns + "-shared"
		before := foreignConfigMap(ctx, ns, "adopted", metav1.ObjectMeta{Labels: map[string]string{"app": "theirs"}})
		publish(ctx, ns, "src", "main@sha1:1", tree("spec:\n  version: 1.0.0\n  components:\n"+
			"  - {name: main, manifests: [main/]}\n"+
			"  - {name: other, manifests: [other/], namespace: "+shared+", createNamespace: true}\n", map[string]string{
			"main/a.yaml": configMap("a", "1"), "main/adopted.yaml": configMap("adopted", "1"),
			"main/web.yaml": deployment("web", ""),
			"other/b.yaml":  configMap("b", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		objects := []client.Object{aConfigMap(ns, "a"), aConfigMap(ns, "adopted"), aDeployment(ns, "web"),
			aConfigMap(shared, "b"),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shared}}}
		for _, o := range objects {
			Expect(get(ctx, o)).To(Succeed())
		}

		suspend(ctx, in) // otherwise the controller adds the finalizer again
		Expect(patch(ctx, in, "somebody", `{"metadata":{"finalizers":null}}`)).To(Succeed())
		Expect(plane.Client().Delete(ctx, in)).To(Succeed())
		Expect(absent(ctx, in)).To(BeTrue(), "no finalizer is left")
		mark := auditMark(ctx)
		again := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, again, "main@sha1:1")
		Expect(again.UID).NotTo(Equal(in.UID))
		Expect(requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Verb("delete"))).To(BeEmpty())
		for _, o := range objects {
			uid := o.GetUID()
			Expect(get(ctx, o)).To(Succeed())
			Expect(o.GetUID()).To(Equal(uid), "%T %s is the same object", o, o.GetName())
		}
		states := map[string]appsv1.EntryState{}
		for _, e := range again.Status.Inventory.Entries {
			states[e.ID] = e.State
		}
		Expect(states).
			To(HaveKeyWithValue(stacks.Ref{Kind: "ConfigMap", Namespace: ns, Name: "adopted"}.ID(),
				appsv1.EntryAdopted))
		Expect(states).
			To(HaveKeyWithValue(stacks.Ref{Kind: "ConfigMap", Namespace: ns, Name: "a"}.ID(), appsv1.EntryApplied))

		deleteAndWait(ctx, again)
		expectReleased(ctx, before, "1")
		Expect(absent(ctx, objects[0])).To(BeTrue())
		Eventually(ctx, func() bool {
			return absent(ctx, objects[4])
		}, soon, "50ms").Should(BeTrue(), "the install created the namespace")
	})
})

var _ = Describe("An object that another client deleted and recreated", suite.Safety, func() {
	// replaced deletes a managed object and creates another one of the same name while the
	// install is suspended.
	replaced := func(ctx context.Context, in *appsv1.KsctlInstall, meta metav1.ObjectMeta) *corev1.ConfigMap {
		GinkgoHelper()
		suspend(ctx, in)
		Expect(plane.Client().Delete(ctx, getConfigMap(ctx, in.Namespace, "a"))).To(Succeed())
		return foreignConfigMap(ctx, in.Namespace, "a", meta)
	}

	It("is not adopted with Never, and stays when the install is removed", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"))
		in := newInstall(ctx, ns, "i", hourly, withAdopt(appsv1.AdoptNever))
		atRevision(ctx, in, "main@sha1:1")
		other := replaced(ctx, in, metav1.ObjectMeta{})
		edit(ctx, in, resume)
		reports(ctx, in, "False", appsv1.OwnedByAnotherReason, "ConfigMap "+ns+"/a")
		Expect(getConfigMap(ctx, ns, "a").ResourceVersion).To(Equal(other.ResourceVersion), "it was not written")
		deleteAndWait(ctx, in)
		Expect(getConfigMap(ctx, ns, "a").ResourceVersion).To(Equal(other.ResourceVersion), "it was not written")
	})

	It("is not adopted with Unowned while it has another owner, and stays when the install is "+
		"removed", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		other := replaced(ctx, in,
			metav1.ObjectMeta{Annotations: map[string]string{"meta.helm.sh/release-name": "web",
				"meta.helm.sh/release-namespace": "prod"}})
		edit(ctx, in, resume)
		reports(ctx, in, "False", appsv1.OwnedByAnotherReason, "Helm release prod/web")
		deleteAndWait(ctx, in)
		Expect(getConfigMap(ctx, ns, "a").ResourceVersion).To(Equal(other.ResourceVersion), "it was not written")
	})

	It("is adopted with Unowned when it has no owner, and released with the install", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		other := replaced(ctx, in, metav1.ObjectMeta{})
		edit(ctx, in, resume)
		Eventually(ctx, func() map[string]string {
			return getConfigMap(ctx, ns, "a").Data
		}, soon, "20ms").Should(HaveKeyWithValue("value", "1"))
		becomes(ctx, in, "True", "")
		deleteAndWait(ctx, in)
		expectReleased(ctx, other, "1")
	})

	It("stays when the install is removed before a reconcile", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		mine := getConfigMap(ctx, ns, "a")
		for name, meta := range map[string]metav1.ObjectMeta{"plain": {},
			"with our mark": {Labels: mine.Labels, Annotations: mine.Annotations}} {
			By(name)
			other := replaced(ctx, in, meta)
			deleteAndWait(ctx, in)
			Expect(getConfigMap(ctx, ns, "a").ResourceVersion).To(Equal(other.ResourceVersion), "it was not written")
			Expect(plane.Client().Delete(ctx, other)).To(Succeed())
			in = newInstall(ctx, ns, "i", hourly)
			atRevision(ctx, in, "main@sha1:1")
		}
	})
})
