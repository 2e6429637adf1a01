package install_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/cluster"
)

const immutable = "immutable: true\n"

var _ = Describe("An immutable field", func() {
	It("is reported, and force recreates the object", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", configMap("a", "1")+immutable, configMap("b", "1"))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		before := getConfigMap(ctx, ns, "a")
		stack(ctx, ns, "main@sha1:2", configMap("a", "2")+immutable, configMap("b", "2"))
		reports(ctx, in, "False", "ReconciliationFailed", "ConfigMap "+ns+"/a", "spec.force", "immutable")
		Expect(getConfigMap(ctx, ns, "a").UID).To(Equal(before.UID))
		Expect(getConfigMap(ctx, ns, "b").Data).To(HaveKeyWithValue("value", "2"), "the others are applied")

		edit(ctx, in, func(in *appsv1.KsctlInstall) { in.Spec.Force = true })
		atRevision(ctx, in, "main@sha1:2")
		after := getConfigMap(ctx, ns, "a")
		Expect(after.UID).NotTo(Equal(before.UID))
		Expect(after.Data).To(HaveKeyWithValue("value", "2"))
		Eventually(ctx, eventsWithReason(ctx, in, "Recreated"), soon).Should(HaveLen(1))
	})

	It("may be the selector of a Deployment", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", deployment("web", ""))
		in := newInstall(ctx, ns, "i", hourly, func(in *appsv1.KsctlInstall) { in.Spec.Force = true })
		atRevision(ctx, in, "main@sha1:1")
		before := aDeployment(ns, "web")
		Expect(get(ctx, before)).To(Succeed())
		stack(ctx, ns, "main@sha1:2", strings.ReplaceAll(deployment("web", ""), `app: "web"`, `app: "site"`))
		atRevision(ctx, in, "main@sha1:2")
		after := aDeployment(ns, "web")
		Expect(get(ctx, after)).To(Succeed())
		Expect(after.UID).NotTo(Equal(before.UID))
		Expect(after.Spec.Selector.MatchLabels).To(HaveKeyWithValue("app", "site"))
	})

	It("is not confused with an invalid field: force does not delete an object whose replacement would be "+
		"rejected", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		service := func(port int) string {
			return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, "+
				"ports: [{port: %d}]}\n", port)
		}
		stack(ctx, ns, "main@sha1:1", service(80))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		before := &corev1.Service{ObjectMeta: objectMeta(ns, "web")}
		Expect(get(ctx, before)).To(Succeed())
		stack(ctx, ns, "main@sha1:2", service(99999))
		reports(ctx, in, "False", "ReconciliationFailed", "Service "+ns+"/web", "spec.ports[0].port")
		Expect(ready(in).Message).NotTo(ContainSubstring("spec.force"), "force would not help")
		mark := auditMark(ctx)
		edit(ctx, in, func(in *appsv1.KsctlInstall) { in.Spec.Force = true })
		requestReconcile(ctx, in, "again")
		reports(ctx, in, "False", "ReconciliationFailed", "Service "+ns+"/web", "spec.ports[0].port")
		Expect(requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Verb("delete"))).To(BeEmpty())
		after := &corev1.Service{ObjectMeta: objectMeta(ns, "web")}
		Expect(get(ctx, after)).To(Succeed())
		Expect(after.UID).To(Equal(before.UID))
	})

	It("of an object that existed before the install is not changed, also with force", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		before := aConfigMap(ns, "a")
		before.Data, before.Immutable = map[string]string{"value": "theirs"}, ptr.To(true)
		Expect(plane.Client().Create(ctx, before)).To(Succeed())
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"), configMap("b", "1"))
		in := newInstall(ctx, ns, "i", hourly, func(in *appsv1.KsctlInstall) { in.Spec.Force = true })
		reports(ctx, in, "False", "ReconciliationFailed", "ConfigMap "+ns+"/a", "existed before")
		Expect(getConfigMap(ctx, ns, "b").Data).To(HaveKeyWithValue("value", "1"))
		Expect(getConfigMap(ctx, ns, "a").ResourceVersion).To(Equal(before.ResourceVersion), "it was not written")
		edit(ctx, in, withAdopt(appsv1.AdoptAlways))
		atRevision(ctx, in, "main@sha1:1")
		Expect(getConfigMap(ctx, ns, "a").UID).NotTo(Equal(before.UID))
	})

	It("of a protected object is not changed, also with force", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		claim := func(mode string) string {
			return "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\n" +
				"spec: {accessModes: [" + mode + "], resources: {requests: {storage: 1Gi}}, storageClassName: none}\n"
		}
		stack(ctx, ns, "main@sha1:1", claim("ReadWriteOnce"), configMap("a", "1")+immutable)
		in := newInstall(ctx, ns, "i", hourly, func(in *appsv1.KsctlInstall) { in.Spec.Force = true })
		atRevision(ctx, in, "main@sha1:1")
		data := &corev1.PersistentVolumeClaim{ObjectMeta: objectMeta(ns, "data")}
		Expect(get(ctx, data)).To(Succeed())
		a, uid := getConfigMap(ctx, ns, "a"), data.UID
		protect := func(value string) {
			GinkgoHelper()
			Expect(mergePatch(`{"metadata":{"annotations":{"`+live.PreventDeletionAnnotation+`":`+value+`}}}`)(ctx,
				aConfigMap(ns, "a"))).To(Succeed())
		}
		protect(`"true"`)
		mark := auditMark(ctx)
		stack(ctx, ns, "main@sha1:2", claim("ReadWriteMany"), configMap("a", "2")+immutable)
		reports(ctx, in, "False", "ReconciliationFailed", "PersistentVolumeClaim "+ns+"/data",
			"spec.guard.protectKinds has PersistentVolumeClaim",
			"ConfigMap "+ns+"/a", "has the annotation "+live.PreventDeletionAnnotation)
		Expect(ready(in).Message).NotTo(ContainSubstring("spec.force"), "force would not help")
		Expect(requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Verb("delete"))).To(BeEmpty())
		Expect(get(ctx, data)).To(Succeed())
		Expect(data.UID).To(Equal(uid))
		Expect(getConfigMap(ctx, ns, "a").UID).To(Equal(a.UID))

		By("a user removes the protection")
		protect("null")
		edit(ctx, in, func(in *appsv1.KsctlInstall) { in.Spec.Guard = &appsv1.Guard{ProtectKinds: []string{"Secret"}} })
		atRevision(ctx, in, "main@sha1:2")
		Expect(getConfigMap(ctx, ns, "a").UID).NotTo(Equal(a.UID))
		Expect(get(ctx, data)).To(Succeed())
		Expect(data.UID).NotTo(Equal(uid))
	})
})
