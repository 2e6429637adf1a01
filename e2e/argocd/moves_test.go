package argocd_test

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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/harness"
)

// movingPage and applicationHeading are the page and the heading that the spec executes.
const movingPage, applicationHeading = "docs/moving.md", "From an Argo CD Application"

const settingsMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n" +
	"data: {greeting: hello, more: yes please}\n"

func running(ctx context.Context, ns string) harness.WorkloadState {
	GinkgoHelper()
	r, err := h.WorkloadState(ctx, ns)
	Expect(err).NotTo(HaveOccurred())
	Expect(r.PodUIDs).NotTo(BeEmpty())
	return r
}

func webOf(ns string) *workloads.Deployment {
	return &workloads.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}}
}

// claimedByArgo returns the objects that Argo CD has a claim to.
func claimedByArgo(ctx context.Context, ns string) []string {
	GinkgoHelper()
	var out []string
	for _, o := range []client.Object{configMapOf(ns, "settings"), webOf(ns)} {
		Expect(get(ctx, o)).To(Succeed())
		applied := slices.ContainsFunc(o.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
			return strings.HasPrefix(e.Manager, "argocd")
		})
		_, tracked := o.GetAnnotations()[live.ArgoCDTrackingAnnotation]
		_, labelled := o.GetLabels()[live.ArgoCDInstanceLabel]
		if applied || tracked || labelled || o.GetAnnotations()[corev1.LastAppliedConfigAnnotation] != "" {
			out = append(out, o.GetName())
		}
	}
	return out
}

// runDocBlock runs a block of commands of docs/moving.md in a folder with files, in the
// namespace ns.
func runDocBlock(ctx context.Context, block int, ns string, files map[string]string) string {
	GinkgoHelper()
	scripts, err := harness.CodeBlocks(movingPage, applicationHeading, "sh")
	Expect(err).NotTo(HaveOccurred())
	Expect(len(scripts)).To(BeNumerically(">", block))
	dir := GinkgoT().TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		Expect(os.MkdirAll(filepath.Dir(path), 0o750)).To(Succeed())
		Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	}
	out, err := h.Shell(ctx, dir, inNamespace(scripts[block], ns))
	Expect(err).NotTo(HaveOccurred())
	return out
}

// inNamespace replaces the namespace and the Application shop in a text of the page.
func inNamespace(text, ns string) string {
	return strings.NewReplacer("-n shop ", "-n "+ns+" ", "namespace: shop", "namespace: "+ns, "application shop",
		"application "+ns).Replace(text)
}

var _ = Describe("Moving from an Application", func() {
	DescribeTable("deletes nothing with the steps of "+
		"docs/moving.md", func(ctx SpecContext, stopped bool, options ...string) {
		documented, err := harness.YAMLFiles(movingPage, applicationHeading)
		Expect(err).NotTo(HaveOccurred())
		w := newFixture(ctx, map[string]string{"synced/web.yaml": deployment("web", ""),
			"synced/settings.yaml": settingsMap, "synced/rest.yaml": configMap("rest", "x")})
		w.sync(ctx, "", options...)
		becomes(ctx, w.ns, "Healthy")
		was := running(ctx, w.ns)
		Expect(claimedByArgo(ctx, w.ns)).To(ConsistOf("settings", "web"))

		By("1. stop it")
		if stopped {
			runDocBlock(ctx, 0, w.ns, nil)
		} else {
			patch(ctx, application(w.ns), `{"spec":{"syncPolicy":{"automated":null}}}`)
		}
		By("2. write the stack")
		files := map[string]string{"stacks/shop/app/web.yaml": deployment("web", ""),
			"stacks/shop/app/settings.yaml": settingsMap}
		for name, content := range documented {
			files[name] = inNamespace(content, w.ns)
		}
		By("3. look")
		for _, line := range strings.Split(runDocBlock(ctx, 1, w.ns, files), "\n") {
			Expect(line).NotTo(MatchRegexp(`^[-+] .*(image|greeting|replicas|labels|kind):`), "nothing changes")
		}
		By("an install without permission to take over")
		w.commit(ctx, files)
		fleet := strings.NewReplacer("metadata: {name: fleet}", "metadata: {name: fleet, namespace: "+w.ns+"}", "REPO",
			w.repo.URL()).Replace(source)
		Expect(h.ControlPlane.ApplyYAML(ctx, []byte(fleet))).To(Succeed())
		careful := strings.Replace(files["clusters/prod/install.yaml"], "  adopt: Always\n", "", 1)
		Expect(h.ControlPlane.ApplyYAML(ctx, []byte(careful))).To(Succeed())
		in := install(w.ns, "shop")
		Eventually(ctx, func() (string, error) {
			err := get(ctx, in)
			return harness.ReadyCondition(in).Reason + ": " + harness.ReadyCondition(in).Message, err
		}, soon).Should(And(HavePrefix("OwnedByAnother: "), ContainSubstring("Argo CD ("+w.ns+":")))
		Expect(running(ctx, w.ns)).To(Equal(was))

		By("4. take over")
		runDocBlock(ctx, 2, w.ns, files)
		Expect(claimedByArgo(ctx, w.ns)).To(BeEmpty())
		Expect(running(ctx, w.ns)).To(Equal(was))

		By("5. remove the Application")
		refresh(ctx, w.ns)
		Eventually(ctx, func() (string, error) {
			s, err := statusOf(ctx, w.ns)
			return s.Sync.Status, err
		}, soon).Should(Equal("OutOfSync"), "the Application has lost its objects")
		runDocBlock(ctx, 3, w.ns, nil)
		Eventually(ctx, func() bool { return absent(ctx, application(w.ns)) }, soon).Should(BeTrue())
		Expect(running(ctx, w.ns)).To(Equal(was))
		Expect(absent(ctx, configMapOf(w.ns, "rest"))).
			To(Equal(!stopped), "with its finalizer, the Application deletes an object that is not in the stack")

		By("an object that leaves the stack is removed")
		w.commit(ctx, map[string]string{"stacks/shop/app/settings.yaml": strings.Replace(settingsMap,
			", more: yes please", "", 1)})
		Eventually(ctx, func() (map[string]string, error) {
			cm := configMapOf(w.ns, "settings")
			err := get(ctx, cm)
			return cm.Data, err
		}, soon).Should(Equal(map[string]string{"greeting": "hello"}))
	},
		Entry("", SpecTimeout(15*time.Minute), true),
		Entry("with a server-side apply", SpecTimeout(15*time.Minute), true, "ServerSideApply=true"),
		Entry("with the finalizer left in place", SpecTimeout(15*time.Minute), false))
})
