package install_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/programs"
	"github.com/ksctl/gitops/internal/manager"
	"github.com/ksctl/gitops/internal/renderworker"
	"github.com/ksctl/gitops/stacks"
)

// renderer builds the controller binary. It returns the command of the render workers that a
// controller in this process starts.
func renderer(ctx context.Context) []string {
	GinkgoHelper()
	program, err := programs.Build(ctx, GinkgoT().TempDir(), programs.Controller)
	Expect(err).NotTo(HaveOccurred())
	return []string{program, renderworker.Command}
}

var _ = Describe("A render that exceeds a limit", Ordered, func() {
	const name = "bounded"
	BeforeAll(func(ctx SpecContext) {
		program := renderer(ctx)
		startController(dedicated(name), func(o *manager.Options) {
			o.RenderProgram = program
			o.Render = manager.RenderOptions{Workers: 2, Timeout: 15 * time.Second, MemoryBytes: 256 << 20,
				OutputBytes: 1 << 20}
			o.ChartLimits = stacks.ChartLimits{Bytes: 64 << 10, Files: 30}
		})
	})
	// On a busy machine a valid render may be stopped as well; the retry succeeds.
	again := retryEvery(5 * time.Second)
	hostile := func(template string) map[string]string {
		files := maps.Clone(shopFiles)
		files["chart/templates/hostile.yaml"] = template
		return files
	}

	DescribeTable("is stopped without an effect on other installs", func(ctx SpecContext, template, flag string) {
		ns := namespaceFor(ctx)
		for _, src := range []string{"src", "good"} {
			sourceForController(ctx, ns, src, name)
		}
		publish(ctx, ns, "src", "main@sha1:bad", tree(shop, hostile(template)))
		publish(ctx, ns, "good", "main@sha1:1",
			tree(oneComponent, map[string]string{"main/a.yaml": configMap("a", "1")}))
		in := newInstall(ctx, ns, "hostile", again, forController[*appsv1.KsctlInstall](name))
		other := newInstall(ctx, ns, "good", again, forController[*appsv1.KsctlInstall](name),
			func(in *appsv1.KsctlInstall) { in.Spec.SourceRef.Name = "good" })
		atRevision(ctx, other, "main@sha1:1")
		reports(ctx, in, "False", "RenderStopped", `stack "app"`, flag)
		Expect(condition(in, "Stalled")).To(BeNil(), "the render may succeed on a less busy machine")
		Expect(condition(in, "Reconciling")).To(HaveField("Reason", "ProgressingWithRetry"))
		Expect(absent(ctx, aConfigMap(ns, "title"))).To(BeTrue(), "nothing of it is applied")

		By("fixing the chart")
		publish(ctx, ns, "src", "main@sha1:good", tree(shop, shopFiles))
		atRevision(ctx, in, "main@sha1:good")
	},
		Entry("for time", "{{ range until 1000000 }}{{ range until 1000000 }}{{ end }}{{ end }}", "--render-timeout"),
		Entry("for memory", `{{ $x := "xxxxxxxx" }}{{ range until 60 }}{{ $x = printf "%s%s" $x $x }}{{ end }}`,
			"--render-max-memory-bytes"),
	)

	It("for the size of a chart is reported as an error of the stack", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		sourceForController(ctx, ns, "src", name)
		many := maps.Clone(shopFiles)
		for i := range 30 {
			many[fmt.Sprintf("chart/files/%d", i)] = ""
		}
		publish(ctx, ns, "src", "main@sha1:many", tree(shop, many))
		in := newInstall(ctx, ns, "large", again, forController[*appsv1.KsctlInstall](name))
		reports(ctx, in, "False", "InvalidStack", "--chart-max-files")
		publish(ctx, ns, "src", "main@sha1:large", tree(shop, hostile("# "+strings.Repeat("x", 64<<10))))
		reports(ctx, in, "False", "InvalidStack", "--chart-max-bytes")
		publish(ctx, ns, "src", "main@sha1:good", tree(shop, shopFiles))
		atRevision(ctx, in, "main@sha1:good")
	})

	It("for its output is reported as an error of the stack", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		sourceForController(ctx, ns, "src", name)
		publish(ctx, ns, "src", "main@sha1:bad",
			tree(shop, hostile("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: large}\ndata: {x: {{ repeat "+
				"2000000 \"x\" }}}\n")))
		in := newInstall(ctx, ns, "large", again, forController[*appsv1.KsctlInstall](name))
		reports(ctx, in, "False", "InvalidStack", `stack "app"`, "--render-max-output-bytes")
		Expect(condition(in, "Stalled")).NotTo(BeNil())
	})
})
