package install_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
)

var _ = Describe("Kinds", func() {
	It("waits for a kind that another install brings later, goes on with the rest, and wakes by its event", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		group := defined(ns + ".example.com")
		publish(ctx, ns, "src", "main@sha1:1", tree(components("user", "after:user", "other"), map[string]string{
			"user/object.yaml": widget(group, "first"), "user/a.yaml": configMap("beside", "1"),
			"after/a.yaml": configMap("after", "1"), "other/a.yaml": configMap("other", "1")}))
		in := newInstall(ctx, ns, "user", hourly)
		says(ctx, in, "Unknown", "Progressing", `component "user"`, "kind Widget of "+group+"/v1 is not served yet")
		Expect(absent(ctx, aConfigMap(ns, "beside"))).To(BeFalse(), "the rest of its component goes on")
		Expect(absent(ctx, aConfigMap(ns, "other"))).To(BeFalse(), "other components go on")
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeTrue())
		Expect(component(in, "after").Message).To(Equal("waits for component user"))
		Expect(condition(in, "Stalled")).To(BeNil())

		publish(ctx, ns, "crds", "main@sha1:1", tree(oneComponent, map[string]string{"main/crd.yaml": definition(group, "Namespaced")}))
		provider := newInstall(ctx, ns, "provider", hourly, func(in *appsv1.KsctlInstall) { in.Spec.SourceRef.Name = "crds" })
		atRevision(ctx, provider, "main@sha1:1")
		began := time.Now()
		atRevision(ctx, in, "main@sha1:1")
		took := time.Since(began)
		AddReportEntry("from the provider's Ready to the user's", took.String())
		Expect(took).To(BeNumerically("<", time.Minute), "by its event: every timer is an hour away")
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeFalse())
	})

	It("is stalled by a kind that no built-in group has, names it, and applies the rest", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(components("main", "other"), map[string]string{
			"main/a.yaml":  "apiVersion: apps/v1\nkind: Deploymnet\nmetadata: {name: typo}\nspec: {replicas: 1}\n",
			"other/a.yaml": configMap("other", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		says(ctx, in, "False", "InvalidObject", `component "main"`, "Deploymnet", "typo", "apps/v1", "check apiVersion and kind")
		Expect(condition(in, "Stalled")).To(HaveField("Reason", "InvalidObject"))
		Expect(condition(in, "Reconciling")).To(BeNil())
		Expect(absent(ctx, aConfigMap(ns, "other"))).To(BeFalse())

		publish(ctx, ns, "src", "main@sha1:2", tree(components("main", "other"), map[string]string{
			"main/a.yaml": configMap("a", "1"), "other/a.yaml": configMap("other", "1")}))
		atRevision(ctx, in, "main@sha1:2")
		Expect(condition(in, "Stalled")).To(BeNil())
	})

	It("is stalled by a namespace on an object of a cluster-scoped kind, and names both", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		group := defined(ns + ".example.com")
		Expect(plane.ApplyYAML(ctx, []byte(definition(group, "Cluster")))).To(Succeed())
		scoped := "apiVersion: " + group + "/v1\nkind: Widget\nmetadata: {name: " + ns + ", namespace: somewhere}\n"
		publish(ctx, ns, "src", "main@sha1:1", tree(oneComponent, map[string]string{"main/a.yaml": scoped, "main/b.yaml": configMap("b", "1")}))
		mark := marked(ctx)
		in := newInstall(ctx, ns, "i", hourly)
		says(ctx, in, "False", "InvalidObject", `component "main"`, "Widget", ns, "cluster-scoped", `"somewhere"`)
		Expect(condition(in, "Stalled")).NotTo(BeNil())
		Expect(since(ctx, mark, cluster.As(tenant(ns)), cluster.Resource("widgets"))).To(BeEmpty(), "what can't be right is not tried")
		Expect(absent(ctx, aConfigMap(ns, "b"))).To(BeFalse(), "the rest is applied")

		By("taking a namespace that nobody wrote off such an object")
		publish(ctx, ns, "src", "main@sha1:2", tree(oneComponent, map[string]string{"main/a.yaml": widget(group, ns), "main/b.yaml": configMap("b", "1")}))
		atRevision(ctx, in, "main@sha1:2")
		Expect(absent(ctx, widgetObject(group, "", ns))).To(BeFalse())
		removed(ctx, in)
		Expect(absent(ctx, widgetObject(group, "", ns))).To(BeTrue())
	})

	It("waits again for a kind whose definition is deleted while it is in use, and brings the object back with it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		group := defined(ns + ".example.com")
		Expect(plane.ApplyYAML(ctx, []byte(definition(group, "Namespaced")))).To(Succeed())
		publish(ctx, ns, "src", "main@sha1:1", tree(oneComponent, map[string]string{"main/a.yaml": widget(group, "first")}))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")

		crd := widgetObject(group, "", "widgets."+group)
		crd.SetGroupVersionKind(crdKind)
		removed(ctx, crd) // or the next one would be applied to this, and go with it
		says(ctx, in, "Unknown", "Progressing", "kind Widget of "+group+"/v1 is not served")
		Expect(plane.ApplyYAML(ctx, []byte(definition(group, "Namespaced")))).To(Succeed())
		atRevision(ctx, in, "main@sha1:1")
		Expect(absent(ctx, widgetObject(group, ns, "first"))).To(BeFalse())
	})

	It("forgets objects that leave the stack when their kind is gone, and removes what else leaves", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		group := defined(ns + ".example.com")
		Expect(plane.ApplyYAML(ctx, []byte(definition(group, "Namespaced")))).To(Succeed())
		publish(ctx, ns, "src", "main@sha1:1", tree(oneComponent, map[string]string{
			"main/a.yaml": widget(group, "first"), "main/b.yaml": configMap("b", "1"), "main/c.yaml": configMap("c", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")

		crd := widgetObject(group, "", "widgets."+group)
		crd.SetGroupVersionKind(crdKind)
		removed(ctx, crd)
		says(ctx, in, "Unknown", "Progressing", "is not served")
		publish(ctx, ns, "src", "main@sha1:2", tree(oneComponent, map[string]string{"main/b.yaml": configMap("b", "1")}))
		atRevision(ctx, in, "main@sha1:2")
		Expect(in.Status.Inventory.Entries).To(HaveLen(1))
		Expect(absent(ctx, aConfigMap(ns, "c"))).To(BeTrue())
	})
})
