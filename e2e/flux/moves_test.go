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

const moving, fromKustomization = "docs/moving.md", "From a Flux Kustomization"

// page are the files of a section of docs/moving.md.
func page(heading string) map[string]string {
	GinkgoHelper()
	files, err := harness.Files(moving, heading)
	Expect(err).NotTo(HaveOccurred())
	return files
}

// run runs a block of commands under a heading of docs/moving.md, in a repository.
func run(ctx context.Context, heading string, block int, files map[string]string) string {
	GinkgoHelper()
	scripts, err := harness.Blocks(moving, heading, "sh")
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

// app is what runs before the move.
var app = map[string]string{"web.yaml": deployment(""), "settings.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {greeting: hello, more: yes please}\n"}

func under(folder string, files map[string]string) map[string]string {
	out := map[string]string{}
	for name, content := range files {
		out[folder+"/"+name] = content
	}
	return out
}

func running(ctx context.Context, ns string) harness.Running {
	GinkgoHelper()
	r, err := h.Running(ctx, ns)
	Expect(err).NotTo(HaveOccurred())
	Expect(r.Pods).NotTo(BeEmpty())
	return r
}

// started is what runs once the Deployment has its pod.
func started(ctx context.Context, ns string) harness.Running {
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

var errTheirs = errors.New("it is Flux's")

// merged has the files of all, the last ones first.
func merged(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, files := range all {
		maps.Copy(out, files)
	}
	return out
}

// ours is nil when Flux has no claim to what is moved any more.
func ours(ctx context.Context, ns string) error {
	for _, o := range []client.Object{configMapOf(ns, "settings"), webOf(ns)} {
		if err := get(ctx, o); err != nil {
			return err
		}
		flux := func(e metav1.ManagedFieldsEntry) bool { return e.Manager == fluxAccount }
		if _, labelled := o.GetLabels()[live.KustomizationLabel]; labelled || slices.ContainsFunc(o.GetManagedFields(), flux) {
			return errTheirs
		}
	}
	return nil
}

var _ = Describe("Moving over from a Kustomization", func() {
	It("deletes nothing, as docs/moving.md does it", func(ctx SpecContext) {
		const ns = "shop"
		Expect(h.Plane.Client().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})).To(Succeed())
		Expect(harness.Deploy(ctx, h.Plane, ns)).To(Succeed())
		said := page(fromKustomization)
		before := strings.NewReplacer("  suspend: true      # new\n", "", "prune: false       # was true", "prune: true", "spec:\n", "spec:\n  serviceAccountName: deployer\n").
			Replace(said["clusters/prod/shop.yaml"])
		Expect(before).To(And(ContainSubstring("prune: true"), Not(ContainSubstring("suspend"))))
		files := under("apps/shop", app)
		files["clusters/prod/shop.yaml"] = before
		w := newWorldIn(ctx, ns, files)
		k, shop, in := w.sync(ctx, "cluster", "./clusters/prod", "wait: false"), w.object("Kustomization", "shop"), w.object("KsctlInstall", "shop")
		readyAt(ctx, shop, w.head(ctx))
		was := started(ctx, ns)

		By("1. stop it")
		files["clusters/prod/shop.yaml"] = said["clusters/prod/shop.yaml"]
		readyAt(ctx, k, w.commit(ctx, files))
		run(ctx, fromKustomization, 0, nil)

		By("2. write the stack, 3. look")
		maps.Copy(files, under("stacks/shop/app", app))
		for _, name := range []string{"stacks/shop/stack.yaml", "clusters/prod/install.yaml"} {
			files[name] = said[name]
		}
		var changes []string
		for _, line := range strings.Split(run(ctx, fromKustomization, 1, files), "\n") {
			if strings.HasPrefix(line, "-  ") || strings.HasPrefix(line, "+  ") {
				changes = append(changes, strings.TrimSpace(line[1:]))
			}
		}
		Expect(changes).NotTo(BeEmpty())
		Expect(changes).To(HaveEach(Or(HavePrefix("kustomize.toolkit.fluxcd.io/name"), Equal("labels:"))), "nothing else changes")
		Expect(running(ctx, ns)).To(Equal(was), "looking changes nothing")

		By("4. commit it")
		readyAt(ctx, in, w.commit(ctx, files))
		Expect(run(ctx, fromKustomization, 2, nil)).To(ContainSubstring("No resources found"))
		Expect(ours(ctx, ns)).To(Succeed())
		Expect(running(ctx, ns)).To(Equal(was))

		By("5. remove the Kustomization")
		delete(files, "clusters/prod/shop.yaml")
		maps.DeleteFunc(files, func(name, _ string) bool { return strings.HasPrefix(name, "apps/") })
		files["clusters/prod/install.yaml"] = strings.Replace(said["clusters/prod/install.yaml"], "  adopt: Always\n", "", 1)
		revision := w.commit(ctx, files)
		readyAt(ctx, k, revision)
		Eventually(ctx, gone, soon).WithArguments(ctx, shop).Should(BeTrue())
		readyAt(ctx, in, revision)
		Expect(running(ctx, ns)).To(Equal(was))

		By("what leaves the stack leaves the cluster")
		files["stacks/shop/app/settings.yaml"] = strings.Replace(app["settings.yaml"], ", more: yes please", "", 1)
		readyAt(ctx, in, w.commit(ctx, files))
		settings := configMapOf(ns, "settings")
		Expect(get(ctx, settings)).To(Succeed())
		Expect(settings.Data).To(Equal(map[string]string{"greeting": "hello"}))
		files["stacks/shop/app/settings.yaml"] = app["settings.yaml"]
		delete(files, "clusters/prod/install.yaml")
		files["clusters/prod/none.yaml"] = configMap("synced", "1")
		w.commit(ctx, files)
		Eventually(ctx, gone, soon).WithArguments(ctx, webOf(ns)).Should(BeTrue(), "they are the install's for good")
	}, SpecTimeout(15*time.Minute))

	It("deletes nothing when it was not stopped, and goes back", func(ctx SpecContext) {
		w := newWorld(ctx, content(merged(under("apps", app), under("stacks/app/base", app), map[string]string{"apps/rest.yaml": configMap("rest", "1")})))
		k := w.object("Kustomization", "apps")
		k.Object["spec"] = map[string]any{"sourceRef": map[string]any{"kind": "GitRepository", "name": "fleet"}, "path": "./apps", "targetNamespace": w.ns,
			"interval": "1h", "prune": true, "serviceAccountName": harness.Deployer}
		Expect(h.Plane.Client().Create(ctx, k)).To(Succeed())
		readyAt(ctx, k, w.head(ctx))
		was := started(ctx, w.ns)

		By("without adopt: Always")
		install := func(more string) *unstructured.Unstructured {
			in := &unstructured.Unstructured{}
			Expect(yaml.Unmarshal([]byte(kinInstall+more), &in.Object)).To(Succeed())
			in.SetNamespace(w.ns)
			Expect(h.Plane.Client().Create(ctx, in)).To(Succeed())
			return w.object("KsctlInstall", "app")
		}
		in := install("")
		refuses(ctx, in, "OwnedByAnother", "Flux Kustomization "+w.ns+"/apps", "spec.adopt")
		Expect(running(ctx, w.ns)).To(Equal(was))
		patch(ctx, in, `{"spec":{"adopt":"Always"}}`)
		readyAt(ctx, in, w.head(ctx))
		Expect(ours(ctx, w.ns)).To(Succeed())

		By("the Kustomization claiming it back")
		at := ask(ctx, k)
		Eventually(ctx, answered, soon).WithArguments(ctx, k).Should(Equal(at))
		Eventually(ctx, ours, soon).WithArguments(ctx, w.ns).Should(Succeed(), "the install takes it again")

		By("going back")
		patch(ctx, in, `{"spec":{"deletionPolicy":"Orphan"}}`)
		Expect(h.Plane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, gone, soon).WithArguments(ctx, in).Should(BeTrue())
		at = ask(ctx, k)
		Eventually(ctx, answered, soon).WithArguments(ctx, k).Should(Equal(at))
		Expect(ours(ctx, w.ns)).To(MatchError(errTheirs))
		Expect(running(ctx, w.ns)).To(Equal(was))

		By("deleting it as it is, when it is the install's again")
		in = install("  adopt: Always\n")
		readyAt(ctx, in, w.head(ctx))
		Eventually(ctx, ours, soon).WithArguments(ctx, w.ns).Should(Succeed())
		Expect(h.Plane.Client().Delete(ctx, k)).To(Succeed())
		Eventually(ctx, gone, soon).WithArguments(ctx, k).Should(BeTrue())
		Expect(gone(ctx, configMapOf(w.ns, "rest"))).To(BeTrue(), "what the stack does not have was Flux's to prune")
		Expect(running(ctx, w.ns)).To(Equal(was))
	}, SpecTimeout(15*time.Minute))
})
