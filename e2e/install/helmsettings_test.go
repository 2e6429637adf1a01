package install_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
)

// settingsChart returns a chart with two CustomResourceDefinitions, and with hooks that never end.
func settingsChart(value string, groups ...string) map[string]string {
	files := map[string]string{
		"chart/Chart.yaml":       "apiVersion: v2\nname: web\nversion: 1.0.0\n",
		"chart/templates/a.yaml": configMap("a", value),
	}
	for _, event := range []string{"pre-install", "post-install", "pre-upgrade", "pre-delete", "test"} {
		files["chart/templates/"+event+".yaml"] = job(event, cluster.FateNeverEnds, "", hook(event, 0))
	}
	for _, group := range groups {
		files["chart/crds/"+group+".yaml"] = strings.Replace(definition(group, "Namespaced"), "metadata: {",
			"metadata: {annotations: {value: \""+value+"\"}, ", 1)
	}
	return files
}

var _ = Describe("The settings of a chart", func() {
	It("crds CreateOnly and hooks Skip change no CustomResourceDefinition and run no hook", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		theirs, ours := deleteDefinition(ns+".example.com"), deleteDefinition("more-"+ns+".example.com")
		kubectl(ctx, ns, definition(theirs, "Namespaced"), "create", "-f", "-")
		kubectl(ctx, ns, "", "wait", "--for=condition=Established", "crd/widgets."+theirs)
		crd := func(group string) *unstructured.Unstructured {
			GinkgoHelper()
			u := definitionObject(group)
			Expect(get(ctx, u)).To(Succeed())
			return u
		}
		before := crd(theirs)
		const chart = "spec:\n  version: 1.0.0\n  components:\n  - {name: web, helm: {chart: ./chart, hooks: Run}}\n"
		publish(ctx, ns, "src", "main@sha1:1", tree(chart, settingsChart("1", theirs, ours)))
		in := newInstall(ctx, ns, "i", hourly, func(in *appsv1.KsctlInstall) {
			in.Spec.Components = []appsv1.ComponentChoice{{Name: "web", ReleaseName: "site",
				CRDs: appsv1.CRDsCreateOnly, Hooks: appsv1.HooksSkip}}
		})
		atRevision(ctx, in, "main@sha1:1")
		Expect(jobsIn(ctx, ns)).To(BeEmpty(), "no hook runs")
		Expect(crd(theirs)).To(Equal(before), "it is not even marked")
		created := crd(ours)
		expectOwnedBy(created, in)
		Expect(in.Status.Inventory.Entries).To(ConsistOf(HaveField("ID", ContainSubstring("widgets."+ours)),
			HaveField("ID", ContainSubstring("ConfigMap"))))

		By("another version of the chart")
		mark := auditMark(ctx)
		publish(ctx, ns, "src", "main@sha1:2", tree(chart, settingsChart("2", theirs, ours)))
		atRevision(ctx, in, "main@sha1:2")
		Expect(getConfigMap(ctx, ns, "a").Data).To(HaveKeyWithValue("value", "2"))
		Expect(crd(theirs)).To(Equal(before))
		Expect(crd(ours).GetAnnotations()).To(HaveKeyWithValue("value", "1"))
		Expect(requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)),
			cluster.Resource("customresourcedefinitions"))).To(BeEmpty(), "nothing about them is requested")
		Expect(jobsIn(ctx, ns)).To(BeEmpty())

		By("deleting the created one by hand")
		Expect(plane.Client().Delete(ctx, definitionObject(ours))).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			u := definitionObject(ours)
			g.Expect(get(ctx, u)).To(Succeed())
			g.Expect(u.GetUID()).NotTo(Equal(created.GetUID()))
			g.Expect(u.GetAnnotations()).To(HaveKeyWithValue("value", "2"))
		}, soon, "20ms").Should(Succeed(), "it is created again, as in the chart of now")
		atRevision(ctx, in, "main@sha1:2")

		By("removing the install")
		deleteAndWait(ctx, in)
		Expect(jobsIn(ctx, ns)).To(BeEmpty())
		Expect(crd(theirs)).To(Equal(before))
		Expect(apierrors.IsNotFound(get(ctx, definitionObject(ours)))).To(BeTrue(), "it did not exist before")
	})

	It("hooks Skip ends the wait of a removal for a hook", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree("spec:\n  version: 1.0.0\n  components:\n"+
			"  - {name: web, helm: {chart: ./chart}}\n", map[string]string{
			"chart/Chart.yaml":          "apiVersion: v2\nname: web\nversion: 1.0.0\n",
			"chart/templates/a.yaml":    configMap("a", "1"),
			"chart/templates/last.yaml": job("last", cluster.FateNeverEnds, "", hook("pre-delete", 0)),
		}))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		Expect(plane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, func(ctx context.Context) []string { return jobsIn(ctx, ns) }, soon, "20ms").
			Should(Equal([]string{"last"}), "the hook runs first")
		edit(ctx, in, func(in *appsv1.KsctlInstall) {
			in.Spec.Components = []appsv1.ComponentChoice{{Name: "web", Hooks: appsv1.HooksSkip}}
		})
		deleteAndWait(ctx, in)
		Expect(jobsIn(ctx, ns)).To(BeEmpty(), "the hook is removed, too")
		Expect(apierrors.IsNotFound(get(ctx, aConfigMap(ns, "a")))).To(BeTrue())
	})
})
