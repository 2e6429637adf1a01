package install_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
)

var _ = Describe("An install", func() {
	It("waits for a kind that another install creates later, applies the other objects, and continues on the event "+
		"of the CRD", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		group := deleteDefinition(ns + ".example.com")
		publish(ctx, ns, "src", "main@sha1:1", tree(components("user", "after:user", "other"), map[string]string{
			"user/object.yaml": widget(group, "first"), "user/a.yaml": configMap("beside", "1"),
			"after/a.yaml": configMap("after", "1"), "other/a.yaml": configMap("other", "1")}))
		in := newInstall(ctx, ns, "user", hourly)
		reports(ctx, in, "Unknown", "Progressing", `component "user"`, "kind Widget of "+group+"/v1 is not served yet")
		Expect(absent(ctx, aConfigMap(ns, "beside"))).To(BeFalse(), "the other objects of the component are applied")
		Expect(absent(ctx, aConfigMap(ns, "other"))).To(BeFalse(), "other components are applied")
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeTrue())
		Expect(component(in, "after").Message).To(Equal("waits for component user"))
		Expect(condition(in, "Stalled")).To(BeNil())

		publish(ctx, ns, "crds", "main@sha1:1",
			tree(oneComponent, map[string]string{"main/crd.yaml": definition(group, "Namespaced")}))
		provider := newInstall(ctx, ns, "provider", hourly, func(in *appsv1.KsctlInstall) {
			in.Spec.SourceRef.Name = "crds"
		})
		atRevision(ctx, provider, "main@sha1:1")
		began := time.Now()
		atRevision(ctx, in, "main@sha1:1")
		took := time.Since(began)
		AddReportEntry("from Ready of the provider to Ready of the user", took.String())
		Expect(took).To(BeNumerically("<", time.Minute), "on the event of the CRD: every timer fires after an hour")
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeFalse())
	})

	It("stalls on a kind that a built-in group does not have, reports it, and applies the other "+
		"objects", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(components("main", "other"), map[string]string{
			"main/a.yaml":  "apiVersion: apps/v1\nkind: Deploymnet\nmetadata: {name: typo}\nspec: {replicas: 1}\n",
			"other/a.yaml": configMap("other", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		reports(ctx, in, "False", "InvalidObject", `component "main"`, "Deploymnet", "typo", "apps/v1",
			"check apiVersion and kind")
		Expect(condition(in, "Stalled")).To(HaveField("Reason", "InvalidObject"))
		Expect(condition(in, "Reconciling")).To(BeNil())
		Expect(absent(ctx, aConfigMap(ns, "other"))).To(BeFalse())

		publish(ctx, ns, "src", "main@sha1:2", tree(components("main", "other"), map[string]string{
			"main/a.yaml": configMap("a", "1"), "other/a.yaml": configMap("other", "1")}))
		atRevision(ctx, in, "main@sha1:2")
		Expect(condition(in, "Stalled")).To(BeNil())
	})

	It("stalls on a namespace of a cluster-scoped object, and reports both", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		group := deleteDefinition(ns + ".example.com")
		Expect(plane.ApplyYAML(ctx, []byte(definition(group, "Cluster")))).To(Succeed())
		scoped := "apiVersion: " + group + "/v1\nkind: Widget\nmetadata: {name: " + ns + ", namespace: somewhere}\n"
		publish(ctx, ns, "src", "main@sha1:1",
			tree(oneComponent, map[string]string{"main/a.yaml": scoped, "main/b.yaml": configMap("b", "1")}))
		mark := auditMark(ctx)
		in := newInstall(ctx, ns, "i", hourly)
		reports(ctx, in, "False", "InvalidObject", `component "main"`, "Widget", ns, "cluster-scoped", `"somewhere"`)
		Expect(condition(in, "Stalled")).NotTo(BeNil())
		Expect(requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Resource("widgets"))).
			To(BeEmpty(), "no request is made for an invalid object")
		Expect(absent(ctx, aConfigMap(ns, "b"))).To(BeFalse(), "the other objects are applied")

		By("omitting the default namespace from a cluster-scoped object")
		publish(ctx, ns, "src", "main@sha1:2",
			tree(oneComponent, map[string]string{"main/a.yaml": widget(group, ns), "main/b.yaml": configMap("b", "1")}))
		atRevision(ctx, in, "main@sha1:2")
		Expect(absent(ctx, widgetObject(group, "", ns))).To(BeFalse())
		deleteAndWait(ctx, in)
		Expect(absent(ctx, widgetObject(group, "", ns))).To(BeTrue())
	})

	It("sends no request for a custom resource with an impossible name, and records none", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		group := deleteDefinition(ns + ".example.com")
		Expect(plane.ApplyYAML(ctx, []byte(definition(group, "Namespaced")))).To(Succeed())
		publish(ctx, ns, "src", "main@sha1:1", tree(oneComponent, map[string]string{
			"main/a.yaml": widget(group, "Upper_Case"), "main/b.yaml": configMap("b", "1")}))
		mark := auditMark(ctx)
		in := newInstall(ctx, ns, "i", hourly)
		reports(ctx, in, "False", "InvalidObject", "Widget "+ns+"/Upper_Case", "lowercase RFC 1123 subdomain")
		Expect(condition(in, "Stalled")).NotTo(BeNil())
		Expect(requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Resource("widgets"))).
			To(BeEmpty(), "no request is made for an invalid object")
		Expect(in.Status.Inventory.Entries).To(HaveLen(1), "it is not recorded")

		By("correcting the name")
		publish(ctx, ns, "src", "main@sha1:2", tree(oneComponent, map[string]string{
			"main/a.yaml": widget(group, "lower-case"), "main/b.yaml": configMap("b", "1")}))
		atRevision(ctx, in, "main@sha1:2")
		Expect(absent(ctx, widgetObject(group, ns, "lower-case"))).To(BeFalse())
	})

	It("waits again for a kind whose CRD is deleted while in use, and recreates the object when the CRD "+
		"returns", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		group := deleteDefinition(ns + ".example.com")
		Expect(plane.ApplyYAML(ctx, []byte(definition(group, "Namespaced")))).To(Succeed())
		publish(ctx, ns, "src", "main@sha1:1",
			tree(oneComponent, map[string]string{"main/a.yaml": widget(group, "first")}))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")

		crd := widgetObject(group, "", "widgets."+group)
		crd.SetGroupVersionKind(crdKind)
		deleteAndWait(ctx, crd) // otherwise the next CRD would be applied to this one, and be deleted with it
		reports(ctx, in, "Unknown", "Progressing", "kind Widget of "+group+"/v1 is not served")
		Expect(plane.ApplyYAML(ctx, []byte(definition(group, "Namespaced")))).To(Succeed())
		atRevision(ctx, in, "main@sha1:1")
		Expect(absent(ctx, widgetObject(group, ns, "first"))).To(BeFalse())
	})

	It("drops objects that leave the stack from the inventory when their kind is gone, and deletes "+
		"the others", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		group := deleteDefinition(ns + ".example.com")
		Expect(plane.ApplyYAML(ctx, []byte(definition(group, "Namespaced")))).To(Succeed())
		publish(ctx, ns, "src", "main@sha1:1", tree(oneComponent, map[string]string{
			"main/a.yaml": widget(group, "first"), "main/b.yaml": configMap("b", "1"),
			"main/c.yaml": configMap("c", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")

		crd := widgetObject(group, "", "widgets."+group)
		crd.SetGroupVersionKind(crdKind)
		deleteAndWait(ctx, crd)
		reports(ctx, in, "Unknown", "Progressing", "is not served")
		publish(ctx, ns, "src", "main@sha1:2",
			tree(oneComponent, map[string]string{"main/b.yaml": configMap("b", "1")}))
		atRevision(ctx, in, "main@sha1:2")
		Expect(in.Status.Inventory.Entries).To(HaveLen(1))
		Expect(absent(ctx, aConfigMap(ns, "c"))).To(BeTrue())
	})
})
