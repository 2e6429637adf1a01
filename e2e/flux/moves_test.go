package flux_test

import (
	"context"
	"errors"
	"maps"
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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/harness"
)

// movingPage and kustomizationHeading are the page and the heading that the spec executes.
const movingPage, kustomizationHeading = "docs/moving.md", "From a Flux Kustomization"

// docFiles returns the files of a section of docs/moving.md.
func docFiles(heading string) map[string]string {
	GinkgoHelper()
	files, err := harness.YAMLFiles(movingPage, heading)
	Expect(err).NotTo(HaveOccurred())
	return files
}

// runDocBlock runs a block of commands of a section of docs/moving.md in a folder with files.
func runDocBlock(ctx context.Context, heading string, block int, files map[string]string) string {
	GinkgoHelper()
	scripts, err := harness.CodeBlocks(movingPage, heading, "sh")
	Expect(err).NotTo(HaveOccurred())
	Expect(len(scripts)).To(BeNumerically(">", block))
	dir := GinkgoT().TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		Expect(os.MkdirAll(filepath.Dir(path), 0o750)).To(Succeed())
		Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	}
	out, err := h.Shell(ctx, dir, scripts[block])
	Expect(err).NotTo(HaveOccurred())
	return out
}

// app are the files that the Kustomization applies before the move.
var app = map[string]string{"web.yaml": deployment(""),
	"settings.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n" +
		"data: {greeting: hello, more: yes please}\n"}

func inFolder(folder string, files map[string]string) map[string]string {
	out := map[string]string{}
	for name, content := range files {
		out[folder+"/"+name] = content
	}
	return out
}

func running(ctx context.Context, ns string) harness.WorkloadState {
	GinkgoHelper()
	r, err := h.WorkloadState(ctx, ns)
	Expect(err).NotTo(HaveOccurred())
	Expect(r.PodUIDs).NotTo(BeEmpty())
	return r
}

// awaitRunning waits until the Deployment has its pod, and returns what runs.
func awaitRunning(ctx context.Context, ns string) harness.WorkloadState {
	GinkgoHelper()
	Eventually(ctx, func() (int32, error) {
		web := webOf(ns)
		err := get(ctx, web)
		return web.Status.AvailableReplicas, err
	}, soon).Should(BeEquivalentTo(1))
	return running(ctx, ns)
}

func webOf(ns string) *workloads.Deployment {
	return &workloads.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}}
}

var errFluxOwns = errors.New("the object still belongs to Flux")

// merged returns the union of files; later ones take precedence.
func merged(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, files := range all {
		maps.Copy(out, files)
	}
	return out
}

// fluxReleased returns errFluxOwns while Flux still has a claim to the moved objects.
func fluxReleased(ctx context.Context, ns string) error {
	for _, o := range []client.Object{configMapOf(ns, "settings"), webOf(ns)} {
		if err := get(ctx, o); err != nil {
			return err
		}
		byFlux := func(e metav1.ManagedFieldsEntry) bool { return e.Manager == fluxAccount }
		if _, labelled := o.GetLabels()[live.FluxKustomizationLabel]; labelled ||
			slices.ContainsFunc(o.GetManagedFields(), byFlux) {
			return errFluxOwns
		}
	}
	return nil
}

var _ = Describe("Moving from a Kustomization", func() {
	It("deletes nothing with the steps of docs/moving.md", func(ctx SpecContext) {
		const ns = "shop"
		Expect(h.ControlPlane.Client().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})).
			To(Succeed())
		Expect(harness.CreateDeployer(ctx, h.ControlPlane, ns)).To(Succeed())
		page := docFiles(kustomizationHeading)
		before := strings.NewReplacer("  suspend: true      # new\n", "", "prune: false       # was true",
			"prune: true", "spec:\n", "spec:\n  serviceAccountName: deployer\n").
			Replace(page["clusters/prod/shop.yaml"])
		Expect(before).To(And(ContainSubstring("prune: true"), Not(ContainSubstring("suspend"))))
		files := inFolder("apps/shop", app)
		files["clusters/prod/shop.yaml"] = before
		w := newFixtureIn(ctx, ns, files)
		k, shop, in := w.sync(ctx, "cluster", "./clusters/prod", "wait: false"), w.object("Kustomization", "shop"),
			w.object("KsctlInstall", "shop")
		readyAt(ctx, shop, w.head(ctx))
		was := awaitRunning(ctx, ns)

		By("1. stop it")
		files["clusters/prod/shop.yaml"] = page["clusters/prod/shop.yaml"]
		readyAt(ctx, k, w.commit(ctx, files))
		runDocBlock(ctx, kustomizationHeading, 0, nil)

		By("2. write the stack, 3. look")
		maps.Copy(files, inFolder("stacks/shop/app", app))
		for _, name := range []string{"stacks/shop/stack.yaml", "clusters/prod/install.yaml"} {
			files[name] = page[name]
		}
		var changes []string
		for _, line := range strings.Split(runDocBlock(ctx, kustomizationHeading, 1, files), "\n") {
			if strings.HasPrefix(line, "-  ") || strings.HasPrefix(line, "+  ") {
				changes = append(changes, strings.TrimSpace(line[1:]))
			}
		}
		Expect(changes).NotTo(BeEmpty())
		Expect(changes).To(HaveEach(Or(HavePrefix("kustomize.toolkit.fluxcd.io/name"), Equal("labels:"))),
			"nothing else changes")
		Expect(running(ctx, ns)).To(Equal(was), "a diff changes nothing")

		By("4. commit it")
		readyAt(ctx, in, w.commit(ctx, files))
		Expect(runDocBlock(ctx, kustomizationHeading, 2, nil)).To(ContainSubstring("No resources found"))
		Expect(fluxReleased(ctx, ns)).To(Succeed())
		Expect(running(ctx, ns)).To(Equal(was))

		By("5. remove the Kustomization")
		delete(files, "clusters/prod/shop.yaml")
		maps.DeleteFunc(files, func(name, _ string) bool { return strings.HasPrefix(name, "apps/") })
		files["clusters/prod/install.yaml"] = strings.Replace(page["clusters/prod/install.yaml"], "  adopt: Always\n",
			"", 1)
		revision := w.commit(ctx, files)
		readyAt(ctx, k, revision)
		Eventually(ctx, absent, soon).WithArguments(ctx, shop).Should(BeTrue())
		readyAt(ctx, in, revision)
		Expect(running(ctx, ns)).To(Equal(was))

		By("an object that leaves the stack is removed")
		files["stacks/shop/app/settings.yaml"] = strings.Replace(app["settings.yaml"], ", more: yes please", "", 1)
		readyAt(ctx, in, w.commit(ctx, files))
		settings := configMapOf(ns, "settings")
		Expect(get(ctx, settings)).To(Succeed())
		Expect(settings.Data).To(Equal(map[string]string{"greeting": "hello"}))
		files["stacks/shop/app/settings.yaml"] = app["settings.yaml"]
		delete(files, "clusters/prod/install.yaml")
		files["clusters/prod/none.yaml"] = configMap("synced", "1")
		w.commit(ctx, files)
		Eventually(ctx, absent, soon).WithArguments(ctx, webOf(ns)).Should(BeTrue(), "the install owns the objects")
	}, SpecTimeout(15*time.Minute))

	It("deletes nothing while the Kustomization is not suspended, and can be reverted", func(ctx SpecContext) {
		w := newFixture(ctx,
			content(merged(inFolder("apps", app), inFolder("stacks/app/base", app),
				map[string]string{"apps/rest.yaml": configMap("rest", "1")})))
		k := w.object("Kustomization", "apps")
		k.Object["spec"] = map[string]any{"sourceRef": map[string]any{"kind": "GitRepository", "name": "fleet"},
			"path": "./apps", "targetNamespace": w.ns,
			"interval": "1h", "prune": true, "serviceAccountName": harness.Deployer}
		Expect(h.ControlPlane.Client().Create(ctx, k)).To(Succeed())
		readyAt(ctx, k, w.head(ctx))
		was := awaitRunning(ctx, w.ns)

		By("without adopt: Always")
		install := func(more string) *unstructured.Unstructured {
			in := &unstructured.Unstructured{}
			Expect(yaml.Unmarshal([]byte(installManifest+more), &in.Object)).To(Succeed())
			in.SetNamespace(w.ns)
			Expect(h.ControlPlane.Client().Create(ctx, in)).To(Succeed())
			return w.object("KsctlInstall", "app")
		}
		in := install("")
		notReady(ctx, in, "OwnedByAnother", "Flux Kustomization "+w.ns+"/apps", "spec.adopt")
		Expect(running(ctx, w.ns)).To(Equal(was))
		patch(ctx, in, `{"spec":{"adopt":"Always"}}`)
		readyAt(ctx, in, w.head(ctx))
		Expect(fluxReleased(ctx, w.ns)).To(Succeed())

		By("the Kustomization applying the objects again")
		at := requestReconcile(ctx, k)
		Eventually(ctx, lastHandledRequest, soon).WithArguments(ctx, k).Should(Equal(at))
		Eventually(ctx, fluxReleased, soon).WithArguments(ctx, w.ns).
			Should(Succeed(), "the install takes the objects over again")

		By("reverting the move")
		patch(ctx, in, `{"spec":{"deletionPolicy":"Orphan"}}`)
		Expect(h.ControlPlane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, absent, soon).WithArguments(ctx, in).Should(BeTrue())
		at = requestReconcile(ctx, k)
		Eventually(ctx, lastHandledRequest, soon).WithArguments(ctx, k).Should(Equal(at))
		Expect(fluxReleased(ctx, w.ns)).To(MatchError(errFluxOwns))
		Expect(running(ctx, w.ns)).To(Equal(was))

		By("deleting the Kustomization unchanged, when the install owns the objects again")
		in = install("  adopt: Always\n")
		readyAt(ctx, in, w.head(ctx))
		Eventually(ctx, fluxReleased, soon).WithArguments(ctx, w.ns).Should(Succeed())
		Expect(h.ControlPlane.Client().Delete(ctx, k)).To(Succeed())
		Eventually(ctx, absent, soon).WithArguments(ctx, k).Should(BeTrue())
		Expect(absent(ctx, configMapOf(w.ns, "rest"))).To(BeTrue(), "Flux prunes an object that is not in the stack")
		Expect(running(ctx, w.ns)).To(Equal(was))
	}, SpecTimeout(15*time.Minute))
})
