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

// shipped is config/ of this repository, and a stack that is none of that.
func shipped() map[string]string {
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
	It("has Flux install the controller, and leaves the definitions when it goes", func(ctx SpecContext) {
		repo, err := git.NewRepo(ctx, "ksctl/gitops")
		Expect(err).NotTo(HaveOccurred())
		commit, err := repo.Commit(ctx, shipped(), "config")
		Expect(err).NotTo(HaveOccurred())
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../../config/flux")
		Expect(err).NotTo(HaveOccurred())
		manifests, err := built.AsYaml()
		Expect(err).NotTo(HaveOccurred())
		Expect(h.Plane.ApplyYAML(ctx, bytes.ReplaceAll(manifests, []byte("https://github.com/ksctl/gitops"), []byte(repo.URL())))).To(Succeed())

		system := world{ns: fluxNamespace}
		definitions, controller := system.object("Kustomization", "ksctl-gitops-definitions"), system.object("Kustomization", "ksctl-gitops")
		readyAt(ctx, definitions, "main@sha1:"+commit)
		readyAt(ctx, controller, "main@sha1:"+commit)
		d := &workloads.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ksctl-gitops-system", Name: "ksctl-gitops"}}
		Expect(get(ctx, d)).To(Succeed())
		Expect(d.Status.AvailableReplicas).NotTo(BeZero(), "Flux waited for it")
		Expect(d.Spec.Template.Spec.Containers[0].Image).To(ContainSubstring("/ksctl-gitops:"), "it is an image that can be pulled, not the placeholder")
		installs := &unstructured.Unstructured{}
		installs.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		installs.SetName("ksctlinstalls.apps.ksctl.com")
		Expect(get(ctx, installs)).To(Succeed())
		uid := installs.GetUID()

		Expect(h.Plane.Client().Delete(ctx, definitions)).To(Succeed())
		Eventually(ctx, get, soon).WithArguments(ctx, definitions).Should(MatchError(apierrors.IsNotFound, "is not found"), "its finalizer goes")
		Expect(get(ctx, installs)).To(Succeed())
		Expect(installs.GetDeletionTimestamp()).To(BeNil())
		Expect(installs.GetUID()).To(Equal(uid), "the definition stays")
	}, SpecTimeout(15*time.Minute))
})
