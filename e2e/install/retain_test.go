package install_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
)

// publishRetained publishes a component that retains one Job and one ConfigMap, whose names depend
// on a version and on the fate of the Job's pod.
func publishRetained(ctx context.Context, ns, revision, version, fate string) {
	GinkgoHelper()
	generated := func(doc string) string { return strings.Replace(doc, `name: "x"`, "generateName: x-", 1) }
	labels := fmt.Sprintf(", labels: {version: %q}", version)
	publish(ctx, ns, "src", "main@sha1:"+revision, tree("spec:\n  version: 1.0.0\n  components:\n"+
		"  - {name: run, manifests: [run/], retain: {last: 1}}\n", map[string]string{
		"run/j.yaml": generated(job("x", fate, "", labels)),
		"run/c.yaml": generated(fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"x\"%s}\n", labels)),
	}))
}

// retainedVersions returns the versions of the Jobs and of the ConfigMaps of a namespace.
func retainedVersions(ctx context.Context, ns string) (jobs, configMaps []string) {
	GinkgoHelper()
	var jobList batchv1.JobList
	var mapList corev1.ConfigMapList
	versioned := client.HasLabels{"version"}
	Expect(plane.Client().List(ctx, &jobList, client.InNamespace(ns), versioned)).To(Succeed())
	Expect(plane.Client().List(ctx, &mapList, client.InNamespace(ns), versioned)).To(Succeed())
	for i := range jobList.Items {
		jobs = append(jobs, jobList.Items[i].Labels["version"])
	}
	for i := range mapList.Items {
		configMaps = append(configMaps, mapList.Items[i].Labels["version"])
	}
	slices.Sort(jobs)
	slices.Sort(configMaps)
	return jobs, configMaps
}

// jobOf returns the Job of a version.
func jobOf(ctx context.Context, ns, version string) *batchv1.Job {
	GinkgoHelper()
	var list batchv1.JobList
	Expect(plane.Client().List(ctx, &list, client.InNamespace(ns), client.MatchingLabels{"version": version})).
		To(Succeed())
	Expect(list.Items).To(HaveLen(1), "Jobs of version %s", version)
	return &list.Items[0]
}

var _ = Describe("Retained objects", func() {
	expectVersions := func(ctx context.Context, ns string, wantJobs, wantMaps []string) {
		GinkgoHelper()
		Eventually(ctx, func(g Gomega) {
			jobs, configMaps := retainedVersions(ctx, ns)
			g.Expect(jobs).To(Equal(wantJobs))
			g.Expect(configMaps).To(Equal(wantMaps))
		}, soon).Should(Succeed(), "the last one of each kind stays")
	}

	It("stay when other content replaces them, and go with the install", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		sourceForController(ctx, ns, "src", "retained")
		publishRetained(ctx, ns, "1", "1", "")
		stop := startController(dedicated("retained"))
		in := newInstall(ctx, ns, "i", hourly, forController[*appsv1.KsctlInstall]("retained"))
		atRevision(ctx, in, "main@sha1:1")
		for _, version := range []string{"2", "3"} {
			publishRetained(ctx, ns, version, version, "")
			atRevision(ctx, in, "main@sha1:"+version)
		}
		expectVersions(ctx, ns, []string{"2", "3"}, []string{"2", "3"})

		By("leaving them alone")
		mark := auditMark(ctx)
		retained := jobOf(ctx, ns, "2")
		annotate(ctx, retained, "somebody", "was here")
		Expect(plane.Client().DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(ns),
			client.MatchingLabels{"version": "2"})).To(Succeed())
		stop()
		startController(dedicated("retained"))
		requestReconcile(ctx, in, "restarted")
		becomes(ctx, in, "True", "")
		expectNoWrites(ctx, ns, mark, "retained objects are neither corrected nor created again")
		expectVersions(ctx, ns, []string{"2", "3"}, []string{"3"})

		By("deleting a Job that runs before the next one starts")
		publishRetained(ctx, ns, "4", "4", cluster.FateNeverEnds)
		reports(ctx, in, "Unknown", "Progressing", "is InProgress")
		expectVersions(ctx, ns, []string{"3", "4"}, []string{"3", "4"})
		ofRunning := client.MatchingLabels{"job-name": jobOf(ctx, ns, "4").Name}
		Eventually(ctx, func() ([]corev1.Pod, error) {
			var pods corev1.PodList
			err := plane.Client().List(ctx, &pods, client.InNamespace(ns), ofRunning)
			return pods.Items, err
		}, soon).Should(HaveLen(1), "the Job has a pod")
		publishRetained(ctx, ns, "5", "5", "")
		atRevision(ctx, in, "main@sha1:5")
		expectVersions(ctx, ns, []string{"3", "5"}, []string{"4", "5"})
		var pods corev1.PodList
		Expect(plane.Client().List(ctx, &pods, client.InNamespace(ns), ofRunning)).To(Succeed())
		Expect(pods.Items).To(BeEmpty(), "the pods of the deleted Job are gone")

		By("taking up content that comes back")
		before := jobOf(ctx, ns, "3")
		publishRetained(ctx, ns, "6", "3", "")
		atRevision(ctx, in, "main@sha1:6")
		expectVersions(ctx, ns, []string{"3", "5"}, []string{"3", "5"})
		Expect(jobOf(ctx, ns, "3").UID).To(Equal(before.UID), "it is the same Job")

		deleteAndWait(ctx, in)
		jobs, configMaps := retainedVersions(ctx, ns)
		Expect(jobs).To(BeEmpty())
		Expect(configMaps).To(BeEmpty())
	})

	It("need one object of each kind", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree("spec:\n  version: 1.0.0\n  components:\n"+
			"  - {name: run, manifests: [run/], retain: {last: 1}}\n", map[string]string{
			"run/a.yaml": configMap("a", "1"), "run/b.yaml": configMap("b", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		reports(ctx, in, "False", "InvalidStack", `component "run": field "retain" allows one object of each kind`)
	})
})
