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

const moving, fromHelmRelease = "docs/moving.md", "From a Flux HelmRelease, or a Helm release"

// released is a chart whose objects have, while it is a HelmRelease's, the labels that
// helm-controller adds to what it renders.
var released = map[string]string{
	"Chart.yaml":  "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
	"values.yaml": "greeting: hello\nflux: {}\n",
	"templates/_labels.tpl": `{{ define "labels" }}{app.kubernetes.io/managed-by: {{ .Release.Service }}` +
		`{{ with .Values.flux }}, helm.toolkit.fluxcd.io/name: {{ .name }}, helm.toolkit.fluxcd.io/namespace: {{ .namespace }}{{ end }}}{{ end }}`,
	"templates/settings.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-settings, labels: {{ include \"labels\" . }}}\n" +
		"data: {greeting: {{ .Values.greeting }}, more: yes please}\n",
	"templates/web.yaml": strings.ReplaceAll(web, "{name: web}", "{name: {{ .Release.Name }}, labels: {{ include \"labels\" . }}}"),
}

// asHelmController gives what Helm applied the field manager that helm-controller has,
// which is Helm as a library.
func asHelmController(ctx context.Context, ns string) {
	GinkgoHelper()
	for _, o := range objects(ns) {
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
			return h.Plane.Client().Update(ctx, o)
		}, soon).Should(Succeed())
	}
}

func objects(ns string) []client.Object {
	return []client.Object{aConfigMap(ns, "shop-settings"), &workloads.Deployment{ObjectMeta: named(ns, "shop")}, &corev1.Service{ObjectMeta: named(ns, "shop")}}
}

// moved is what must be the same before and after a move.
type moved struct {
	uids []types.UID
	spec workloads.DeploymentSpec
	data map[string]string
}

func running(ctx context.Context, ns string) moved {
	GinkgoHelper()
	m := moved{}
	for _, o := range objects(ns) {
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
	Expect(h.Plane.Client().List(ctx, pods, client.InNamespace(ns))).To(Succeed())
	for i := range pods.Items {
		m.uids = append(m.uids, pods.Items[i].UID)
	}
	return m
}

// helms are the objects that Helm and helm-controller have a claim to.
func helms(ctx context.Context, ns string) (out []string) {
	GinkgoHelper()
	for _, o := range objects(ns) {
		Expect(get(ctx, o)).To(Succeed())
		applied := slices.ContainsFunc(o.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Manager == "helm-controller" })
		if applied && o.GetAnnotations()[live.ReleaseName] != "" && o.GetLabels()[live.HelmReleaseLabel] != "" {
			out = append(out, "theirs")
		} else if applied || o.GetAnnotations()[live.ReleaseName] != "" || o.GetLabels()[live.HelmReleaseLabel] != "" {
			out = append(out, "both's")
		}
	}
	return out
}

// page runs a block of commands of docs/moving.md in a repository, where what is shop there is ns.
func page(ctx context.Context, block int, ns string, files map[string]string) string {
	GinkgoHelper()
	scripts, err := harness.Blocks(moving, fromHelmRelease, "sh")
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

var _ = Describe("Moving over from a HelmRelease", func() {
	DescribeTable("deletes nothing, as docs/moving.md does it", func(ctx SpecContext, server string, uninstalled bool) {
		ns := namespaceFor(ctx)
		dir := GinkgoT().TempDir()
		Expect(writeFiles(dir, released)).To(Succeed())
		helm(ctx, ns, "install", "shop", dir, "--server-side="+server, "--set", "greeting=good morning,flux.name=shop,flux.namespace="+ns)
		asHelmController(ctx, ns)
		Eventually(ctx, func() (int32, error) {
			d := &workloads.Deployment{ObjectMeta: named(ns, "shop")}
			err := get(ctx, d)
			return d.Status.AvailableReplicas, err
		}, soon).Should(BeEquivalentTo(1))
		was := running(ctx, ns)
		Expect(was.uids).To(HaveLen(4))
		Expect(helms(ctx, ns)).To(Equal([]string{"theirs", "theirs", "theirs"}))

		By("2. write the stack")
		said, err := harness.Files(moving, fromHelmRelease)
		Expect(err).NotTo(HaveOccurred())
		files := prefixed("stacks/shop/chart/", released)
		for name, content := range said {
			files[name] = strings.ReplaceAll(content, "namespace: shop", "namespace: "+ns)
		}
		By("3. look")
		for _, line := range strings.Split(page(ctx, 0, ns, files), "\n") {
			Expect(line).NotTo(MatchRegexp(`^[-+] .*(image|greeting|replicas|port|kind):`), "nothing changes")
		}
		Expect(running(ctx, ns)).To(Equal(was))

		By("an install that may not take over")
		tree := prefixed("chart/", released)
		_, stack, _ := strings.Cut(said["stacks/shop/stack.yaml"], "metadata: {name: shop}\n")
		Expect(h.Publish(ctx, ns, "shop", "r1", harness.Tree(stack, tree))).To(Succeed())
		in := install(ctx, ns, "shop")
		says(ctx, in, metav1.ConditionFalse, "OwnedByAnother", "Flux HelmRelease "+ns+"/shop")
		Expect(running(ctx, ns)).To(Equal(was))

		By("4. take over")
		change(ctx, in, `{"spec":{"adopt":"Always"}}`)
		page(ctx, 1, ns, nil)
		Expect(helms(ctx, ns)).To(BeEmpty())
		Expect(running(ctx, ns)).To(Equal(was))

		if uninstalled {
			By("uninstalling it by mistake")
			helm(ctx, ns, "uninstall", "shop")
		} else {
			By("5. deleting the records")
			page(ctx, 2, ns, nil)
		}
		Expect(helmLists(ctx, ns)).To(BeZero())
		Expect(running(ctx, ns)).To(Equal(was))

		By("what leaves the stack leaves the cluster")
		tree["chart/templates/settings.yaml"] = strings.Replace(tree["chart/templates/settings.yaml"], ", more: yes please", "", 1)
		Expect(h.Publish(ctx, ns, "shop", "r2", harness.Tree(stack, tree))).To(Succeed())
		Eventually(ctx, func() map[string]string { return running(ctx, ns).data }, soon).Should(Equal(map[string]string{"greeting": "good morning"}))
		removed := &workloads.Deployment{ObjectMeta: named(ns, "shop")}
		Expect(h.Plane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, absent, soon).WithArguments(ctx, removed).Should(BeTrue(), "it is the install's for good")
	},
		Entry("applied on the server's side", SpecTimeout(15*time.Minute), "true", false),
		Entry("applied on the client's side, as by Helm 3", SpecTimeout(15*time.Minute), "false", false),
		Entry("and is not undone by Helm", SpecTimeout(15*time.Minute), "true", true))
})
