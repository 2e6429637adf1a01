package install_test

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gstruct"
	"github.com/onsi/gomega/types"
	k8sappsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/charts/behaviors"
	"github.com/ksctl/gitops/e2e/cluster"
)

// changedFields returns the paths of the fields that differ between two values, with + for an added
// field and - for a removed one.
func changedFields(path string, before, after any) (out []string) {
	was, wasMap := before.(map[string]any)
	is, isMap := after.(map[string]any)
	switch {
	case wasMap && (isMap || after == nil), isMap && before == nil:
		all := maps.Clone(was)
		if all == nil {
			all = map[string]any{}
		}
		maps.Copy(all, is)
		for _, key := range slices.Sorted(maps.Keys(all)) {
			out = append(out, changedFields(path+"/"+key, was[key], is[key])...)
		}
		return out
	case reflect.DeepEqual(before, after):
		return nil
	case before == nil:
		return []string{"+" + path}
	case after == nil:
		return []string{"-" + path}
	}
	return []string{path}
}

// changedObjects returns changedFields of objects by kind/name. It leaves out resourceVersion and
// managedFields, which each write changes, and the status, which other controllers write.
func changedObjects(before, after map[string]*unstructured.Unstructured) map[string][]string {
	out := map[string][]string{}
	for name := range before {
		if after[name] == nil {
			out[name] = []string{"deleted"}
			continue
		}
		changed := changedFields("", before[name].Object, after[name].Object)
		out[name] = slices.DeleteFunc(changed, func(path string) bool {
			return path == "/metadata/resourceVersion" || path == "/metadata/managedFields" ||
				strings.HasPrefix(path, "/status/")
		})
	}
	for name := range after {
		if before[name] == nil {
			out[name] = []string{"created"}
		}
	}
	return out
}

// availableRelease waits until the Deployment of behaviors.Workload is available, after which no
// other controller changes an object of the chart.
func availableRelease(ctx context.Context, ns string) {
	GinkgoHelper()
	web := &k8sappsv1.Deployment{ObjectMeta: objectMeta(ns, "web")}
	Eventually(ctx, func() (int32, error) {
		err := get(ctx, web)
		return web.Status.AvailableReplicas, err
	}, soon).Should(BeEquivalentTo(2), "the Pods of the release run")
}

// podNames returns the names of the Pods of a namespace. A rollout of a Deployment changes them.
func podNames(ctx context.Context, ns string) (names []string) {
	GinkgoHelper()
	list := &corev1.PodList{}
	Expect(plane.Client().List(ctx, list, client.InNamespace(ns))).To(Succeed())
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// adoptionChanges matches changedObjects after the adoption of a release of behaviors.Workload.
// Helm marks all objects except those in crds/; we mark every object.
func adoptionChanges(group string) types.GomegaMatcher {
	mark, label := "+/metadata/annotations/"+live.MarkAnnotation, "+/metadata/labels/"+live.OwnerLabel
	name := "-/metadata/annotations/" + live.HelmReleaseNameAnnotation
	namespace := "-/metadata/annotations/" + helmNamespaceAnnotation
	all := ConsistOf(mark, label, name, namespace, "-/metadata/labels/"+managedByLabel)
	return gstruct.MatchAllKeys(gstruct.Keys{
		"CustomResourceDefinition/widgets." + group: ConsistOf(mark, label),
		"ConfigMap/kept": all, "ConfigMap/web": all, "Secret/login": all, "Service/web": all, "Widget/web": all,
		// For these two, the chart renders the label managed-by.
		"ServiceAccount/web": ConsistOf(mark, label, name, namespace),
		"Deployment/web":     ConsistOf(mark, label, name, namespace, "/metadata/generation"),
	})
}

var _ = Describe("A release of Helm that is taken over", func() {
	DescribeTable("keeps every field of its objects, except the marks of Helm and ours",
		func(ctx SpecContext, serverSide string) {
			ns := namespaceFor(ctx)
			group := deleteDefinition(ns + "." + behaviors.Group)
			chart := behaviors.Workload.Chart(group)
			Expect(installWithHelm(ctx, ns, chart, "", "--server-side="+serverSide)).To(Succeed())
			availableRelease(ctx, ns)
			before, pods := storedObjects(ctx, ns, group), podNames(ctx, ns)

			By("following the steps of docs/moving.md")
			publish(ctx, ns, "src", "main@sha1:1", tree(releaseStack, releaseFiles(chart, "")))
			mark := auditMark(ctx)
			in := newInstall(ctx, ns, "i", hourly, withAdopt(appsv1.AdoptAlways))
			atRevision(ctx, in, "main@sha1:1")

			after := storedObjects(ctx, ns, group)
			Expect(changedObjects(before, after)).To(adoptionChanges(group))
			Expect(after["Deployment/web"].GetGeneration()).To(Equal(before["Deployment/web"].GetGeneration()+1),
				"the generation of a Deployment counts annotations, which one of the writes changes")
			Expect(podNames(ctx, ns)).To(ConsistOf(pods), "no Pod restarts")
			for name, o := range after {
				Expect(o.GetManagedFields()).NotTo(ContainElement(HaveField("Manager", "helm")),
					"%s belongs to the install alone", name)
			}
			succeeded := map[string]int{}
			for _, r := range writes(ctx, ns, mark).Without(cluster.DryRun, cluster.Failed) {
				Expect(r.Verb).To(Equal("patch"), "no object is deleted or created: %s", r)
				succeeded[r.Resource+"/"+r.Name]++
			}
			Expect(succeeded).To(HaveLen(len(after)))
			Expect(succeeded).To(HaveEach(2), "one claims the fields that Helm applied, one applies")

			By("reconciling once more, without further writes")
			mark = auditMark(ctx)
			requestReconcile(ctx, in, "again")
			Expect(writes(ctx, ns, mark)).To(BeEmpty())
		},
		Entry("applied server-side", "true"),
		Entry("applied client-side, like Helm 3", "false"))
})
