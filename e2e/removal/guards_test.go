package removal_test

import (
	"context"
	"fmt"
	"net/http"
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
	"github.com/ksctl/gitops/e2e/cluster"
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

func configMapManifests(n int) (docs []string) {
	for i := range n {
		docs = append(docs, configMap(fmt.Sprintf("c%03d", i), "1"))
	}
	return docs
}

func countConfigMaps(ctx context.Context, ns string) int {
	GinkgoHelper()
	var list corev1.ConfigMapList
	Expect(h.ControlPlane.Client().List(ctx, &list, inNamespace(ns))).To(Succeed())
	n := 0
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, "c") {
			n++
		}
	}
	return n
}

var _ = Describe("Removal", func() {
	It("keeps PersistentVolumeClaims unless spec.guard.protectKinds is empty", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		pvc := &corev1.PersistentVolumeClaim{ObjectMeta: objectMeta(ns, "data")}
		publish(ctx, ns, "a", "r1", claim, configMap("a", "1"))
		a := install(ctx, ns, "a")
		becomesReady(ctx, a)
		remove(ctx, a)
		awaitGone(ctx, a, aConfigMap(ns, "a"))
		Expect(get(ctx, pvc)).To(Succeed())
		Expect(pvc.DeletionTimestamp).To(BeNil())
		Expect(pvc.Labels).NotTo(HaveKey(live.OwnerLabel))
		Expect(pvc.Annotations).NotTo(HaveKey(live.MarkAnnotation))
		Eventually(ctx, eventMessages(ctx, a, "Released"), soon, "20ms").
			Should(ConsistOf(And(ContainSubstring("PersistentVolumeClaim "+ns+"/data"),
				ContainSubstring("protectKinds"))))

		By("also when the claim leaves the stack")
		b := install(ctx, ns, "b", func(in *appsv1.KsctlInstall) { in.Spec.SourceRef.Name = "a" })
		becomesReady(ctx, b)
		publish(ctx, ns, "a", "r2", configMap("a", "1"))
		reports(ctx, b, metav1.ConditionTrue, "", "r2")
		Expect(get(ctx, pvc)).To(Succeed())
		remove(ctx, b, pvc)
		awaitGone(ctx, b, pvc)

		By("but not when nothing is protected")
		publish(ctx, ns, "a", "r3", claim)
		c := install(ctx, ns, "c", func(in *appsv1.KsctlInstall) {
			in.Spec.SourceRef.Name = "a"
			in.Spec.Guard = &appsv1.Guard{ProtectKinds: []string{}}
		})
		mergePatch(ctx, c, `{"spec":{"guard":{"protectKinds":[]}}}`)
		becomesReady(ctx, c)
		remove(ctx, c)
		awaitGone(ctx, c, pvc)
	})

	It("keeps all objects with deletionPolicy Orphan", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		files := map[string]string{"main/a.yaml": configMap("a", "1")}
		Expect(h.PublishSource(ctx, ns, "a", "r1", harness.SourceTree("spec:\n  version: 1.0.0\n  components:\n  - "+
			"{name: main, manifests: [main/], namespace: "+
			ns+"-x, createNamespace: true}\n", files))).To(Succeed())
		a := install(ctx, ns, "a", func(in *appsv1.KsctlInstall) { in.Spec.DeletionPolicy = appsv1.DeletionOrphan })
		becomesReady(ctx, a)
		before := aConfigMap(ns+"-x", "a")
		Expect(get(ctx, before)).To(Succeed())
		remove(ctx, a)
		awaitGone(ctx, a)
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

	It("waits for an object with the protection annotation, and reports it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "a", "r1", configMap("a", "1"), configMap("b", "1"))
		a := install(ctx, ns, "a")
		becomesReady(ctx, a)
		mergePatch(ctx, aConfigMap(ns, "b"), `{"metadata":{"annotations":{"`+live.PreventDeletionAnnotation+
			`":"true"}}}`)

		By("when the object leaves the stack")
		publish(ctx, ns, "a", "r2", configMap("a", "1"))
		reports(ctx, a, metav1.ConditionUnknown, "", "ConfigMap "+ns+"/b", live.PreventDeletionAnnotation)
		By("when the install is removed")
		remove(ctx, a)
		reports(ctx, a, metav1.ConditionUnknown, "Removing", "ConfigMap "+ns+"/b", live.PreventDeletionAnnotation)
		awaitGone(ctx, aConfigMap(ns, "a"))
		Consistently(ctx, func() bool { return absent(ctx, aConfigMap(ns, "b")) }, quiet, "200ms").Should(BeFalse())
		mergePatch(ctx, aConfigMap(ns, "b"), `{"metadata":{"annotations":{"`+live.PreventDeletionAnnotation+`":null}}}`)
		awaitGone(ctx, a, aConfigMap(ns, "b"))
	})

	It("keeps a CRD that has objects of other owners", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		group := ns + ".example.com"
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "widgets." + group}}
		publish(ctx, ns, "a", "r1", definition(group), configMap("a", "1"),
			fmt.Sprintf("apiVersion: %s/v1\nkind: Widget\nmetadata: {name: ours}\n", group))
		a := install(ctx, ns, "a")
		becomesReady(ctx, a)
		theirs := widget(group, ns, "theirs")
		Eventually(ctx, func() error {
			return h.ControlPlane.Client().Create(ctx, theirs)
		}, soon).Should(Succeed(), "the kind is served")
		remove(ctx, a)
		reports(ctx, a, metav1.ConditionUnknown, "Removing", crd.Name, "1 objects that others created ("+ns+"/theirs)")
		Expect(absent(ctx, widget(group, ns, "ours"))).To(BeTrue())
		Expect(get(ctx, crd)).To(Succeed())
		Expect(crd.DeletionTimestamp).To(BeNil())
		remove(ctx, theirs)
		awaitGone(ctx, a, crd)
	})

	It("ends the watch of a kind with its CRD, and starts it again", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		group := ns + ".example.com"
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "widgets." + group}}
		publish(ctx, ns, "a", "r1", definition(group),
			fmt.Sprintf("apiVersion: %s/v1\nkind: Widget\nmetadata: {name: ours}\nspec: {size: 1}\n", group))
		a := install(ctx, ns, "a")
		becomesReady(ctx, a)
		remove(ctx, a)
		awaitGone(ctx, a, crd)
		mark, err := h.ControlPlane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		Consistently(ctx, func() (cluster.Requests, error) {
			requests, err := h.ControlPlane.AuditSince(ctx, mark)
			return requests.Where(cluster.Verb("list", "watch"), func(r cluster.Request) bool {
				return r.Group == group && r.Code == http.StatusNotFound
			}), err
		}, 2*quiet, "500ms").Should(Or(BeEmpty(), HaveLen(1)), "no requests but one that was on its way")

		a = install(ctx, ns, "a")
		becomesReady(ctx, a)
		ours := widget(group, ns, "ours")
		mergePatch(ctx, ours, `{"spec":{"size":2}}`)
		Eventually(ctx, func() (any, error) {
			err := get(ctx, ours)
			return ours.Object["spec"], err
		}, soon).Should(HaveKeyWithValue("size", BeEquivalentTo(1)), "drift is corrected: the kind is watched again")
		remove(ctx, a)
		awaitGone(ctx, a, crd)
	})

	It("keeps a namespace of the stack that has objects of other owners", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns + "-x"}}
		publish(ctx, ns, "a", "r1", "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+space.Name+"}\n",
			strings.Replace(configMap("a", "1"), "{name: a}", "{name: a, namespace: "+space.Name+"}", 1))
		a := install(ctx, ns, "a")
		becomesReady(ctx, a)
		theirs := aConfigMap(space.Name, "theirs")
		Expect(h.ControlPlane.Client().Create(ctx, theirs)).To(Succeed())
		remove(ctx, a)
		awaitGone(ctx, a, aConfigMap(space.Name, "a"))
		Expect(get(ctx, space)).To(Succeed())
		Expect(space.DeletionTimestamp).To(BeNil())
		Eventually(ctx, eventMessages(ctx, a, "Released"), soon, "20ms").
			Should(ConsistOf(ContainSubstring("theirs is in the namespace")))
		b := install(ctx, ns, "b", func(in *appsv1.KsctlInstall) {
			in.Spec.SourceRef.Name = "a"
			in.Spec.Adopt = appsv1.AdoptAlways
		})
		becomesReady(ctx, b)
		remove(ctx, theirs, b)
		awaitGone(ctx, b, space)
	})

	It("keeps a created namespace that is protected or kept", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns + "-x"}}
		inSpace := func(in *appsv1.KsctlInstall) { in.Spec.SourceRef.Name = "a" }
		Expect(h.PublishSource(ctx, ns, "a", "r1", harness.SourceTree("spec:\n  version: 1.0.0\n  components:\n  - "+
			"{name: main, manifests: [main/], namespace: "+
			space.Name+", createNamespace: true}\n", map[string]string{"main/a.yaml": configMap("a", "1")}))).
			To(Succeed())
		a := install(ctx, ns, "a", retryQuickly)
		becomesReady(ctx, a)
		mergePatch(ctx, space, `{"metadata":{"annotations":{"`+live.PreventDeletionAnnotation+`":"true"}}}`)
		stays := func() {
			GinkgoHelper()
			Expect(get(ctx, space)).To(Succeed())
			Expect(space.DeletionTimestamp).To(BeNil())
		}

		By("shown by a preview")
		suspend(ctx, a)
		rm := newRemove(ctx, ns, "away", "a")
		removeReports(ctx, rm, metav1.ConditionUnknown, "Removing", "is suspended")
		Eventually(ctx, func() ([]appsv1.RemovalObject, error) {
			err := get(ctx, rm)
			return rm.Status.Removal.Blockers, err
		}, soon, "20ms").Should(
			ConsistOf(And(HaveField("Reason", "Protected"),
				HaveField("Message",
					And(ContainSubstring("Namespace "+space.Name), ContainSubstring(live.PreventDeletionAnnotation))))))
		mergePatch(ctx, a, `{"spec":{"suspend":false}}`)
		removeReports(ctx, rm, metav1.ConditionUnknown, "Removing", "1 of 2 objects removed", "Namespace "+space.Name+
			" has the annotation "+live.PreventDeletionAnnotation)
		stays()
		By("kept by a KsctlRemove")
		mergePatch(ctx, rm, `{"spec":{"keep":[{"kind":"Namespace"}]}}`)
		removeReports(ctx, rm, metav1.ConditionTrue, "", "kept: Namespace "+space.Name+" (spec.keep")
		stays()
		remove(ctx, a, rm)
		awaitGone(ctx, a, rm)

		By("protected by the install")
		b := install(ctx, ns, "b", inSpace, func(in *appsv1.KsctlInstall) {
			in.Spec.Guard = &appsv1.Guard{ProtectKinds: []string{"Namespace"}}
		})
		becomesReady(ctx, b)
		remove(ctx, b)
		awaitGone(ctx, b)
		stays()
		Eventually(ctx, eventMessages(ctx, b, "Released"), soon, "20ms").
			Should(ConsistOf(And(ContainSubstring("Namespace "+space.Name), ContainSubstring("protectKinds"))))

		By("protected by a user, who then removes the protection")
		c := install(ctx, ns, "c", inSpace)
		becomesReady(ctx, c)
		remove(ctx, c)
		reports(ctx, c, metav1.ConditionUnknown, "Removing", "Namespace "+space.Name+" has the annotation "+
			live.PreventDeletionAnnotation)
		stays()
		mergePatch(ctx, space, `{"metadata":{"annotations":{"`+live.PreventDeletionAnnotation+`":null}}}`)
		awaitGone(ctx, c, space)
	})

	It("deletes a created namespace if its remaining objects are garbage collected, and keeps it if their "+
		"owner stays", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns + "-x"}}
		Expect(h.PublishSource(ctx, ns, "a", "r1", harness.SourceTree("spec:\n  version: 1.0.0\n  components:\n  - "+
			"{name: main, manifests: [main/], namespace: "+
			space.Name+", createNamespace: true}\n", map[string]string{
			"main/service.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n" +
				"spec: {selector: {app: operator}, ports: [{port: 80}]}\n",
			"main/web.yaml": allKindsFiles("unused", space.Name)["operator/operator.yaml"],
		}))).To(Succeed())
		a := install(ctx, ns, "a")
		becomesReady(ctx, a)
		// nolint:staticcheck // the control plane still creates Endpoints for each Service
		var endpoints corev1.Endpoints
		Eventually(ctx, func() error {
			endpoints.Namespace, endpoints.Name = space.Name, "web"
			return get(ctx, &endpoints)
		}, soon, "20ms").Should(Succeed(), "the control plane creates them")
		Expect(endpoints.OwnerReferences).To(BeEmpty())
		remove(ctx, a)
		awaitGone(ctx, a, space)

		b := install(ctx, ns, "b", func(in *appsv1.KsctlInstall) { in.Spec.SourceRef.Name = "a" })
		becomesReady(ctx, b)
		owner := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
		Expect(get(ctx, owner)).To(Succeed())
		theirs := aConfigMap(space.Name, "theirs")
		theirs.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: owner.Name,
			UID: owner.UID}}
		Expect(h.ControlPlane.Client().Create(ctx, theirs)).To(Succeed())
		remove(ctx, b)
		awaitGone(ctx, b)
		Eventually(ctx, eventMessages(ctx, b, "Released"), soon, "20ms").
			Should(ConsistOf(ContainSubstring("theirs is in the namespace")))
		Expect(get(ctx, space)).To(Succeed())
		Expect(space.DeletionTimestamp).To(BeNil())
		remove(ctx, space)
	})

	It("reports which finalizers block an object, since when and who set them, and ends when a user "+
		"abandons it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "a", "r1", configMap("a", "1"), configMap("b", "1"))
		a := install(ctx, ns, "a")
		becomesReady(ctx, a)
		stuck := aConfigMap(ns, "b")
		Expect(get(ctx, stuck)).To(Succeed())
		stuck.Finalizers = []string{"example.com/operator"}
		Expect(h.ControlPlane.Client().Update(ctx, stuck, fieldOwner("some-operator"))).To(Succeed())
		remove(ctx, a)
		reports(ctx, a, metav1.ConditionUnknown, "Removing", "ConfigMap "+ns+"/b is being deleted since 20",
			"finalizers [example.com/operator]", "set by some-operator")
		awaitGone(ctx, aConfigMap(ns, "a"))

		By("an abandon annotation without the UID has no effect")
		mergePatch(ctx, a, `{"metadata":{"annotations":{"ksctl.com/abandon":"yes"}}}`)
		Consistently(ctx, func() error { return get(ctx, a) }, quiet, "200ms").Should(Succeed())
		mergePatch(ctx, a, fmt.Sprintf(`{"metadata":{"annotations":{"ksctl.com/abandon":%q}}}`, a.UID))
		awaitGone(ctx, a)
		Eventually(ctx, eventMessages(ctx, a, "Abandoned"), soon, "20ms").
			Should(ConsistOf(And(ContainSubstring("1 objects"), ContainSubstring("ConfigMap "+ns+"/b"))))
		Expect(get(ctx, stuck)).To(Succeed())
		mergePatch(ctx, stuck, `{"metadata":{"finalizers":null}}`)
	})

	It("of more objects than the guard allows waits for the approval of its digest", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "a", "r1", append(configMapManifests(60), configMap("a", "1"))...)
		a := install(ctx, ns, "a")
		becomesReady(ctx, a)
		publish(ctx, ns, "a", "r2", configMap("a", "2"))
		reports(ctx, a, metav1.ConditionFalse, "DeletionsHeld", "60 of 61 objects left the stack",
			appsv1.ApproveAnnotation)
		Expect(countConfigMaps(ctx, ns)).To(Equal(60))
		cm := aConfigMap(ns, "a")
		Expect(get(ctx, cm)).To(Succeed())
		Expect(cm.Data).To(HaveKeyWithValue("value", "2"), "the other objects are applied")
		digest := regexp.MustCompile(appsv1.ApproveAnnotation + "=([0-9a-f]+)").
			FindStringSubmatch(harness.ReadyCondition(a).Message)[1]

		By("an approval is valid for exactly one set")
		publish(ctx, ns, "a", "r3", configMap("a", "2"), configMap("c000", "1"))
		reports(ctx, a, metav1.ConditionFalse, "DeletionsHeld", "59 of 61")
		mergePatch(ctx, a, `{"metadata":{"annotations":{"ksctl.com/approve":"`+digest+`"}}}`)
		Consistently(ctx, func() int { return countConfigMaps(ctx, ns) }, quiet, "200ms").Should(Equal(60))
		publish(ctx, ns, "a", "r4", configMap("a", "2"))
		reports(ctx, a, metav1.ConditionTrue, "", "r4")
		Expect(countConfigMaps(ctx, ns)).To(BeZero())

		By("the percentage counts as well, above a minimum")
		publish(ctx, ns, "a", "r5", configMapManifests(20)...)
		reports(ctx, a, metav1.ConditionTrue, "", "r5")
		publish(ctx, ns, "a", "r6", configMapManifests(9)...)
		reports(ctx, a, metav1.ConditionFalse, "DeletionsHeld", "11 of 20")
		mergePatch(ctx, a, `{"spec":{"guard":{"maxDeletePercent":60}}}`)
		becomesReady(ctx, a)
		Expect(countConfigMaps(ctx, ns)).To(Equal(9))

		By("objects of a revision that never became ready are removed when it is reverted")
		publish(ctx, ns, "a", "r6a", configMapManifests(20)...)
		reports(ctx, a, metav1.ConditionTrue, "", "r6a")
		publish(ctx, ns, "a", "r6b",
			append(configMapManifests(35), "apiVersion: example.com/v1\nkind: Never\nmetadata: {name: served}\n")...)
		reports(ctx, a, metav1.ConditionUnknown, "", "is not served yet")
		Expect(countConfigMaps(ctx, ns)).To(Equal(35))
		publish(ctx, ns, "a", "r6c", configMapManifests(20)...)
		reports(ctx, a, metav1.ConditionTrue, "", "r6c")
		Expect(countConfigMaps(ctx, ns)).To(Equal(20))

		By("new objects do not reduce the percentage")
		publish(ctx, ns, "a", "r7", configMapManifests(40)...)
		reports(ctx, a, metav1.ConditionTrue, "", "r7")
		var others []string
		for i := range 40 {
			others = append(others, configMap(fmt.Sprintf("d%03d", i), "1"))
		}
		publish(ctx, ns, "a", "r8", others...)
		reports(ctx, a, metav1.ConditionFalse, "DeletionsHeld", "40 of 40 objects left the stack")
		Expect(countConfigMaps(ctx, ns)).To(Equal(40))
		Expect(get(ctx, aConfigMap(ns, "d039"))).To(Succeed(), "the new objects are applied")
		digest = regexp.MustCompile(appsv1.ApproveAnnotation + "=([0-9a-f]+)").
			FindStringSubmatch(harness.ReadyCondition(a).Message)[1]
		mergePatch(ctx, a, `{"metadata":{"annotations":{"ksctl.com/approve":"`+digest+`"}}}`)
		reports(ctx, a, metav1.ConditionTrue, "", "r8")
		Expect(countConfigMaps(ctx, ns)).To(BeZero())
		remove(ctx, a)
		awaitGone(ctx, a)
	})
})
