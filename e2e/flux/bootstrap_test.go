package flux_test

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	workloads "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// shippedConfig returns config/ of this repository, and a stack, which is not part of it.
func shippedConfig() map[string]string {
	GinkgoHelper()
	files, root := map[string]string{"stacks/app/stack.yaml": stack}, os.DirFS("../..")
	Expect(fs.WalkDir(root, "config", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".yaml" {
			return err
		}
		content, err := fs.ReadFile(root, name)
		files[name] = string(content)
		return err
	})).To(Succeed())
	return files
}

var _ = Describe("config/flux", func() {
	It("lets Flux install the controller, and keeps the CRDs when its Kustomization is deleted", func(ctx SpecContext) {
		repo, err := git.NewRepo(ctx, "ksctl/gitops")
		Expect(err).NotTo(HaveOccurred())
		commit, err := repo.Commit(ctx, shippedConfig(), "config")
		Expect(err).NotTo(HaveOccurred())
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).
			Run(filesys.MakeFsOnDisk(), "../../config/flux")
		Expect(err).NotTo(HaveOccurred())
		manifests, err := built.AsYaml()
		Expect(err).NotTo(HaveOccurred())
		Expect(h.ControlPlane.ApplyYAML(ctx,
			bytes.ReplaceAll(manifests, []byte("https://github.com/ksctl/gitops"), []byte(repo.URL())))).To(Succeed())

		system := fixture{ns: fluxNamespace}
		definitions, controller := system.object("Kustomization", "ksctl-gitops-definitions"),
			system.object("Kustomization", "ksctl-gitops")
		readyAt(ctx, definitions, "main@sha1:"+commit)
		readyAt(ctx, controller, "main@sha1:"+commit)
		d := &workloads.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ksctl-gitops-system",
			Name: "ksctl-gitops"}}
		Expect(get(ctx, d)).To(Succeed())
		Expect(d.Status.AvailableReplicas).NotTo(BeZero(), "Flux has waited for the Deployment")
		Expect(d.Spec.Template.Spec.Containers[0].Image).
			To(ContainSubstring("/ksctl-gitops:"), "the image is a release, not the placeholder")
		installs := &unstructured.Unstructured{}
		installs.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
			Kind: "CustomResourceDefinition"})
		installs.SetName("ksctlinstalls.apps.ksctl.com")
		Expect(get(ctx, installs)).To(Succeed())
		uid := installs.GetUID()

		Expect(h.ControlPlane.Client().Delete(ctx, definitions)).To(Succeed())
		Eventually(ctx, get, soon).WithArguments(ctx, definitions).
			Should(MatchError(apierrors.IsNotFound, "is not found"), "its finalizer is removed")
		Expect(get(ctx, installs)).To(Succeed())
		Expect(installs.GetDeletionTimestamp()).To(BeNil())
		Expect(installs.GetUID()).To(Equal(uid), "the CRD stays")
	}, SpecTimeout(15*time.Minute))
})
