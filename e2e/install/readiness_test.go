package install_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/internal/manager"
)

// statusOf writes the status of a custom resource as its operator would.
func statusOf(ctx context.Context, o client.Object, status string) {
	GinkgoHelper()
	Expect(plane.Client().Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"status":`+status+`}`)))).To(Succeed())
}

// reconciles is how many reconciles of installs there were in this process.
func reconciles() int {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	total := 0
	for _, f := range families {
		if f.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "controller" && l.GetValue() == "ksctlinstall" {
					total += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return total
}

var _ = Describe("Readiness", func() {
	It("takes a custom resource without conditions as ready at once", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		group := defined(ns + ".example.com")
		Expect(plane.ApplyYAML(ctx, []byte(definition(group, "Namespaced")))).To(Succeed())
		publish(ctx, ns, "src", "main@sha1:1", tree(components("custom", "after:custom"), map[string]string{
			"custom/a.yaml": widget(group, "first"), "after/a.yaml": configMap("after", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeFalse())
	})

	It("waits for what readyExpr says of custom resources, by their events, and asks it of nothing else", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		group := defined(ns + ".example.com")
		Expect(plane.ApplyYAML(ctx, []byte(definition(group, "Namespaced")))).To(Succeed())
		stack := `spec:
  version: 1.0.0
  components:
  - {name: custom, manifests: [custom/], readyExpr: "self.status.phase == 'Running'"}
  - {name: after, manifests: [after/], dependsOn: [custom]}
`
		publish(ctx, ns, "src", "main@sha1:1", tree(stack, map[string]string{
			"custom/a.yaml": widget(group, "first"), "custom/b.yaml": configMap("beside", "1"), "after/a.yaml": configMap("after", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		says(ctx, in, "Unknown", "Progressing", `component "custom"`, "Widget "+ns+"/first", "readyExpr")
		Expect(ready(in).Message).NotTo(ContainSubstring("beside"))
		statusOf(ctx, widgetObject(group, ns, "first"), `{"phase": "Starting"}`)
		says(ctx, in, "Unknown", "Progressing", "Widget "+ns+"/first", "readyExpr is false")
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeTrue())
		statusOf(ctx, widgetObject(group, ns, "first"), `{"phase": "Running"}`)
		atRevision(ctx, in, "main@sha1:1")
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeFalse())

		By("not being ready any more when it is not")
		statusOf(ctx, widgetObject(group, ns, "first"), `{"phase": "Down"}`)
		says(ctx, in, "Unknown", "Progressing", "Widget "+ns+"/first", "readyExpr is false")
		Expect(component(in, "custom").Ready).To(BeFalse())
		Expect(component(in, "after").Ready).To(BeTrue(), "what is installed stays")
	})

	It("says at once that something has failed, and goes on by itself when that passes", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		impatient := deployment("web", cluster.FateFails) + "  progressDeadlineSeconds: 1\n"
		publish(ctx, ns, "src", "main@sha1:1", tree(components("web", "after:web", "other"), map[string]string{
			"web/d.yaml": impatient, "after/a.yaml": configMap("after", "1"), "other/a.yaml": configMap("other", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		says(ctx, in, "False", "HealthCheckFailed", `component "web"`, "Deployment "+ns+"/web", "Failed")
		Expect(condition(in, "Reconciling")).NotTo(BeNil(), "its events are waited for")
		Expect(condition(in, "Stalled")).To(BeNil())
		Expect(component(in, "after").Message).To(Equal("waits for component web"))
		Expect(component(in, "other").Ready).To(BeTrue())
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeTrue())

		cheer(ctx, ns)
		atRevision(ctx, in, "main@sha1:1")
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeFalse())
	})

	It("notices that what was ready is no more, without a request", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(components("web", "after:web"), map[string]string{
			"web/d.yaml": deployment("web", ""), "after/a.yaml": configMap("after", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		mark := marked(ctx)
		doom(ctx, ns)
		says(ctx, in, "Unknown", "Progressing", `component "web"`, "Deployment "+ns+"/web")
		cheer(ctx, ns)
		atRevision(ctx, in, "main@sha1:1")
		Expect(since(ctx, mark, cluster.As(tenant(ns)))).To(BeEmpty(), "events told everything")
	})

	It("makes no other install slower when one is never ready", func(ctx SpecContext) {
		const healthy, workers = 50, 2
		startController(alone("two-workers"), func(o *manager.Options) { o.Concurrent = workers })
		measure := func(withBad bool) (int, time.Duration) {
			ns := fleet(ctx, healthy)
			before, began := reconciles(), time.Now()
			// As many as could hold every worker, if a worker waited for any of them.
			for i := range workers {
				if name := fmt.Sprint("bad", i); withBad {
					bad := newInstall(ctx, ns, name, leftTo[*appsv1.KsctlInstall]("two-workers"), hourly, func(in *appsv1.KsctlInstall) { in.Spec.Stack = name })
					says(ctx, bad, "Unknown", "Progressing", "Deployment "+ns+"/"+name)
				}
			}
			installs := make([]*appsv1.KsctlInstall, healthy)
			for i := range installs {
				installs[i] = newInstall(ctx, ns, fmt.Sprintf("i%d", i), leftTo[*appsv1.KsctlInstall]("two-workers"), hourly, func(in *appsv1.KsctlInstall) {
					in.Spec.Stack = fmt.Sprintf("s%d", i)
				})
			}
			for _, in := range installs {
				atRevision(ctx, in, "main@sha1:1")
			}
			took := time.Since(began)
			Eventually(ctx, func(g Gomega) { // until the last event was answered
				at := reconciles()
				g.Consistently(ctx, reconciles, "1s").Should(Equal(at))
			}, soon).Should(Succeed(), "the controller comes to rest")
			return reconciles() - before, took
		}
		plain, plainTook := measure(false)
		bad, badTook := measure(true)
		AddReportEntry("50 installs alone, and beside two that are never ready",
			fmt.Sprintf("%d reconciles in %s; %d in %s", plain, plainTook, bad, badTook))
		// How many events one reconcile answers differs with the load.
		Expect(bad).To(BeNumerically("<=", 2*plain+100*workers), "they cost their own reconciles")
		Expect(badTook).To(BeNumerically("<", 2*plainTook+time.Minute), "nobody waits for them")
	})
})

// fleet publishes n stacks of a Deployment and a ConfigMap, and two that are never
// ready, to a controller with two workers.
func fleet(ctx context.Context, n int) string {
	GinkgoHelper()
	ns := namespaceFor(ctx)
	files := map[string]string{}
	add := func(name, fate string) {
		files["stacks/"+name+"/stack.yaml"] = "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: " + name + "}\n" + oneComponent
		files["stacks/"+name+"/main/d.yaml"] = deployment(name, fate)
		files["stacks/"+name+"/main/c.yaml"] = configMap(name, "1")
	}
	for i := range n {
		add(fmt.Sprintf("s%d", i), "")
	}
	for i := range 2 {
		add(fmt.Sprint("bad", i), cluster.FateNeverReady)
	}
	ownSource(ctx, ns, "src", "two-workers")
	publish(ctx, ns, "src", "main@sha1:1", artifacts.Files(files))
	return ns
}
