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

const frozen = "immutable: true\n"

var _ = Describe("A field that can't be changed", func() {
	It("is refused, and force recreates the object", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", configMap("a", "1")+frozen, configMap("b", "1"))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		before := seen(ctx, ns, "a")
		stack(ctx, ns, "main@sha1:2", configMap("a", "2")+frozen, configMap("b", "2"))
		says(ctx, in, "False", "ReconciliationFailed", "ConfigMap "+ns+"/a", "spec.force", "immutable")
		Expect(seen(ctx, ns, "a").UID).To(Equal(before.UID))
		Expect(seen(ctx, ns, "b").Data).To(HaveKeyWithValue("value", "2"), "the others are applied")

		edit(ctx, in, func(in *appsv1.KsctlInstall) { in.Spec.Force = true })
		atRevision(ctx, in, "main@sha1:2")
		after := seen(ctx, ns, "a")
		Expect(after.UID).NotTo(Equal(before.UID))
		Expect(after.Data).To(HaveKeyWithValue("value", "2"))
		Eventually(ctx, told(ctx, in, "Recreated"), soon).Should(HaveLen(1))
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

	It("is not taken for one that is wrong: force deletes nothing that could not be made anew", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		service := func(port int) string {
			return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{port: %d}]}\n", port)
		}
		stack(ctx, ns, "main@sha1:1", service(80))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		before := &corev1.Service{ObjectMeta: named(ns, "web")}
		Expect(get(ctx, before)).To(Succeed())
		stack(ctx, ns, "main@sha1:2", service(99999))
		says(ctx, in, "False", "ReconciliationFailed", "Service "+ns+"/web", "spec.ports[0].port")
		Expect(ready(in).Message).NotTo(ContainSubstring("spec.force"), "that would not help")
		mark := marked(ctx)
		edit(ctx, in, func(in *appsv1.KsctlInstall) { in.Spec.Force = true })
		answered(ctx, in, "again")
		says(ctx, in, "False", "ReconciliationFailed", "Service "+ns+"/web", "spec.ports[0].port")
		Expect(since(ctx, mark, cluster.As(tenant(ns)), cluster.Verb("delete"))).To(BeEmpty())
		after := &corev1.Service{ObjectMeta: named(ns, "web")}
		Expect(get(ctx, after)).To(Succeed())
		Expect(after.UID).To(Equal(before.UID))
	})

	It("of an object that was there before is left to its people, also with force", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		before := aConfigMap(ns, "a")
		before.Data, before.Immutable = map[string]string{"value": "theirs"}, ptr.To(true)
		Expect(plane.Client().Create(ctx, before)).To(Succeed())
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"), configMap("b", "1"))
		in := newInstall(ctx, ns, "i", hourly, func(in *appsv1.KsctlInstall) { in.Spec.Force = true })
		says(ctx, in, "False", "ReconciliationFailed", "ConfigMap "+ns+"/a", "was there before")
		Expect(seen(ctx, ns, "b").Data).To(HaveKeyWithValue("value", "1"))
		Expect(seen(ctx, ns, "a").ResourceVersion).To(Equal(before.ResourceVersion), "it was not touched")
		edit(ctx, in, adopting(appsv1.AdoptAlways))
		atRevision(ctx, in, "main@sha1:1")
		Expect(seen(ctx, ns, "a").UID).NotTo(Equal(before.UID))
	})

	It("of an object that must not be deleted is refused, also with force", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		claim := func(mode string) string {
			return "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\n" +
				"spec: {accessModes: [" + mode + "], resources: {requests: {storage: 1Gi}}, storageClassName: none}\n"
		}
		stack(ctx, ns, "main@sha1:1", claim("ReadWriteOnce"), configMap("a", "1")+frozen)
		in := newInstall(ctx, ns, "i", hourly, func(in *appsv1.KsctlInstall) { in.Spec.Force = true })
		atRevision(ctx, in, "main@sha1:1")
		data := &corev1.PersistentVolumeClaim{ObjectMeta: named(ns, "data")}
		Expect(get(ctx, data)).To(Succeed())
		a, uid := seen(ctx, ns, "a"), data.UID
		protect := func(value string) {
			GinkgoHelper()
			Expect(merge(`{"metadata":{"annotations":{"`+live.PreventDeletionAnnotation+`":`+value+`}}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
		}
		protect(`"true"`)
		mark := marked(ctx)
		stack(ctx, ns, "main@sha1:2", claim("ReadWriteMany"), configMap("a", "2")+frozen)
		says(ctx, in, "False", "ReconciliationFailed", "PersistentVolumeClaim "+ns+"/data", "spec.guard.protectKinds has PersistentVolumeClaim",
			"ConfigMap "+ns+"/a", "has the annotation "+live.PreventDeletionAnnotation)
		Expect(ready(in).Message).NotTo(ContainSubstring("spec.force"), "that would not help")
		Expect(since(ctx, mark, cluster.As(tenant(ns)), cluster.Verb("delete"))).To(BeEmpty())
		Expect(get(ctx, data)).To(Succeed())
		Expect(data.UID).To(Equal(uid))
		Expect(seen(ctx, ns, "a").UID).To(Equal(a.UID))

		By("a person lets them go")
		protect("null")
		edit(ctx, in, func(in *appsv1.KsctlInstall) { in.Spec.Guard = &appsv1.Guard{ProtectKinds: []string{"Secret"}} })
		atRevision(ctx, in, "main@sha1:2")
		Expect(seen(ctx, ns, "a").UID).NotTo(Equal(a.UID))
		Expect(get(ctx, data)).To(Succeed())
		Expect(data.UID).NotTo(Equal(uid))
	})
})
