package argocd_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing/fstest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	k8sappsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ksctl/gitops/e2e/cluster/gitserver"
)

// example returns the repository that users copy, with the URL that it has in this suite.
func example(url string) fs.FS {
	GinkgoHelper()
	root, out := os.DirFS("../../examples/argocd"), fstest.MapFS{}
	Expect(fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(root, path)
		out[path] = &fstest.MapFile{Mode: 0o644,
			Data: []byte(strings.ReplaceAll(string(data), "https://git.example.com/platform/fleet.git", url))}
		return err
	})).To(Succeed())
	return out
}

// One cluster serves as both clusters of the example, one after the other.
var _ = Describe("The example", Ordered, func() {
	var repo *gitserver.Repo
	BeforeAll(func(ctx SpecContext) {
		var err error
		repo, err = git.NewRepo(ctx, "platform/fleet")
		Expect(err).NotTo(HaveOccurred())
		commit, err := repo.CommitDir(ctx, example(repo.URL()), "all of it")
		Expect(err).NotTo(HaveOccurred())
		Expect(repo.SetBranch(ctx, "production", commit)).To(Succeed())
	})

	DescribeTable("is an app of apps", func(ctx SpecContext, name string, replicas int, greeting string) {
		root, err := fs.ReadFile(example(repo.URL()), "root/"+name+".yaml")
		Expect(err).NotTo(HaveOccurred())
		file := filepath.Join(GinkgoT().TempDir(), name+".yaml")
		Expect(os.WriteFile(file, root, 0o644)).To(Succeed())
		kubectl(ctx, "apply", "--server-side", "-f", file)
		healthy := "--for=jsonpath={.status.health.status}=Healthy"
		kubectl(ctx, "-n", argoNamespace, "wait", "application/root", healthy, "--timeout=5m")
		becomes(ctx, "root", "Healthy")
		becomes(ctx, "web", "Healthy")
		kubectl(ctx, "-n", argoNamespace, "wait", "application/web", healthy, "--timeout=5m")
		kubectl(ctx, "-n", "web", "annotate", "--overwrite", "ksctlsource/fleet", "reconcile.fluxcd.io/requestedAt=1")

		d := &k8sappsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "web"}}
		Expect(get(ctx, d)).To(Succeed())
		Expect(d.Status.ReadyReplicas).To(BeEquivalentTo(replicas))
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "web-settings"}}
		Expect(get(ctx, settings)).To(Succeed())
		Expect(settings.Data).To(HaveKeyWithValue("PODINFO_UI_MESSAGE", greeting))
		Expect(treeKinds("web")).To(ConsistOf("KsctlInstall", "KsctlSource", "Role", "RoleBinding", "ServiceAccount"))

		By("deleting the root")
		kubectl(ctx, "-n", argoNamespace, "delete", "application", "root")
		Expect(absent(ctx, application("root"))).To(BeTrue())
		Expect(absent(ctx, application("web"))).To(BeTrue())
		Expect(absent(ctx, install("web", "web"))).To(BeTrue())
		Expect(absent(ctx, d)).To(BeTrue())
		Expect(absent(ctx, settings)).To(BeTrue())
	},
		Entry("for dev", SpecTimeout(15*time.Minute), "dev", 1, "Hello developers"),
		Entry("for prod", SpecTimeout(15*time.Minute), "prod", 3, "Good morning"))
})
