package removal_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	workloads "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/harness"
)

// movingPage and helmReleaseHeading are the page and the heading that the spec executes.
const movingPage, helmReleaseHeading = "docs/moving.md", "From a Flux HelmRelease, or a Helm release"

// releaseChart is a chart that adds, if values.flux is set, the labels that helm-controller adds
// to rendered objects.
var releaseChart = map[string]string{
	"Chart.yaml":  "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
	"values.yaml": "greeting: hello\nflux: {}\n",
	"templates/_labels.tpl": `{{ define "labels" }}{app.kubernetes.io/managed-by: {{ .Release.Service }}` +
		`{{ with .Values.flux }}, helm.toolkit.fluxcd.io/name: {{ .name }}, helm.toolkit.fluxcd.io/namespace: {{ .namespace }}{{ end }}}{{ end }}`,
	"templates/settings.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-settings, " +
		"labels: {{ include \"labels\" . }}}\n" +
		"data: {greeting: {{ .Values.greeting }}, more: yes please}\n",
	"templates/web.yaml": strings.ReplaceAll(web, "{name: web}",
		"{name: {{ .Release.Name }}, labels: {{ include \"labels\" . }}}"),
}

// setHelmControllerManager renames Helm's field manager to that of helm-controller, which uses
// Helm as a library.
func setHelmControllerManager(ctx context.Context, ns string) {
	GinkgoHelper()
	for _, o := range releaseObjects(ns) {
		Eventually(ctx, func() error {
			if err := get(ctx, o); err != nil {
				return err
			}
			entries := slices.Clone(o.GetManagedFields())
			for i := range entries {
				if entries[i].Manager == "helm" {
					entries[i].Manager = "helm-controller"
				}
			}
			o.SetManagedFields(entries)
			return h.ControlPlane.Client().Update(ctx, o)
		}, soon).Should(Succeed())
	}
}

func releaseObjects(ns string) []client.Object {
	return []client.Object{aConfigMap(ns, "shop-settings"), &workloads.Deployment{ObjectMeta: objectMeta(ns, "shop")},
		&corev1.Service{ObjectMeta: objectMeta(ns, "shop")}}
}

// workloadState is what a move must not change.
type workloadState struct {
	uids []types.UID
	spec workloads.DeploymentSpec
	data map[string]string
}

func currentState(ctx context.Context, ns string) workloadState {
	GinkgoHelper()
	m := workloadState{}
	for _, o := range releaseObjects(ns) {
		Expect(get(ctx, o)).To(Succeed())
		m.uids = append(m.uids, o.GetUID())
		switch o := o.(type) {
		case *workloads.Deployment:
			m.spec = o.Spec
		case *corev1.ConfigMap:
			m.data = o.Data
		}
	}
	pods := &corev1.PodList{}
	Expect(h.ControlPlane.Client().List(ctx, pods, client.InNamespace(ns))).To(Succeed())
	for i := range pods.Items {
		m.uids = append(m.uids, pods.Items[i].UID)
	}
	return m
}

// helmOwnership returns, for each object with a claim of Helm or helm-controller, whether the
// claim is complete or partial.
func helmOwnership(ctx context.Context, ns string) (out []string) {
	GinkgoHelper()
	for _, o := range releaseObjects(ns) {
		Expect(get(ctx, o)).To(Succeed())
		applied := slices.ContainsFunc(o.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
			return e.Manager == "helm-controller"
		})
		if applied && o.GetAnnotations()[live.HelmReleaseNameAnnotation] != "" &&
			o.GetLabels()[live.FluxHelmReleaseLabel] != "" {
			out = append(out, "complete")
		} else if applied || o.GetAnnotations()[live.HelmReleaseNameAnnotation] != "" ||
			o.GetLabels()[live.FluxHelmReleaseLabel] != "" {
			out = append(out, "partial")
		}
	}
	return out
}

// runDocBlock runs a block of commands of docs/moving.md in a folder with files, in the
// namespace ns instead of shop.
func runDocBlock(ctx context.Context, block int, ns string, files map[string]string) string {
	GinkgoHelper()
	scripts, err := harness.CodeBlocks(movingPage, helmReleaseHeading, "sh")
	Expect(err).NotTo(HaveOccurred())
	dir := GinkgoT().TempDir()
	Expect(writeFiles(dir, files)).To(Succeed())
	out, err := h.Shell(ctx, dir, strings.ReplaceAll(scripts[block], "-n shop ", "-n "+ns+" "))
	Expect(err).NotTo(HaveOccurred())
	return out
}

func writeFiles(dir string, files map[string]string) error {
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

var _ = Describe("Moving from a HelmRelease", func() {
	DescribeTable("deletes nothing with the steps of "+
		"docs/moving.md", func(ctx SpecContext, server string, uninstalled bool) {
		ns := namespaceFor(ctx)
		dir := GinkgoT().TempDir()
		Expect(writeFiles(dir, releaseChart)).To(Succeed())
		helm(ctx, ns, "install", "shop", dir, "--server-side="+server, "--set",
			"greeting=good morning,flux.name=shop,flux.namespace="+ns)
		setHelmControllerManager(ctx, ns)
		Eventually(ctx, func() (int32, error) {
			d := &workloads.Deployment{ObjectMeta: objectMeta(ns, "shop")}
			err := get(ctx, d)
			return d.Status.AvailableReplicas, err
		}, soon).Should(BeEquivalentTo(1))
		was := currentState(ctx, ns)
		Expect(was.uids).To(HaveLen(4))
		Expect(helmOwnership(ctx, ns)).To(Equal([]string{"complete", "complete", "complete"}))

		By("2. write the stack")
		documented, err := harness.YAMLFiles(movingPage, helmReleaseHeading)
		Expect(err).NotTo(HaveOccurred())
		files := prefixed("stacks/shop/chart/", releaseChart)
		for name, content := range documented {
			files[name] = strings.ReplaceAll(content, "namespace: shop", "namespace: "+ns)
		}
		By("3. look")
		for _, line := range strings.Split(runDocBlock(ctx, 0, ns, files), "\n") {
			Expect(line).NotTo(MatchRegexp(`^[-+] .*(image|greeting|replicas|port|kind):`), "nothing changes")
		}
		Expect(currentState(ctx, ns)).To(Equal(was))

		By("an install without permission to take over")
		tree := prefixed("chart/", releaseChart)
		_, stack, _ := strings.Cut(documented["stacks/shop/stack.yaml"], "metadata: {name: shop}\n")
		Expect(h.PublishSource(ctx, ns, "shop", "r1", harness.SourceTree(stack, tree))).To(Succeed())
		in := install(ctx, ns, "shop")
		reports(ctx, in, metav1.ConditionFalse, "OwnedByAnother", "Flux HelmRelease "+ns+"/shop")
		Expect(currentState(ctx, ns)).To(Equal(was))

		By("4. take over")
		mergePatch(ctx, in, `{"spec":{"adopt":"Always"}}`)
		runDocBlock(ctx, 1, ns, nil)
		Expect(helmOwnership(ctx, ns)).To(BeEmpty())
		Expect(currentState(ctx, ns)).To(Equal(was))

		if uninstalled {
			By("uninstalling the release by mistake")
			helm(ctx, ns, "uninstall", "shop")
		} else {
			By("5. deleting the records")
			runDocBlock(ctx, 2, ns, nil)
		}
		Expect(countHelmReleases(ctx, ns)).To(BeZero())
		Expect(currentState(ctx, ns)).To(Equal(was))

		By("an object that leaves the stack is removed")
		tree["chart/templates/settings.yaml"] = strings.Replace(tree["chart/templates/settings.yaml"],
			", more: yes please", "", 1)
		Expect(h.PublishSource(ctx, ns, "shop", "r2", harness.SourceTree(stack, tree))).To(Succeed())
		Eventually(ctx, func() map[string]string {
			return currentState(ctx, ns).data
		}, soon).Should(Equal(map[string]string{"greeting": "good morning"}))
		removed := &workloads.Deployment{ObjectMeta: objectMeta(ns, "shop")}
		Expect(h.ControlPlane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, absent, soon).WithArguments(ctx, removed).Should(BeTrue(), "the install owns the object")
	},
		Entry("applied server-side", SpecTimeout(15*time.Minute), "true", false),
		Entry("applied client-side, like Helm 3", SpecTimeout(15*time.Minute), "false", false),
		Entry("and helm uninstall does not revert it", SpecTimeout(15*time.Minute), "true", true))
})
