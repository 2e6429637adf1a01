package flux_test

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing/fstest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	workloads "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/programs"
)

// example returns the repository that users copy, with the URL that it has in this suite.
func example(url string) fstest.MapFS {
	GinkgoHelper()
	root, out := os.DirFS("../../examples/flux"), fstest.MapFS{}
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

// commands returns all commands under a heading of the README, for the cluster dev or prod.
func commands(heading, cluster string) string {
	GinkgoHelper()
	readme, err := os.ReadFile("../../examples/flux/README.md")
	Expect(err).NotTo(HaveOccurred())
	_, section, found := strings.Cut(string(readme), "\n## "+heading+"\n")
	Expect(found).To(BeTrue())
	section, _, _ = strings.Cut(section, "\n## ")
	var script string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1) {
		script += block[1]
	}
	Expect(script).NotTo(BeEmpty())
	return strings.ReplaceAll(script, "root/dev.yaml", "root/"+cluster+".yaml")
}

// shell runs a script in a folder like a user does, with kubectl and our plugin.
func shell(ctx context.Context, bin, dir, script string) {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, "sh", "-euc", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+h.ControlPlane.Kubeconfig(), "PATH="+bin+string(os.PathListSeparator)+
		os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s\n%s", script, out)
}

// One cluster serves as both clusters of the example, one after the other.
var _ = Describe("The example", Ordered, func() {
	var (
		repo     *gitserver.Repo
		dir, bin string
	)
	branches := map[string]string{"dev": "main", "prod": "production"}
	BeforeAll(func(ctx SpecContext) {
		var err error
		repo, err = git.NewRepo(ctx, "platform/fleet")
		Expect(err).NotTo(HaveOccurred())
		_, err = repo.CommitDir(ctx, example(repo.URL()), "all of it")
		Expect(err).NotTo(HaveOccurred())
		dir, bin = GinkgoT().TempDir(), GinkgoT().TempDir()
		Expect(os.CopyFS(dir, example(repo.URL()))).To(Succeed())
		Expect(os.Symlink(h.ControlPlane.Kubectl(), filepath.Join(bin, "kubectl"))).To(Succeed())
		plugin, err := programs.Build(ctx, GinkgoT().TempDir(), programs.Kubectl)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.Symlink(plugin, filepath.Join(bin, programs.Kubectl))).To(Succeed())
	}, NodeTimeout(15*time.Minute))

	DescribeTable("works with the commands of its README", func(ctx SpecContext, cluster string, replicas int,
		image, greeting string) {
		head, err := repo.Head(ctx, "main")
		Expect(err).NotTo(HaveOccurred())
		Expect(repo.SetBranch(ctx, branches[cluster], head)).To(Succeed())
		shell(ctx, bin, dir, commands("Use it", cluster))

		d := &workloads.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "web"}}
		Expect(get(ctx, d)).To(Succeed())
		Expect(d.Status.AvailableReplicas).To(BeEquivalentTo(replicas), "the Kustomization is Ready when the pods are")
		Expect(d.Spec.Template.Spec.Containers[0].Image).To(HaveSuffix(image))
		Expect(value(ctx, "web", "web-settings", "PODINFO_UI_MESSAGE")).To(Equal(greeting))

		By("a change")
		path := "clusters/" + cluster + "/install.yaml"
		changed := strings.ReplaceAll(string(example(repo.URL())[path].Data), "greeting: "+greeting,
			"greeting: Changed")
		_, err = repo.Commit(ctx, map[string]string{path: changed}, "another greeting",
			gitserver.OnBranch(branches[cluster]))
		Expect(err).NotTo(HaveOccurred())
		shell(ctx, bin, dir, commands("Change it", cluster))
		settings := configMapOf("web", "web-settings")
		Eventually(ctx, func() (string, error) {
			return settings.Data["PODINFO_UI_MESSAGE"], get(ctx, settings)
		}, soon).Should(Equal("Changed"))

		shell(ctx, bin, dir, commands("Remove it", cluster))
		web := fixture{ns: "web"}
		Expect(absent(ctx, web.object("Kustomization", "fleet"))).To(BeTrue())
		Expect(absent(ctx, web.object("KsctlInstall", "web"))).To(BeTrue(), "Flux has waited for the install")
		Expect(absent(ctx, d)).To(BeTrue())
		Expect(absent(ctx, settings)).To(BeTrue())
	},
		Entry("for dev", SpecTimeout(15*time.Minute), "dev", 1, "/podinfo:6.9.1", "Hello developers"),
		Entry("for prod", SpecTimeout(15*time.Minute), "prod", 3, "/podinfo:6.9.0", "Good morning"))
})
