package install_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/suite"
)

const (
	fluxPrune  = "kustomize.toolkit.fluxcd.io/prune: disabled"
	fluxSSA    = "kustomize.toolkit.fluxcd.io/ssa: IfNotPresent"
	fluxForce  = "kustomize.toolkit.fluxcd.io/force: enabled"
	argoPrune  = "argocd.argoproj.io/sync-options: Prune=false"
	argoDelete = "argocd.argoproj.io/sync-options: Delete=false"
	argoHealth = `argocd.argoproj.io/ignore-healthcheck: "true"`
)

// annotated returns a ConfigMap with an annotation.
func annotated(name, annotation, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, annotations: {%s}}\ndata: {value: %q}\n",
		name, annotation, value)
}

// valuesIn returns the values of the ConfigMaps in a namespace that the specs made, by name.
func valuesIn(ctx context.Context, ns string) map[string]string {
	GinkgoHelper()
	var list corev1.ConfigMapList
	Expect(plane.Client().List(ctx, &list, client.InNamespace(ns))).To(Succeed())
	out := map[string]string{}
	for i := range list.Items {
		if value, ok := list.Items[i].Data["value"]; ok {
			out[list.Items[i].Name] = value
		}
	}
	return out
}

var _ = Describe("An annotation of an object", suite.Safety, func() {
	It("keeps it when it leaves the stack, when the install is deleted, or both", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		all := []string{configMap("a", "1"), annotated("ours", appsv1.KeepAnnotation+`: "true"`, "1"),
			annotated("flux", fluxPrune, "1"), annotated("argo-prune", argoPrune, "1"),
			annotated("argo-delete", argoDelete, "1")}
		names := func() []string {
			GinkgoHelper()
			return slices.Sorted(maps.Keys(valuesIn(ctx, ns)))
		}
		stack(ctx, ns, "main@sha1:1", all...)
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")

		stack(ctx, ns, "main@sha1:2", configMap("a", "2"))
		atRevision(ctx, in, "main@sha1:2")
		Expect(names()).To(Equal([]string{"a", "argo-prune", "flux", "ours"}), "Delete=false is pruned")
		for _, name := range []string{"argo-prune", "flux", "ours"} {
			Expect(getConfigMap(ctx, ns, name).Annotations).NotTo(HaveKey(live.MarkAnnotation), "it is released")
		}

		By("coming back, and the deletion of the install")
		edit(ctx, in, withAdopt(appsv1.AdoptAlways))
		stack(ctx, ns, "main@sha1:3", all...)
		atRevision(ctx, in, "main@sha1:3")
		deleteAndWait(ctx, in)
		Expect(names()).To(Equal([]string{"argo-delete", "flux", "ours"}), "Prune=false is deleted")
	})

	It("creates it only when it is missing", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		before := foreignConfigMap(ctx, ns, "theirs", metav1.ObjectMeta{})
		docs := func(value string) []string {
			return []string{configMap("a", value), annotated("theirs", fluxSSA, value),
				annotated("ours", appsv1.CreateOnlyAnnotation+`: "true"`, value)}
		}
		stack(ctx, ns, "main@sha1:1", docs("1")...)
		in := newInstall(ctx, ns, "i", hourly, withAdopt(appsv1.AdoptAlways))
		atRevision(ctx, in, "main@sha1:1")
		stack(ctx, ns, "main@sha1:2", docs("2")...)
		atRevision(ctx, in, "main@sha1:2")
		Expect(valuesIn(ctx, ns)).To(Equal(map[string]string{"a": "2", "ours": "1", "theirs": "theirs"}))
		Expect(getConfigMap(ctx, ns, "theirs").ResourceVersion).To(Equal(before.ResourceVersion), "it is not written")

		By("an edit by hand, and a deletion by hand")
		ours := getConfigMap(ctx, ns, "ours")
		Expect(patch(ctx, ours, "somebody", `{"data":{"value":"edited"}}`)).To(Succeed())
		Expect(plane.Client().Delete(ctx, before)).To(Succeed())
		requestReconcile(ctx, in, "again")
		Eventually(ctx, func(ctx context.Context) map[string]string { return valuesIn(ctx, ns) }, soon, "20ms").
			Should(Equal(map[string]string{"a": "2", "ours": "edited", "theirs": "2"}), "the missing one is created")
		deleteAndWait(ctx, in)
		Expect(valuesIn(ctx, ns)).To(BeEmpty(), "the install created all of them in the end")
	})

	It("recreates it on an immutable field, unless it is protected", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		ours := func(value string) string {
			return annotated("ours", appsv1.RecreateAnnotation+`: "true"`, value) + immutable
		}
		flux := func(value string) string { return annotated("flux", fluxForce, value) + immutable }
		kept := func(value string) string {
			return annotated("kept", appsv1.RecreateAnnotation+`: "true", `+fluxPrune, value) + immutable
		}
		claim := func(mode string) string {
			return "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data, annotations: {" +
				appsv1.RecreateAnnotation + ": \"true\"}}\nspec: {accessModes: [" + mode +
				"], resources: {requests: {storage: 1Gi}}, storageClassName: none}\n"
		}
		stack(ctx, ns, "main@sha1:1", ours("1"), flux("1"), kept("1"), claim("ReadWriteOnce"))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		before := getConfigMap(ctx, ns, "ours")
		mark := auditMark(ctx)
		stack(ctx, ns, "main@sha1:2", ours("2"), flux("2"), kept("2"), claim("ReadWriteMany"))
		reports(ctx, in, "False", "ReconciliationFailed", "PersistentVolumeClaim "+ns+"/data",
			"spec.guard.protectKinds", "ConfigMap "+ns+"/kept", appsv1.KeepAnnotation)
		Expect(valuesIn(ctx, ns)).To(Equal(map[string]string{"ours": "2", "flux": "2", "kept": "1"}))
		Expect(getConfigMap(ctx, ns, "ours").UID).NotTo(Equal(before.UID))
		Expect(requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Verb("delete"))).To(HaveLen(2))
	})

	It("leaves it out of the health of its component", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		sick := func(name, annotation string) string {
			return strings.Replace(deployment(name, cluster.FateNeverReady), "metadata: {",
				"metadata: {annotations: {"+annotation+"}, ", 1)
		}
		stack(ctx, ns, "main@sha1:1", sick("ours", appsv1.IgnoreHealthAnnotation+`: "true"`), sick("argo", argoHealth))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		d := aDeployment(ns, "ours")
		Expect(get(ctx, d)).To(Succeed())
		Expect(d.Status.ReadyReplicas).To(BeZero())
		stack(ctx, ns, "main@sha1:2", sick("ours", "example.com/x: other"), sick("argo", argoHealth))
		reports(ctx, in, "Unknown", "Progressing", "Deployment "+ns+"/ours is InProgress")
		Expect(ready(in).Message).NotTo(ContainSubstring("argo"))
	})
})
