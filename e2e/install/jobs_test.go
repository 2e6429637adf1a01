package install_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
)

// job returns a Job that runs once, with optional additional fields of its spec and metadata
// and the fate of its pod.
func job(name, fate, spec, meta string) string {
	return fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata: {name: %q%s}
spec:
  backoffLimit: 0
%s  template:
    metadata: {annotations: {%s: %q}}
    spec: {restartPolicy: Never, containers: [{name: main, image: "example.com/main:1"}]}
`, name, meta, spec, cluster.FateAnnotation, fate)
}

const ttlZero = "  ttlSecondsAfterFinished: 0\n"

// hook returns the metadata of a Helm hook.
func hook(event string, weight int) string {
	return fmt.Sprintf(", annotations: {helm.sh/hook: %q, helm.sh/hook-weight: %q}", event, fmt.Sprint(weight))
}

func jobsIn(ctx context.Context, ns string) []string {
	GinkgoHelper()
	var list batchv1.JobList
	Expect(plane.Client().List(ctx, &list, client.InNamespace(ns))).To(Succeed())
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

// jobRuns returns how often each Job of a namespace was created since a mark.
func jobRuns(ctx context.Context, mark cluster.Mark, ns string) map[string]int {
	GinkgoHelper()
	times := map[string]int{}
	created := func(r cluster.Request) bool { return r.Code == 201 }
	for _, r := range requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Resource("jobs"),
		cluster.InNamespace(ns), created).Without(cluster.DryRun) {
		times[r.Name]++
	}
	return times
}

var _ = Describe("Jobs", func() {
	It("are ready when they are complete", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(components("migrate", "after:migrate"), map[string]string{
			"migrate/j.yaml": job("migrate", cluster.FateNeverEnds, "", ""), "after/a.yaml": configMap("after", "1")}))
		mark := auditMark(ctx)
		in := newInstall(ctx, ns, "i", hourly)
		reports(ctx, in, "Unknown", "Progressing", `component "migrate"`, "Job "+ns+"/migrate is InProgress")
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeTrue())
		makePodsReady(ctx, ns)
		atRevision(ctx, in, "main@sha1:1")
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeFalse())
		Expect(jobRuns(ctx, mark, ns)).To(Equal(map[string]int{"migrate": 1}))
	})

	It("that fail are reported, block their dependents, and run again when a change recreates them "+
		"with force", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		files := func(fate string) map[string]string {
			return map[string]string{"migrate/j.yaml": job("migrate", fate, "", ""),
				"after/a.yaml": configMap("after", "1")}
		}
		publish(ctx, ns, "src", "main@sha1:1", tree(components("migrate", "after:migrate"), files(cluster.FateFails)))
		mark := auditMark(ctx)
		in := newInstall(ctx, ns, "i", hourly)
		reports(ctx, in, "False", "HealthCheckFailed", `component "migrate"`, "Job "+ns+"/migrate is Failed")
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeTrue())
		Consistently(ctx, func() map[string]int {
			return jobRuns(ctx, mark, ns)
		}, "1s").Should(Equal(map[string]int{"migrate": 1}), "a failed Job is not run again")

		publish(ctx, ns, "src", "main@sha1:2", tree(components("migrate", "after:migrate"), files("")))
		reports(ctx, in, "False", "ReconciliationFailed", "Job "+ns+"/migrate", "spec.force")
		before := in.DeepCopy()
		in.Spec.Force = true
		Expect(plane.Client().Patch(ctx, in, client.MergeFrom(before))).To(Succeed())
		atRevision(ctx, in, "main@sha1:2")
		Expect(jobRuns(ctx, mark, ns)).To(Equal(map[string]int{"migrate": 2}))
	})

	It("stay complete when their TTL deletes them at once, also after a restart of the "+
		"controller", func(ctx SpecContext) {
		const jobs = 12
		ns := namespaceFor(ctx)
		files, once := map[string]string{"after/a.yaml": configMap("after", "1")}, map[string]int{}
		for i := range jobs {
			name := fmt.Sprintf("quick%d", i)
			files["migrate/"+name+".yaml"] = job(name, "", ttlZero, "")
			once[name] = 1
		}
		files["migrate/kept.yaml"] = job("kept", "", "", "")
		once["kept"] = 1
		sourceForController(ctx, ns, "src", "restarted")
		publish(ctx, ns, "src", "main@sha1:1", tree(components("migrate", "after:migrate"), files))
		mark := auditMark(ctx)
		stop := startController(dedicated("restarted"))
		in := newInstall(ctx, ns, "i", forController[*appsv1.KsctlInstall]("restarted"), func(in *appsv1.KsctlInstall) {
			in.Spec.Interval, in.Spec.RetryInterval = &metav1.Duration{Duration: time.Second},
				&metav1.Duration{Duration: time.Second}
		})
		atRevision(ctx, in, "main@sha1:1")
		Eventually(ctx, func() []string {
			return jobsIn(ctx, ns)
		}, soon).Should(Equal([]string{"kept"}), "the TTL controller deletes the others")
		Consistently(ctx, func(g Gomega) {
			g.Expect(get(ctx, in)).To(Succeed())
			g.Expect(ready(in).Status).To(BeEquivalentTo("True"), ready(in).Message)
			g.Expect(jobRuns(ctx, mark, ns)).To(Equal(once))
		}, "4s").Should(Succeed(), "the install stays ready for several intervals")

		stop()
		Expect(plane.Client().Delete(ctx, &batchv1.Job{ObjectMeta: objectMeta(ns, "kept")},
			client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		startController(dedicated("restarted"))
		annotate(ctx, in, "reconcile.fluxcd.io/requestedAt", "restarted")
		Eventually(ctx, func() string {
			_ = get(ctx, in)
			return in.Status.LastHandledReconcileAt
		}, soon).Should(Equal("restarted"))
		becomes(ctx, in, "True", "") // when the caches of the new controller are synced
		Consistently(ctx, func(g Gomega) {
			g.Expect(get(ctx, in)).To(Succeed())
			g.Expect(ready(in).Status).To(BeEquivalentTo("True"), ready(in).Message)
			g.Expect(jobRuns(ctx, mark, ns)).To(Equal(once))
		}, "3s").Should(Succeed(), "a controller that has not observed the Jobs treats them as complete")
	})

	It("stay complete when they are created and deleted while the controller is busy", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		files := map[string]string{"migrate/j.yaml": job("quick", "", ttlZero, ""),
			"after/a.yaml": configMap("after", "1")}
		for i := range 600 {
			files[fmt.Sprintf("many/%d.yaml", i)] = configMap(fmt.Sprintf("many%d", i), "1")
		}
		publish(ctx, ns, "src", "main@sha1:1", tree(components("migrate", "many", "after:migrate"), files))
		mark := auditMark(ctx)
		in := newInstall(ctx, ns, "i", hourly)
		Eventually(ctx, func() (string, error) {
			err := get(ctx, in)
			return in.Status.LastAppliedRevision, err
		}, 5*time.Minute, "100ms").
			Should(Equal("main@sha1:1"), "600 objects take a while")
		atRevision(ctx, in, "main@sha1:1")
		Eventually(ctx, func() []string {
			return jobsIn(ctx, ns)
		}, soon).Should(BeEmpty(), "the TTL controller deletes the Job")
		Consistently(ctx, func() map[string]int {
			return jobRuns(ctx, mark, ns)
		}, "1s").Should(Equal(map[string]int{"quick": 1}),
			"its completion was observed before a reconcile")
	})

	It("that are chart hooks run in order of weight, and those of upgrades again in each", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		chart := map[string]string{
			"chart/Chart.yaml":          "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
			"chart/values.yaml":         "{}\n",
			"chart/templates/cm.yaml":   configMap("main", "1"),
			"chart/templates/late.yaml": job("late", cluster.FateNeverEnds, "", hook("pre-install,pre-upgrade", 5)),
			"chart/templates/a.yaml":    job("early", cluster.FateNeverEnds, "", hook("pre-install", -5)),
			"chart/templates/post.yaml": job("post", cluster.FateNeverEnds, "", hook("post-install,post-upgrade", 0)),
			"after/a.yaml":              configMap("after", "1"),
		}
		const stack = "spec:\n  version: 1.0.0\n  components:\n  - {name: shop, helm: {chart: ./chart}}\n" +
			"  - {name: after, manifests: [after/], dependsOn: [shop]}\n"
		publish(ctx, ns, "src", "main@sha1:1", tree(stack, chart))
		mark := auditMark(ctx)
		in := newInstall(ctx, ns, "i", hourly)
		stage := func(jobs []string, main bool) {
			GinkgoHelper()
			Eventually(ctx, func() []string {
				return jobsIn(ctx, ns)
			}, soon).Should(Equal(jobs), "the hooks of this step run")
			Consistently(ctx, func(g Gomega) {
				g.Expect(jobsIn(ctx, ns)).To(Equal(jobs))
				g.Expect(absent(ctx, aConfigMap(ns, "main"))).To(Equal(!main))
				g.Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeTrue())
			}, "500ms").Should(Succeed(), "the next step waits for this step")
			makePodsReady(ctx, ns)
		}
		stage([]string{"early"}, false)
		stage([]string{"early", "late"}, false)
		stage([]string{"early", "late", "post"}, true)
		atRevision(ctx, in, "main@sha1:1")
		Expect(jobRuns(ctx, mark, ns)).To(Equal(map[string]int{"early": 1, "late": 1, "post": 1}))

		By("running none again for a change of another component")
		second := maps.Clone(chart)
		second["after/a.yaml"] = configMap("after", "2")
		mark = auditMark(ctx)
		publish(ctx, ns, "src", "main@sha1:2", tree(stack, second))
		atRevision(ctx, in, "main@sha1:2")
		Expect(requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Write).Without(recordsResult)).
			To(HaveLen(1), "the ConfigMap")

		By("running those of an upgrade again, before and after the objects")
		third := maps.Clone(second)
		third["chart/templates/late.yaml"] = job("late", "", "  completions: 2\n", hook("pre-install,pre-upgrade", 5))
		third["chart/templates/cm.yaml"] = configMap("main", "3")
		third["chart/templates/post.yaml"] = job("post", "", "", hook("post-install,post-upgrade", 0))
		mark = auditMark(ctx)
		publish(ctx, ns, "src", "main@sha1:3", tree(stack, third))
		atRevision(ctx, in, "main@sha1:3")
		Expect(jobRuns(ctx, mark, ns)).To(Equal(map[string]int{"late": 1, "post": 1}))
		var order []string
		for _, r := range requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Write).
			Without(cluster.DryRun, cluster.Failed, recordsResult) {
			order = append(order, r.Verb+" "+r.Resource)
		}
		Expect(order).To(Equal([]string{"patch secrets", "delete jobs", "patch jobs", "patch configmaps",
			"delete jobs", "patch jobs"}), "the record of the release comes first")
	})
})

// recordsResult matches the request that records the result of a Job that has ended. It is no
// apply.
func recordsResult(r cluster.Request) bool {
	return r.Meets(cluster.Verb("patch"), cluster.Resource("jobs")) && !strings.Contains(r.URI, "force=true")
}

// annotate sets an annotation like kubectl does.
func annotate(ctx context.Context, o client.Object, key, value string) {
	GinkgoHelper()
	body := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value)
	Expect(plane.Client().Patch(ctx, o, client.RawPatch("application/merge-patch+json", body))).To(Succeed())
}
