package removal_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ksctl/gitops/controllers/remove/bysource"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/tools"
)

// helm runs the command line of Helm in a namespace.
func helm(ctx context.Context, ns string, args ...string) string {
	GinkgoHelper()
	programs, err := tools.Build(ctx, GinkgoWriter, tools.Helm)
	Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(ctx, programs[tools.Helm], append([]string{"--kubeconfig", h.Plane.Kubeconfig(), "--namespace", ns}, args...)...)
	cmd.Env = []string{"HOME=" + GinkgoT().TempDir()}
	out, err := cmd.Output()
	Expect(err).NotTo(HaveOccurred(), "helm %s", strings.Join(args, " "))
	return string(out)
}

var chartFiles = map[string]string{
	"Chart.yaml":  "apiVersion: v2\nname: web\nversion: 1.0.0\n",
	"values.yaml": "greeting: hello\nmore: false\nkeep: false\n",
	"templates/greeting.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-greeting}\n" +
		"data: {text: {{ .Values.greeting }}}\n",
	"templates/password.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: {{ .Release.Name }}-password}\nstringData: {value: {{ randAlphaNum 20 }}}\n",
	"templates/more.yaml":     "{{ if .Values.more }}apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-more}\n{{ end }}",
	"templates/keep.yaml": "{{ if .Values.keep }}apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-keep, " +
		"annotations: {helm.sh/resource-policy: keep}}\n{{ end }}",
	"templates/web.yaml": strings.ReplaceAll(web, "{name: web}", "{name: {{ .Release.Name }}}"),
}

// helmInstalls publishes a stack of the chart and has Helm install the same chart.
func helmInstalls(ctx context.Context, ns, release string, values map[string]any) {
	GinkgoHelper()
	files := map[string]string{}
	dir := GinkgoT().TempDir()
	for name, text := range chartFiles {
		files["chart/"+name] = text
		path := filepath.Join(dir, name)
		Expect(os.MkdirAll(filepath.Dir(path), 0o750)).To(Succeed())
		Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
	}
	stack := fmt.Sprintf("spec:\n  version: 1.0.0\n  components:\n  - {name: web, helm: {chart: ./chart, releaseName: %s}}\n", release)
	Expect(h.Publish(ctx, ns, "src", "r1", harness.Tree(stack, files))).To(Succeed())
	text, err := json.Marshal(values)
	Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(dir, "chosen.json")
	Expect(os.WriteFile(path, text, 0o600)).To(Succeed())
	helm(ctx, ns, "install", release, dir, "--values", path)
	helm(ctx, ns, "upgrade", release, dir, "--values", path, "--set", "greeting=good evening")
}

// helmLists is how many releases helm list finds, whatever their state.
func helmLists(ctx context.Context, ns string) int {
	GinkgoHelper()
	return len(strings.Fields(helm(ctx, ns, "list", "--short")))
}

var _ = Describe("What Helm installed", func() {
	It("goes with its records from the definition of the stack alone", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		before := inside(ctx, ns)
		helmInstalls(ctx, ns, "site", map[string]any{"greeting": "good morning"})
		Expect(helmLists(ctx, ns)).To(Equal(1))
		rm := removal(ctx, ns, "r")
		digest := found(ctx, rm, 6)
		Expect(rm.Status.Removal.Order).To(HaveLen(2))
		Expect(rm.Status.Removal.Order[1].Objects).To(Equal([]string{ns + "_sh.helm.release.v1.site.v1__Secret", ns + "_sh.helm.release.v1.site.v2__Secret"}))
		Expect(helmLists(ctx, ns)).To(Equal(1))
		approve(ctx, rm, digest)
		tells(ctx, rm, metav1.ConditionTrue, bysource.RemovedReason, "6 objects")
		Expect(helmLists(ctx, ns)).To(BeZero())
		Eventually(ctx, func() []string { return inside(ctx, ns) }, soon).Should(ConsistOf(before))
	}, SpecTimeout(15*time.Minute))

	It("keeps its records while it has objects that the stack does not render", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		helmInstalls(ctx, ns, "site", map[string]any{"more": true})
		rm := removal(ctx, ns, "r")
		approve(ctx, rm, found(ctx, rm, 4))
		tells(ctx, rm, metav1.ConditionTrue, bysource.RemovedReason, "4 objects", "3 are left")
		Expect(because(rm, ns+"_site-more__ConfigMap")).To(HavePrefix("NotMatched: Helm release " + ns + "/site has it, and the stack does not render it"))
		Expect(because(rm, ns+"_sh.helm.release.v1.site.v2__Secret")).To(ContainSubstring("has 1 objects that the stack does not render"))
		Expect(helmLists(ctx, ns)).To(Equal(1))
	}, SpecTimeout(15*time.Minute))

	It("is not another release's, and leaves what Helm would keep", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		helmInstalls(ctx, ns, "site", map[string]any{"keep": true})
		change(ctx, aConfigMap(ns, "site-greeting"), `{"metadata":{"annotations":{"meta.helm.sh/release-name":"other"}}}`)
		Expect(h.Publish(ctx, ns, "src", "r2", harness.Tree("spec:\n  version: 1.0.0\n  components:\n  - {name: web, helm: {chart: ./chart, releaseName: site, values: {keep: true}}}\n", prefixed("chart/", chartFiles)))).To(Succeed())
		rm := removal(ctx, ns, "r")
		approve(ctx, rm, found(ctx, rm, 5))
		tells(ctx, rm, metav1.ConditionTrue, bysource.RemovedReason, "5 objects", "2 are left")
		Expect(because(rm, ns+"_site-greeting__ConfigMap")).To(Equal("NotMatched: it belongs to Helm release " + ns + "/other"))
		Expect(because(rm, ns+"_site-keep__ConfigMap")).To(Equal("Kept: its annotation helm.sh/resource-policy is keep"))
		Expect(absent(ctx, &corev1.Secret{ObjectMeta: named(ns, "site-password")})).To(BeTrue())
		Expect(helmLists(ctx, ns)).To(BeZero())
	}, SpecTimeout(15*time.Minute))
})

func prefixed(prefix string, files map[string]string) map[string]string {
	out := map[string]string{}
	for name, text := range files {
		out[prefix+name] = text
	}
	return out
}
