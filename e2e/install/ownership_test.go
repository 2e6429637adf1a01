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
	"github.com/ksctl/gitops/controllers/install"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/stacks"
)

var _ = Describe("Two installs that claim one object", suite.Safety, func() {
	It("leave it to the first, and the second takes over by itself when that is gone", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"))
		first := newInstall(ctx, ns, "first")
		atRevision(ctx, first, "main@sha1:1")
		uid := seen(ctx, ns, "a").UID

		second := newInstall(ctx, ns, "second")
		becomes(ctx, second, "False", install.OwnedReason)
		Expect(ready(second).Message).To(And(ContainSubstring("ConfigMap "+ns+"/a"), ContainSubstring("KsctlInstall "+ns+"/first")))
		a := seen(ctx, ns, "a")
		Expect(a.UID).To(Equal(uid))
		belongs(a, first)
		mark := marked(ctx)
		answered(ctx, second, "again")
		Expect(writes(ctx, ns, mark)).To(BeEmpty(), "what the index knows needs no request")
		Expect(ready(second).Message).To(ContainSubstring("KsctlInstall " + ns + "/first"))

		removed(ctx, first)
		atRevision(ctx, second, "main@sha1:1")
		a = seen(ctx, ns, "a")
		Expect(a.UID).To(Equal(uid), "what the second wants is handed over, not removed")
		belongs(a, second)
	})

	It("hand over what was there before both, which stays so", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		before := theirs(ctx, ns, "a", metav1.ObjectMeta{})
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"))
		first := newInstall(ctx, ns, "first", hourly)
		atRevision(ctx, first, "main@sha1:1")
		second := newInstall(ctx, ns, "second", hourly)
		becomes(ctx, second, "False", install.OwnedReason)
		mark := marked(ctx)
		removed(ctx, first)
		atRevision(ctx, second, "main@sha1:1")
		a := seen(ctx, ns, "a")
		Expect(a.UID).To(Equal(before.UID))
		belongs(a, second)
		n := writes(ctx, ns, mark)
		Expect(n).To(HaveLen(2), "the mark of the second in place of the first's, and its apply: %s", n)
		Expect(merge(`{"data":{"value":"drifted"}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
		restored(ctx, a)
		removed(ctx, second)
		released(ctx, before, "1")
	})

	It("the second is removed without a trace on what is the first's", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"))
		first := newInstall(ctx, ns, "first")
		atRevision(ctx, first, "main@sha1:1")
		second := newInstall(ctx, ns, "second", adopting(appsv1.AdoptAlways))
		becomes(ctx, second, "False", install.OwnedReason)
		before := seen(ctx, ns, "a")
		removed(ctx, second)
		Expect(seen(ctx, ns, "a").ResourceVersion).To(Equal(before.ResourceVersion), "it was not touched")
		Consistently(ctx, told(ctx, second, "Left"), "1s").Should(BeEmpty(), "nothing was left that it had")
	})
})

var _ = Describe("An object that was there before", suite.Safety, func() {
	It("is adopted under Unowned, and released by removal", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		before := theirs(ctx, ns, "a", metav1.ObjectMeta{Labels: map[string]string{"app": "theirs"}, Annotations: map[string]string{"note": "theirs"}})
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"))
		in := newInstall(ctx, ns, "i")
		atRevision(ctx, in, "main@sha1:1")
		a := seen(ctx, ns, "a")
		belongs(a, in)
		Expect(a.UID).To(Equal(before.UID))
		Expect(a.Data).To(Equal(map[string]string{"value": "1", "more": "theirs"}))
		Expect(in.Status.Inventory.Entries[0].State).To(Equal(appsv1.EntryAdopted))
		Eventually(ctx, told(ctx, in, "Adopted"), soon).Should(HaveLen(1), "taking over is said")

		stack(ctx, ns, "main@sha1:2", configMap("a", "2"))
		atRevision(ctx, in, "main@sha1:2")
		removed(ctx, in)
		released(ctx, before, "2")
	})

	It("is released, too, when it leaves the stack", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		before := theirs(ctx, ns, "a", metav1.ObjectMeta{})
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"), configMap("b", "1"))
		in := newInstall(ctx, ns, "i")
		atRevision(ctx, in, "main@sha1:1")
		stack(ctx, ns, "main@sha1:2", configMap("b", "1"))
		atRevision(ctx, in, "main@sha1:2")
		released(ctx, before, "1")
		Expect(in.Status.Inventory.Entries).To(HaveLen(1))
	})

	It("is refused under Never, and stays when the install goes", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		before := theirs(ctx, ns, "a", metav1.ObjectMeta{})
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"), configMap("b", "1"))
		in := newInstall(ctx, ns, "i", adopting(appsv1.AdoptNever))
		becomes(ctx, in, "False", install.OwnedReason)
		Expect(ready(in).Message).To(And(ContainSubstring("ConfigMap "+ns+"/a"), ContainSubstring("spec.adopt")))
		Expect(seen(ctx, ns, "b").Data).To(HaveKeyWithValue("value", "1"), "the others are applied")
		removed(ctx, in)
		released(ctx, before, "theirs")
		Consistently(ctx, told(ctx, in, "Left"), "1s").Should(BeEmpty(), "nothing was left that it had")
	})

	It("is taken for good under Always, whoever claims it, and removal deletes it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		before := theirs(ctx, ns, "a", metav1.ObjectMeta{Labels: map[string]string{"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}})
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"))
		in := newInstall(ctx, ns, "i", adopting(appsv1.AdoptAlways))
		atRevision(ctx, in, "main@sha1:1")
		a := seen(ctx, ns, "a")
		Expect(a.UID).To(Equal(before.UID))
		Expect(a.Data).To(Equal(map[string]string{"value": "1"}), "what its former owner applied is not kept alive by that")
		Expect(a.Labels).NotTo(HaveKey("kustomize.toolkit.fluxcd.io/name"), "or that would prune it one day")
		Expect(a.ManagedFields).To(HaveEach(HaveField("Manager", live.FieldManager)))
		Eventually(ctx, told(ctx, in, "Adopted"), soon).Should(ContainElement(HaveField("Message", ContainSubstring("taken over from Flux Kustomization flux-system/apps"))))
		removed(ctx, in)
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeTrue())
	})

	DescribeTable("is refused under Unowned while somebody claims it",
		func(ctx SpecContext, meta metav1.ObjectMeta, owner string) {
			ns := namespaceFor(ctx)
			for i := range meta.OwnerReferences { // of an owner that is not there the garbage collector would make short work
				account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: meta.OwnerReferences[i].Name}}
				Expect(get(ctx, account)).To(Succeed())
				meta.OwnerReferences[i].UID = account.UID
			}
			before := theirs(ctx, ns, "a", meta)
			stack(ctx, ns, "main@sha1:1", configMap("a", "1"), configMap("b", "1"))
			in := newInstall(ctx, ns, "i", retrying(time.Second))
			becomes(ctx, in, "False", install.OwnedReason)
			Expect(ready(in).Message).To(And(ContainSubstring(owner), ContainSubstring("spec.adopt")))
			Expect(seen(ctx, ns, "a").ResourceVersion).To(Equal(before.ResourceVersion), "it was not touched")
			Expect(seen(ctx, ns, "b").Data).To(HaveKeyWithValue("value", "1"), "the others are applied")

			before.Labels, before.Annotations, before.OwnerReferences = nil, nil, nil
			Expect(plane.Client().Update(ctx, before)).To(Succeed())
			atRevision(ctx, in, "main@sha1:1") // given up by its owner, it is adopted
			removed(ctx, in)
			released(ctx, before, "1")
		},
		Entry("Flux Kustomization", metav1.ObjectMeta{Labels: map[string]string{
			"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}}, "Flux Kustomization flux-system/apps"),
		Entry("Flux HelmRelease", metav1.ObjectMeta{Labels: map[string]string{"app.kubernetes.io/managed-by": "Helm",
			"helm.toolkit.fluxcd.io/name": "podinfo", "helm.toolkit.fluxcd.io/namespace": "apps"}, Annotations: map[string]string{
			"meta.helm.sh/release-name": "podinfo", "meta.helm.sh/release-namespace": "apps"}}, "Flux HelmRelease apps/podinfo"),
		Entry("Argo CD", metav1.ObjectMeta{Annotations: map[string]string{
			"argocd.argoproj.io/tracking-id": "guestbook:/ConfigMap:default/a"}}, "Argo CD (guestbook:/ConfigMap:default/a)"),
		Entry("Helm", metav1.ObjectMeta{Labels: map[string]string{"app.kubernetes.io/managed-by": "Helm"}, Annotations: map[string]string{
			"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "prod"}}, "Helm release prod/web"),
		Entry("a controller", metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ServiceAccount", Name: "deployer",
			Controller: ptr.To(true)}}}, "ServiceAccount deployer, which created it"),
	)
})

var _ = Describe("A management cluster that is rebuilt", func() {
	It("takes its objects back without making them anew, and what was adopted stays adopted", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		shared := ns + "-shared"
		before := theirs(ctx, ns, "adopted", metav1.ObjectMeta{Labels: map[string]string{"app": "theirs"}})
		publish(ctx, ns, "src", "main@sha1:1", tree("spec:\n  version: 1.0.0\n  components:\n"+
			"  - {name: main, manifests: [main/]}\n"+
			"  - {name: other, manifests: [other/], namespace: "+shared+", createNamespace: true}\n", map[string]string{
			"main/a.yaml": configMap("a", "1"), "main/adopted.yaml": configMap("adopted", "1"), "main/web.yaml": deployment("web", ""),
			"other/b.yaml": configMap("b", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		objects := []client.Object{aConfigMap(ns, "a"), aConfigMap(ns, "adopted"), aDeployment(ns, "web"), aConfigMap(shared, "b"),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shared}}}
		for _, o := range objects {
			Expect(get(ctx, o)).To(Succeed())
		}

		suspend(ctx, in) // or the controller puts the finalizer back
		Expect(patch(ctx, in, "somebody", `{"metadata":{"finalizers":null}}`)).To(Succeed())
		Expect(plane.Client().Delete(ctx, in)).To(Succeed())
		Expect(absent(ctx, in)).To(BeTrue(), "nothing held it")
		mark := marked(ctx)
		again := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, again, "main@sha1:1")
		Expect(again.UID).NotTo(Equal(in.UID))
		Expect(since(ctx, mark, cluster.As(tenant(ns)), cluster.Verb("delete"))).To(BeEmpty())
		for _, o := range objects {
			uid := o.GetUID()
			Expect(get(ctx, o)).To(Succeed())
			Expect(o.GetUID()).To(Equal(uid), "%T %s is the same", o, o.GetName())
		}
		states := map[string]appsv1.EntryState{}
		for _, e := range again.Status.Inventory.Entries {
			states[e.ID] = e.State
		}
		Expect(states).To(HaveKeyWithValue(stacks.Ref{Kind: "ConfigMap", Namespace: ns, Name: "adopted"}.ID(), appsv1.EntryAdopted))
		Expect(states).To(HaveKeyWithValue(stacks.Ref{Kind: "ConfigMap", Namespace: ns, Name: "a"}.ID(), appsv1.EntryApplied))

		removed(ctx, again)
		released(ctx, before, "1")
		Expect(absent(ctx, objects[0])).To(BeTrue())
		Eventually(ctx, func() bool { return absent(ctx, objects[4]) }, soon, "50ms").Should(BeTrue(), "the namespace was made by us")
	})
})

var _ = Describe("An object that somebody deleted and made again", suite.Safety, func() {
	// replaced deletes a managed object and makes another one of its name while
	// the install looks away.
	replaced := func(ctx context.Context, in *appsv1.KsctlInstall, meta metav1.ObjectMeta) *corev1.ConfigMap {
		GinkgoHelper()
		suspend(ctx, in)
		Expect(plane.Client().Delete(ctx, seen(ctx, in.Namespace, "a"))).To(Succeed())
		return theirs(ctx, in.Namespace, "a", meta)
	}

	It("is refused under Never, and stays when the install goes", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"))
		in := newInstall(ctx, ns, "i", hourly, adopting(appsv1.AdoptNever))
		atRevision(ctx, in, "main@sha1:1")
		other := replaced(ctx, in, metav1.ObjectMeta{})
		edit(ctx, in, resume)
		says(ctx, in, "False", install.OwnedReason, "ConfigMap "+ns+"/a")
		Expect(seen(ctx, ns, "a").ResourceVersion).To(Equal(other.ResourceVersion), "it was not touched")
		removed(ctx, in)
		Expect(seen(ctx, ns, "a").ResourceVersion).To(Equal(other.ResourceVersion), "it was not touched")
	})

	It("is refused under Unowned while somebody claims it, and stays when the install goes", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		other := replaced(ctx, in, metav1.ObjectMeta{Annotations: map[string]string{"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "prod"}})
		edit(ctx, in, resume)
		says(ctx, in, "False", install.OwnedReason, "Helm release prod/web")
		removed(ctx, in)
		Expect(seen(ctx, ns, "a").ResourceVersion).To(Equal(other.ResourceVersion), "it was not touched")
	})

	It("is adopted under Unowned when nobody claims it, and released", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		other := replaced(ctx, in, metav1.ObjectMeta{})
		edit(ctx, in, resume)
		Eventually(ctx, func() map[string]string { return seen(ctx, ns, "a").Data }, soon, "20ms").Should(HaveKeyWithValue("value", "1"))
		becomes(ctx, in, "True", "")
		removed(ctx, in)
		released(ctx, other, "1")
	})

	It("stays when the install is removed before it looks", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		mine := seen(ctx, ns, "a")
		for name, meta := range map[string]metav1.ObjectMeta{"plain": {}, "with our mark": {Labels: mine.Labels, Annotations: mine.Annotations}} {
			By(name)
			other := replaced(ctx, in, meta)
			removed(ctx, in)
			Expect(seen(ctx, ns, "a").ResourceVersion).To(Equal(other.ResourceVersion), "it was not touched")
			Expect(plane.Client().Delete(ctx, other)).To(Succeed())
			in = newInstall(ctx, ns, "i", hourly)
			atRevision(ctx, in, "main@sha1:1")
		}
	})
})
