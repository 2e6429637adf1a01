package removal_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/harness"
)

const claim = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, storageClassName: none}
`

func definition(group string) string {
	return fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: Widget, listKind: WidgetList, plural: widgets, singular: widget}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, group)
}

func widget(group, ns, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Widget"})
	u.SetNamespace(ns)
	u.SetName(name)
	return u
}

func several(n int) (docs []string) {
	for i := range n {
		docs = append(docs, configMap(fmt.Sprintf("c%03d", i), "1"))
	}
	return docs
}

func configMapsIn(ctx context.Context, ns string) int {
	GinkgoHelper()
	var list corev1.ConfigMapList
	Expect(h.Plane.Client().List(ctx, &list, inNamespace(ns))).To(Succeed())
	n := 0
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, "c") {
			n++
		}
	}
	return n
}

var _ = Describe("Removal", func() {
	It("leaves claims of storage, unless it is told otherwise", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		pvc := &corev1.PersistentVolumeClaim{ObjectMeta: named(ns, "data")}
		publish(ctx, ns, "a", "r1", claim, configMap("a", "1"))
		a := install(ctx, ns, "a")
		becomesReady(ctx, a)
		remove(ctx, a)
		gone(ctx, a, aConfigMap(ns, "a"))
		Expect(get(ctx, pvc)).To(Succeed())
		Expect(pvc.DeletionTimestamp).To(BeNil())
		Expect(pvc.Labels).NotTo(HaveKey(live.OwnerLabel))
		Expect(pvc.Annotations).NotTo(HaveKey(live.MarkAnnotation))
		Eventually(ctx, events(ctx, a, "Left"), soon, "20ms").Should(ConsistOf(And(ContainSubstring("PersistentVolumeClaim "+ns+"/data"), ContainSubstring("protectKinds"))))

		By("when it leaves the stack, too")
		b := install(ctx, ns, "b", func(in *appsv1.KsctlInstall) { in.Spec.SourceRef.Name = "a" })
		becomesReady(ctx, b)
		publish(ctx, ns, "a", "r2", configMap("a", "1"))
		says(ctx, b, metav1.ConditionTrue, "", "r2")
		Expect(get(ctx, pvc)).To(Succeed())
		remove(ctx, b, pvc)
		gone(ctx, b, pvc)

		By("and not when nothing is protected")
		publish(ctx, ns, "a", "r3", claim)
		c := install(ctx, ns, "c", func(in *appsv1.KsctlInstall) {
			in.Spec.SourceRef.Name = "a"
			in.Spec.Guard = &appsv1.Guard{ProtectKinds: []string{}}
		})
		change(ctx, c, `{"spec":{"guard":{"protectKinds":[]}}}`)
		becomesReady(ctx, c)
		remove(ctx, c)
		gone(ctx, c, pvc)
	})

	It("leaves everything under deletionPolicy: Orphan", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		files := map[string]string{"main/a.yaml": configMap("a", "1")}
		Expect(h.Publish(ctx, ns, "a", "r1", harness.Tree("spec:\n  version: 1.0.0\n  components:\n  - {name: main, manifests: [main/], namespace: "+
			ns+"-x, createNamespace: true}\n", files))).To(Succeed())
		a := install(ctx, ns, "a", func(in *appsv1.KsctlInstall) { in.Spec.DeletionPolicy = appsv1.DeletionOrphan })
		becomesReady(ctx, a)
		before := aConfigMap(ns+"-x", "a")
		Expect(get(ctx, before)).To(Succeed())
		remove(ctx, a)
		gone(ctx, a)
		after := aConfigMap(ns+"-x", "a")
		Expect(get(ctx, after)).To(Succeed())
		Expect(after.UID).To(Equal(before.UID))
		Expect(after.Data).To(Equal(before.Data))
		Expect(after.Labels).To(BeEmpty())
		Expect(after.Annotations).To(BeEmpty())
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns + "-x"}}
		Expect(get(ctx, space)).To(Succeed())
		Expect(space.DeletionTimestamp).To(BeNil())
		for key := range space.Annotations {
			Expect(key).NotTo(ContainSubstring("used-by"))
		}
		remove(ctx, space)
	})

	It("waits for an object that a person protects, and names it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "a", "r1", configMap("a", "1"), configMap("b", "1"))
		a := install(ctx, ns, "a")
		becomesReady(ctx, a)
		change(ctx, aConfigMap(ns, "b"), `{"metadata":{"annotations":{"`+live.PreventDeletionAnnotation+`":"true"}}}`)

		By("when it leaves the stack")
		publish(ctx, ns, "a", "r2", configMap("a", "1"))
		says(ctx, a, metav1.ConditionUnknown, "", "ConfigMap "+ns+"/b", live.PreventDeletionAnnotation)
		By("when the install goes")
		remove(ctx, a)
		says(ctx, a, metav1.ConditionUnknown, "Removing", "ConfigMap "+ns+"/b", live.PreventDeletionAnnotation)
		gone(ctx, aConfigMap(ns, "a"))
		Consistently(ctx, func() bool { return absent(ctx, aConfigMap(ns, "b")) }, quiet, "200ms").Should(BeFalse())
		change(ctx, aConfigMap(ns, "b"), `{"metadata":{"annotations":{"`+live.PreventDeletionAnnotation+`":null}}}`)
		gone(ctx, a, aConfigMap(ns, "b"))
	})

	It("does not take a definition that others have objects of", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		group := ns + ".example.com"
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "widgets." + group}}
		publish(ctx, ns, "a", "r1", definition(group), configMap("a", "1"),
			fmt.Sprintf("apiVersion: %s/v1\nkind: Widget\nmetadata: {name: ours}\n", group))
		a := install(ctx, ns, "a")
		becomesReady(ctx, a)
		theirs := widget(group, ns, "theirs")
		Eventually(ctx, func() error { return h.Plane.Client().Create(ctx, theirs) }, soon).Should(Succeed(), "the kind is served")
		remove(ctx, a)
		says(ctx, a, metav1.ConditionUnknown, "Removing", crd.Name, "1 objects along that others made ("+ns+"/theirs)")
		Expect(absent(ctx, widget(group, ns, "ours"))).To(BeTrue())
		Expect(get(ctx, crd)).To(Succeed())
		Expect(crd.DeletionTimestamp).To(BeNil())
		remove(ctx, theirs)
		gone(ctx, a, crd)
	})

	It("leaves a namespace of the stack in which others have objects", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns + "-x"}}
		publish(ctx, ns, "a", "r1", "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+space.Name+"}\n",
			strings.Replace(configMap("a", "1"), "{name: a}", "{name: a, namespace: "+space.Name+"}", 1))
		a := install(ctx, ns, "a")
		becomesReady(ctx, a)
		theirs := aConfigMap(space.Name, "theirs")
		Expect(h.Plane.Client().Create(ctx, theirs)).To(Succeed())
		remove(ctx, a)
		gone(ctx, a, aConfigMap(space.Name, "a"))
		Expect(get(ctx, space)).To(Succeed())
		Expect(space.DeletionTimestamp).To(BeNil())
		Eventually(ctx, events(ctx, a, "Left"), soon, "20ms").Should(ConsistOf(ContainSubstring("theirs is in it")))
		b := install(ctx, ns, "b", func(in *appsv1.KsctlInstall) { in.Spec.SourceRef.Name = "a"; in.Spec.Adopt = appsv1.AdoptAlways })
		becomesReady(ctx, b)
		remove(ctx, theirs, b)
		gone(ctx, b, space)
	})

	It("does not take a namespace that it made while that is protected, or kept", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns + "-x"}}
		inSpace := func(in *appsv1.KsctlInstall) { in.Spec.SourceRef.Name = "a" }
		Expect(h.Publish(ctx, ns, "a", "r1", harness.Tree("spec:\n  version: 1.0.0\n  components:\n  - {name: main, manifests: [main/], namespace: "+
			space.Name+", createNamespace: true}\n", map[string]string{"main/a.yaml": configMap("a", "1")}))).To(Succeed())
		a := install(ctx, ns, "a", briefly)
		becomesReady(ctx, a)
		change(ctx, space, `{"metadata":{"annotations":{"`+live.PreventDeletionAnnotation+`":"true"}}}`)
		stays := func() {
			GinkgoHelper()
			Expect(get(ctx, space)).To(Succeed())
			Expect(space.DeletionTimestamp).To(BeNil())
		}

		By("which a rehearsal shows")
		suspend(ctx, a)
		rm := ask(ctx, ns, "away", "a")
		answers(ctx, rm, metav1.ConditionUnknown, "Removing", "is suspended")
		Eventually(ctx, func() ([]appsv1.RemovalObject, error) { err := get(ctx, rm); return rm.Status.Removal.Blockers, err }, soon, "20ms").Should(
			ConsistOf(And(HaveField("Reason", "Protected"), HaveField("Message", And(ContainSubstring("Namespace "+space.Name), ContainSubstring(live.PreventDeletionAnnotation))))))
		change(ctx, a, `{"spec":{"suspend":false}}`)
		answers(ctx, rm, metav1.ConditionUnknown, "Removing", "1 of 2 objects removed", "Namespace "+space.Name+" has the annotation "+live.PreventDeletionAnnotation)
		stays()
		By("by a KsctlRemove")
		change(ctx, rm, `{"spec":{"keep":[{"kind":"Namespace"}]}}`)
		answers(ctx, rm, metav1.ConditionTrue, "", "kept: Namespace "+space.Name+" (spec.keep")
		stays()
		remove(ctx, a, rm)
		gone(ctx, a, rm)

		By("by the install")
		b := install(ctx, ns, "b", inSpace, func(in *appsv1.KsctlInstall) { in.Spec.Guard = &appsv1.Guard{ProtectKinds: []string{"Namespace"}} })
		becomesReady(ctx, b)
		remove(ctx, b)
		gone(ctx, b)
		stays()
		Eventually(ctx, events(ctx, b, "Left"), soon, "20ms").Should(ConsistOf(And(ContainSubstring("Namespace "+space.Name), ContainSubstring("protectKinds"))))

		By("and by a person, who lets it go")
		c := install(ctx, ns, "c", inSpace)
		becomesReady(ctx, c)
		remove(ctx, c)
		says(ctx, c, metav1.ConditionUnknown, "Removing", "Namespace "+space.Name+" has the annotation "+live.PreventDeletionAnnotation)
		stays()
		change(ctx, space, `{"metadata":{"annotations":{"`+live.PreventDeletionAnnotation+`":null}}}`)
		gone(ctx, c, space)
	})

	It("takes a namespace that it made when what is left in it goes by itself, and not when its owner lives on", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns + "-x"}}
		Expect(h.Publish(ctx, ns, "a", "r1", harness.Tree("spec:\n  version: 1.0.0\n  components:\n  - {name: main, manifests: [main/], namespace: "+
			space.Name+", createNamespace: true}\n", map[string]string{
			"main/service.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: operator}, ports: [{port: 80}]}\n",
			"main/web.yaml":     everything("unused", space.Name)["operator/operator.yaml"],
		}))).To(Succeed())
		a := install(ctx, ns, "a")
		becomesReady(ctx, a)
		var endpoints corev1.Endpoints //nolint:staticcheck // every Service still has them
		Eventually(ctx, func() error {
			endpoints.Namespace, endpoints.Name = space.Name, "web"
			return get(ctx, &endpoints)
		}, soon, "20ms").Should(Succeed(), "the control plane makes them")
		Expect(endpoints.OwnerReferences).To(BeEmpty())
		remove(ctx, a)
		gone(ctx, a, space)

		b := install(ctx, ns, "b", func(in *appsv1.KsctlInstall) { in.Spec.SourceRef.Name = "a" })
		becomesReady(ctx, b)
		owner := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
		Expect(get(ctx, owner)).To(Succeed())
		theirs := aConfigMap(space.Name, "theirs")
		theirs.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: owner.Name, UID: owner.UID}}
		Expect(h.Plane.Client().Create(ctx, theirs)).To(Succeed())
		remove(ctx, b)
		gone(ctx, b)
		Eventually(ctx, events(ctx, b, "Left"), soon, "20ms").Should(ConsistOf(ContainSubstring("theirs is in it")))
		Expect(get(ctx, space)).To(Succeed())
		Expect(space.DeletionTimestamp).To(BeNil())
		remove(ctx, space)
	})

	It("says what holds an object, since when and who set that, and lets go when a person gives up", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "a", "r1", configMap("a", "1"), configMap("b", "1"))
		a := install(ctx, ns, "a")
		becomesReady(ctx, a)
		stuck := aConfigMap(ns, "b")
		Expect(get(ctx, stuck)).To(Succeed())
		stuck.Finalizers = []string{"example.com/operator"}
		Expect(h.Plane.Client().Update(ctx, stuck, fieldOwner("some-operator"))).To(Succeed())
		remove(ctx, a)
		says(ctx, a, metav1.ConditionUnknown, "Removing", "ConfigMap "+ns+"/b is being deleted since 20", "finalizers [example.com/operator]", "which some-operator set")
		gone(ctx, aConfigMap(ns, "a"))

		By("an abandonment of something else is none")
		change(ctx, a, `{"metadata":{"annotations":{"ksctl.com/abandon":"yes"}}}`)
		Consistently(ctx, func() error { return get(ctx, a) }, quiet, "200ms").Should(Succeed())
		change(ctx, a, fmt.Sprintf(`{"metadata":{"annotations":{"ksctl.com/abandon":%q}}}`, a.UID))
		gone(ctx, a)
		Eventually(ctx, events(ctx, a, "Abandoned"), soon, "20ms").Should(ConsistOf(And(ContainSubstring("1 objects"), ContainSubstring("ConfigMap "+ns+"/b"))))
		Expect(get(ctx, stuck)).To(Succeed())
		change(ctx, stuck, `{"metadata":{"finalizers":null}}`)
	})

	It("of more than the guard lets go is held until its digest is approved", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "a", "r1", append(several(60), configMap("a", "1"))...)
		a := install(ctx, ns, "a")
		becomesReady(ctx, a)
		publish(ctx, ns, "a", "r2", configMap("a", "2"))
		says(ctx, a, metav1.ConditionFalse, "DeletionsHeld", "60 of 61 objects left the stack", appsv1.ApproveAnnotation)
		Expect(configMapsIn(ctx, ns)).To(Equal(60))
		cm := aConfigMap(ns, "a")
		Expect(get(ctx, cm)).To(Succeed())
		Expect(cm.Data).To(HaveKeyWithValue("value", "2"), "the rest is applied")
		digest := regexp.MustCompile(appsv1.ApproveAnnotation + "=([0-9a-f]+)").FindStringSubmatch(harness.Ready(a).Message)[1]

		By("what is approved is one set and no other")
		publish(ctx, ns, "a", "r3", configMap("a", "2"), configMap("c000", "1"))
		says(ctx, a, metav1.ConditionFalse, "DeletionsHeld", "59 of 61")
		change(ctx, a, `{"metadata":{"annotations":{"ksctl.com/approve":"`+digest+`"}}}`)
		Consistently(ctx, func() int { return configMapsIn(ctx, ns) }, quiet, "200ms").Should(Equal(60))
		publish(ctx, ns, "a", "r4", configMap("a", "2"))
		says(ctx, a, metav1.ConditionTrue, "", "r4")
		Expect(configMapsIn(ctx, ns)).To(BeZero())

		By("a share of what there was counts, too, when it is more than a few")
		publish(ctx, ns, "a", "r5", several(20)...)
		says(ctx, a, metav1.ConditionTrue, "", "r5")
		publish(ctx, ns, "a", "r6", several(9)...)
		says(ctx, a, metav1.ConditionFalse, "DeletionsHeld", "11 of 20")
		change(ctx, a, `{"spec":{"guard":{"maxDeletePercent":60}}}`)
		becomesReady(ctx, a)
		Expect(configMapsIn(ctx, ns)).To(Equal(9))

		By("what a revision brought that never was complete goes when that is taken back")
		publish(ctx, ns, "a", "r6a", several(20)...)
		says(ctx, a, metav1.ConditionTrue, "", "r6a")
		publish(ctx, ns, "a", "r6b", append(several(35), "apiVersion: example.com/v1\nkind: Never\nmetadata: {name: served}\n")...)
		says(ctx, a, metav1.ConditionUnknown, "", "is not served yet")
		Expect(configMapsIn(ctx, ns)).To(Equal(35))
		publish(ctx, ns, "a", "r6c", several(20)...)
		says(ctx, a, metav1.ConditionTrue, "", "r6c")
		Expect(configMapsIn(ctx, ns)).To(Equal(20))

		By("and what comes in its place makes it no smaller")
		publish(ctx, ns, "a", "r7", several(40)...)
		says(ctx, a, metav1.ConditionTrue, "", "r7")
		var others []string
		for i := range 40 {
			others = append(others, configMap(fmt.Sprintf("d%03d", i), "1"))
		}
		publish(ctx, ns, "a", "r8", others...)
		says(ctx, a, metav1.ConditionFalse, "DeletionsHeld", "40 of 40 objects left the stack")
		Expect(configMapsIn(ctx, ns)).To(Equal(40))
		Expect(get(ctx, aConfigMap(ns, "d039"))).To(Succeed(), "the others are there")
		digest = regexp.MustCompile(appsv1.ApproveAnnotation + "=([0-9a-f]+)").FindStringSubmatch(harness.Ready(a).Message)[1]
		change(ctx, a, `{"metadata":{"annotations":{"ksctl.com/approve":"`+digest+`"}}}`)
		says(ctx, a, metav1.ConditionTrue, "", "r8")
		Expect(configMapsIn(ctx, ns)).To(BeZero())
		remove(ctx, a)
		gone(ctx, a)
	})
})
