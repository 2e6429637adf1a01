package install_test

import (
	"context"
	"os/exec"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/programs"
)

// installTestedChart installs a chart with two tests, the second of which has a fate.
func installTestedChart(ctx context.Context, ns, fate string) *appsv1.KsctlInstall {
	GinkgoHelper()
	publish(ctx, ns, "src", "main@sha1:1", tree("spec:\n  version: 1.0.0\n  components:\n"+
		"  - {name: web, helm: {chart: ./chart}}\n", map[string]string{
		"chart/Chart.yaml":            "apiVersion: v2\nname: web\nversion: 1.0.0\n",
		"chart/templates/NOTES.txt":   "Welcome to {{ .Release.Name }}.\n",
		"chart/templates/a.yaml":      configMap("a", "1"),
		"chart/templates/first.yaml":  job("first", "", "", hook("test", -1)),
		"chart/templates/second.yaml": job("second", fate, "", hook("test-success", 1)),
	}))
	in := newInstall(ctx, ns, "i", hourly)
	atRevision(ctx, in, "main@sha1:1")
	Expect(jobsIn(ctx, ns)).To(BeEmpty(), "tests run only on request")
	return in
}

// kubectlKsctl runs a command of kubectl ksctl for install "i".
func kubectlKsctl(ctx context.Context, ns, command string, args ...string) (string, error) {
	GinkgoHelper()
	program, err := h.Build(ctx, programs.Kubectl)
	Expect(err).NotTo(HaveOccurred())
	out, err := exec.CommandContext(ctx, program, append([]string{command, "i", "--kubeconfig", plane.Kubeconfig(),
		"-n",
		ns}, args...)...).CombinedOutput()
	return string(out), err
}

var _ = Describe("The tests of a chart", func() {
	It("run on request, by weight, once, and stay for their logs", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := installTestedChart(ctx, ns, "")
		mark := auditMark(ctx)
		out, err := kubectlKsctl(ctx, ns, "test")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(ContainSubstring("2 hooks have succeeded"))
		Expect(jobsIn(ctx, ns)).To(Equal([]string{"first", "second"}))
		Expect(jobRuns(ctx, mark, ns)).To(Equal(map[string]int{"first": 1, "second": 1}))

		out, err = kubectlKsctl(ctx, ns, "status")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(And(ContainSubstring("Ready is True"), ContainSubstring("Tested is True"),
			ContainSubstring("Welcome to web.")))

		By("a new version of the chart does not run them again")
		publish(ctx, ns, "src", "main@sha1:2", tree("spec:\n  version: 1.0.0\n  components:\n"+
			"  - {name: web, helm: {chart: ./chart}}\n", map[string]string{
			"chart/Chart.yaml":            "apiVersion: v2\nname: web\nversion: 1.1.0\n",
			"chart/templates/a.yaml":      configMap("a", "2"),
			"chart/templates/first.yaml":  job("first", "", "", hook("test", -2)),
			"chart/templates/second.yaml": job("second", "", ttlZero, hook("test", 1)),
			"chart/templates/third.yaml":  job("third", "", "", hook("test", 1)),
		}))
		atRevision(ctx, in, "main@sha1:2")
		Expect(jobRuns(ctx, mark, ns)).To(Equal(map[string]int{"first": 1, "second": 1}))

		By("the next request does, and the end of requests removes them")
		out, err = kubectlKsctl(ctx, ns, "test")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(ContainSubstring("3 hooks have succeeded"))
		Expect(jobRuns(ctx, mark, ns)).To(Equal(map[string]int{"first": 2, "second": 2, "third": 1}))
		Expect(plane.Client().Patch(ctx, in, client.RawPatch(types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+appsv1.TestAnnotation+`":null}}}`)))).To(Succeed())
		Eventually(ctx, func() []string { return jobsIn(ctx, ns) }, soon, "20ms").Should(BeEmpty(), "they are removed")
		Eventually(ctx, func() any {
			Expect(get(ctx, in)).To(Succeed())
			return apimeta.FindStatusCondition(in.Status.Conditions, appsv1.TestedCondition)
		}, soon, "20ms").Should(BeNil(), "the result is removed")
	})

	It("that fail or do not end leave the install Ready, and are named", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := installTestedChart(ctx, ns, cluster.FateFails)
		out, err := kubectlKsctl(ctx, ns, "test")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring(`component "web": Job ` + ns + "/second is Failed"))
		Expect(get(ctx, in)).To(Succeed())
		Expect(ready(in).Status).To(BeEquivalentTo("True"))
		Expect(apimeta.IsStatusConditionFalse(in.Status.Conditions, appsv1.TestedCondition)).To(BeTrue())

		By("a failed test runs again on request, and nothing waits for one that does not end")
		publish(ctx, ns, "src", "main@sha1:2", tree("spec:\n  version: 1.0.0\n  components:\n"+
			"  - {name: web, helm: {chart: ./chart}}\n", map[string]string{
			"chart/Chart.yaml":            "apiVersion: v2\nname: web\nversion: 1.0.0\n",
			"chart/templates/b.yaml":      configMap("b", "1"),
			"chart/templates/second.yaml": job("second", cluster.FateNeverEnds, "", hook("test", 1)),
		}))
		atRevision(ctx, in, "main@sha1:2")
		out, err = kubectlKsctl(ctx, ns, "test", "--timeout", "3s")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("the tests have not ended"), out)
		publish(ctx, ns, "src", "main@sha1:3",
			tree(oneComponent, map[string]string{"main/c.yaml": configMap("c", "1")}))
		atRevision(ctx, in, "main@sha1:3")
		Expect(get(ctx, in)).To(Succeed())
		deleteAndWait(ctx, in)
		Expect(jobsIn(ctx, ns)).To(BeEmpty())
	})
})
