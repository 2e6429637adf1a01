package removal_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/harness"
)

// helm runs the helm command in a namespace and returns its output.
func helm(ctx context.Context, ns string, args ...string) string {
	GinkgoHelper()
	out, err := h.Helm(ctx, ns, args...)
	Expect(err).NotTo(HaveOccurred())
	return out
}

var chartFiles = map[string]string{
	"Chart.yaml":  "apiVersion: v2\nname: web\nversion: 1.0.0\n",
	"values.yaml": "greeting: hello\nmore: false\nkeep: false\n",
	"templates/greeting.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-greeting}\n" +
		"data: {text: {{ .Values.greeting }}}\n",
	"templates/password.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: {{ .Release.Name " +
		"}}-password}\nstringData: {value: {{ randAlphaNum 20 }}}\n",
	"templates/more.yaml": "{{ if .Values.more }}apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ " +
		".Release.Name }}-more}\n{{ end }}",
	"templates/keep.yaml": "{{ if .Values.keep }}apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name " +
		"}}-keep, " +
		"annotations: {helm.sh/resource-policy: keep}}\n{{ end }}",
	"templates/web.yaml": strings.ReplaceAll(web, "{name: web}", "{name: {{ .Release.Name }}}"),
}

// installWithHelm publishes a stack of the chart, and installs the same chart with Helm.
func installWithHelm(ctx context.Context, ns, release string, values map[string]any) {
	GinkgoHelper()
	files := map[string]string{}
	dir := GinkgoT().TempDir()
	for name, text := range chartFiles {
		files["chart/"+name] = text
		path := filepath.Join(dir, name)
		Expect(os.MkdirAll(filepath.Dir(path), 0o750)).To(Succeed())
		Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
	}
	stack := fmt.Sprintf("spec:\n  version: 1.0.0\n  components:\n  - {name: web, helm: {chart: ./chart, "+
		"releaseName: %s}}\n", release)
	Expect(h.PublishSource(ctx, ns, "src", "r1", harness.SourceTree(stack, files))).To(Succeed())
	text, err := json.Marshal(values)
	Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(dir, "chosen.json")
	Expect(os.WriteFile(path, text, 0o600)).To(Succeed())
	helm(ctx, ns, "install", release, dir, "--values", path)
	helm(ctx, ns, "upgrade", release, dir, "--values", path, "--set", "greeting=good evening")
}

// countHelmReleases returns the number of releases that helm list prints, in any state.
func countHelmReleases(ctx context.Context, ns string) int {
	GinkgoHelper()
	return len(strings.Fields(helm(ctx, ns, "list", "--short")))
}

var _ = Describe("A release that Helm installed", func() {
	It("is removed with its records by a KsctlRemove of the stack alone", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		before := objectsIn(ctx, ns)
		installWithHelm(ctx, ns, "site", map[string]any{"greeting": "good morning"})
		Expect(countHelmReleases(ctx, ns)).To(Equal(1))
		rm := newRemoveBySource(ctx, ns, "r")
		digest := awaitPreview(ctx, rm, 6)
		Expect(rm.Status.Removal.Order).To(HaveLen(2))
		Expect(rm.Status.Removal.Order[1].Objects).
			To(Equal([]string{ns + "_sh.helm.release.v1.site.v1__Secret", ns + "_sh.helm.release.v1.site.v2__Secret"}))
		Expect(countHelmReleases(ctx, ns)).To(Equal(1))
		approve(ctx, rm, digest)
		removeBySourceReports(ctx, rm, metav1.ConditionTrue, appsv1.RemovedReason, "6 objects")
		Expect(countHelmReleases(ctx, ns)).To(BeZero())
		Eventually(ctx, func() []string { return objectsIn(ctx, ns) }, soon).Should(ConsistOf(before))
	}, SpecTimeout(15*time.Minute))

	It("keeps its records while it has objects that are not in the stack", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		installWithHelm(ctx, ns, "site", map[string]any{"more": true})
		rm := newRemoveBySource(ctx, ns, "r")
		approve(ctx, rm, awaitPreview(ctx, rm, 4))
		removeBySourceReports(ctx, rm, metav1.ConditionTrue, appsv1.RemovedReason, "4 objects", "3 are left")
		Expect(remainingReason(rm, ns+"_site-more__ConfigMap")).
			To(HavePrefix("NotMatched: part of Helm release " + ns + "/site, but not rendered by the stack"))
		Expect(remainingReason(rm, ns+"_sh.helm.release.v1.site.v2__Secret")).
			To(ContainSubstring("has 1 objects that the stack does not render"))
		Expect(countHelmReleases(ctx, ns)).To(Equal(1))
	}, SpecTimeout(15*time.Minute))

	It("keeps objects of another release, and objects with Helm's resource policy keep", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		installWithHelm(ctx, ns, "site", map[string]any{"keep": true})
		mergePatch(ctx, aConfigMap(ns, "site-greeting"),
			`{"metadata":{"annotations":{"meta.helm.sh/release-name":"other"}}}`)
		Expect(h.PublishSource(ctx, ns, "src", "r2",
			harness.SourceTree("spec:\n  version: 1.0.0\n  components:\n  - {name: web, helm: {chart: ./chart, "+
				"releaseName: site, values: {keep: true}}}\n", prefixed("chart/", chartFiles)))).To(Succeed())
		rm := newRemoveBySource(ctx, ns, "r")
		approve(ctx, rm, awaitPreview(ctx, rm, 5))
		removeBySourceReports(ctx, rm, metav1.ConditionTrue, appsv1.RemovedReason, "5 objects", "2 are left")
		Expect(remainingReason(rm, ns+"_site-greeting__ConfigMap")).
			To(Equal("NotMatched: belongs to Helm release " + ns + "/other"))
		Expect(remainingReason(rm, ns+"_site-keep__ConfigMap")).
			To(Equal("Kept: annotation helm.sh/resource-policy is keep"))
		Expect(absent(ctx, &corev1.Secret{ObjectMeta: objectMeta(ns, "site-password")})).To(BeTrue())
		Expect(countHelmReleases(ctx, ns)).To(BeZero())
	}, SpecTimeout(15*time.Minute))
})

func prefixed(prefix string, files map[string]string) map[string]string {
	out := map[string]string{}
	for name, text := range files {
		out[prefix+name] = text
	}
	return out
}
