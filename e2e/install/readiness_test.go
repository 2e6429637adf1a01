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

// setStatus writes the status of a custom resource as its operator would.
func setStatus(ctx context.Context, o client.Object, status string) {
	GinkgoHelper()
	Expect(plane.Client().Status().
		Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"status":`+status+`}`)))).To(Succeed())
}

// reconcileCount returns the number of reconciles of installs in this process.
func reconcileCount() int {
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
	It("treats a custom resource without conditions as ready", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		group := deleteDefinition(ns + ".example.com")
		Expect(plane.ApplyYAML(ctx, []byte(definition(group, "Namespaced")))).To(Succeed())
		publish(ctx, ns, "src", "main@sha1:1", tree(components("custom", "after:custom"), map[string]string{
			"custom/a.yaml": widget(group, "first"), "after/a.yaml": configMap("after", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeFalse())
	})

	It("evaluates readyExpr for custom resources only, on their events", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		group := deleteDefinition(ns + ".example.com")
		Expect(plane.ApplyYAML(ctx, []byte(definition(group, "Namespaced")))).To(Succeed())
		stack := `spec:
  version: 1.0.0
  components:
  - {name: custom, manifests: [custom/], readyExpr: "self.status.phase == 'Running'"}
  - {name: after, manifests: [after/], dependsOn: [custom]}
`
		publish(ctx, ns, "src", "main@sha1:1", tree(stack, map[string]string{
			"custom/a.yaml": widget(group, "first"), "custom/b.yaml": configMap("beside", "1"),
			"after/a.yaml": configMap("after", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		reports(ctx, in, "Unknown", "Progressing", `component "custom"`, "Widget "+ns+"/first", "readyExpr")
		Expect(ready(in).Message).NotTo(ContainSubstring("beside"))
		setStatus(ctx, widgetObject(group, ns, "first"), `{"phase": "Starting"}`)
		reports(ctx, in, "Unknown", "Progressing", "Widget "+ns+"/first", "readyExpr is false")
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeTrue())
		setStatus(ctx, widgetObject(group, ns, "first"), `{"phase": "Running"}`)
		atRevision(ctx, in, "main@sha1:1")
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeFalse())

		By("becoming unready again")
		setStatus(ctx, widgetObject(group, ns, "first"), `{"phase": "Down"}`)
		reports(ctx, in, "Unknown", "Progressing", "Widget "+ns+"/first", "readyExpr is false")
		Expect(component(in, "custom").Ready).To(BeFalse())
		Expect(component(in, "after").Ready).To(BeTrue(), "installed components stay ready")
	})

	It("reports a failed object at once, and recovers without a request", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		impatient := deployment("web", cluster.FateFails) + "  progressDeadlineSeconds: 1\n"
		publish(ctx, ns, "src", "main@sha1:1", tree(components("web", "after:web", "other"), map[string]string{
			"web/d.yaml": impatient, "after/a.yaml": configMap("after", "1"), "other/a.yaml": configMap("other", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		reports(ctx, in, "False", "HealthCheckFailed", `component "web"`, "Deployment "+ns+"/web", "Failed")
		Expect(condition(in, "Reconciling")).NotTo(BeNil(), "the controller waits for its events")
		Expect(condition(in, "Stalled")).To(BeNil())
		Expect(component(in, "after").Message).To(Equal("waits for component web"))
		Expect(component(in, "other").Ready).To(BeTrue())
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeTrue())

		makePodsReady(ctx, ns)
		atRevision(ctx, in, "main@sha1:1")
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeFalse())
	})

	It("detects a ready object that becomes unready, without a request", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(components("web", "after:web"), map[string]string{
			"web/d.yaml": deployment("web", ""), "after/a.yaml": configMap("after", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		mark := auditMark(ctx)
		makePodsUnready(ctx, ns)
		reports(ctx, in, "Unknown", "Progressing", `component "web"`, "Deployment "+ns+"/web")
		makePodsReady(ctx, ns)
		atRevision(ctx, in, "main@sha1:1")
		Expect(requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)))).To(BeEmpty(), "the watch events suffice")
	})

	It("of an install that never becomes ready does not slow down other installs", func(ctx SpecContext) {
		const healthy, workers = 50, 2
		startController(dedicated("two-workers"), func(o *manager.Options) { o.Concurrent = workers })
		measure := func(withBad bool) (int, time.Duration) {
			ns := publishStacks(ctx, healthy)
			before, began := reconcileCount(), time.Now()
			// Enough to occupy every worker, if a worker waited for one of them.
			for i := range workers {
				if name := fmt.Sprint("bad", i); withBad {
					bad := newInstall(ctx, ns, name, forController[*appsv1.KsctlInstall]("two-workers"), hourly,
						func(in *appsv1.KsctlInstall) { in.Spec.Stack = name })
					reports(ctx, bad, "Unknown", "Progressing", "Deployment "+ns+"/"+name)
				}
			}
			installs := make([]*appsv1.KsctlInstall, healthy)
			for i := range installs {
				installs[i] = newInstall(ctx, ns, fmt.Sprintf("i%d", i),
					forController[*appsv1.KsctlInstall]("two-workers"), hourly, func(in *appsv1.KsctlInstall) {
						in.Spec.Stack = fmt.Sprintf("s%d", i)
					})
			}
			for _, in := range installs {
				atRevision(ctx, in, "main@sha1:1")
			}
			took := time.Since(began)
			Eventually(ctx, func(g Gomega) { // until the last event is handled
				at := reconcileCount()
				g.Consistently(ctx, reconcileCount, "1s").Should(Equal(at))
			}, soon).Should(Succeed(), "the controller becomes idle")
			return reconcileCount() - before, took
		}
		plain, plainTook := measure(false)
		bad, badTook := measure(true)
		AddReportEntry("50 installs alone, and beside two that are never ready",
			fmt.Sprintf("%d reconciles in %s; %d in %s", plain, plainTook, bad, badTook))
		// The number of events that one reconcile handles depends on the load.
		Expect(bad).To(BeNumerically("<=", 2*plain+100*workers), "each install costs only its own reconciles")
		Expect(badTook).To(BeNumerically("<", 2*plainTook+time.Minute), "no install waits for them")
	})
})

// publishStacks publishes n stacks of a Deployment and a ConfigMap, and two that never become
// ready, for a controller with two workers.
func publishStacks(ctx context.Context, n int) string {
	GinkgoHelper()
	ns := namespaceFor(ctx)
	files := map[string]string{}
	add := func(name, fate string) {
		files["stacks/"+name+"/stack.yaml"] = "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: " + name +
			"}\n" + oneComponent
		files["stacks/"+name+"/main/d.yaml"] = deployment(name, fate)
		files["stacks/"+name+"/main/c.yaml"] = configMap(name, "1")
	}
	for i := range n {
		add(fmt.Sprintf("s%d", i), "")
	}
	for i := range 2 {
		add(fmt.Sprint("bad", i), cluster.FateNeverReady)
	}
	sourceForController(ctx, ns, "src", "two-workers")
	publish(ctx, ns, "src", "main@sha1:1", artifacts.Files(files))
	return ns
}
