package argocd_test

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	workloads "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ksctl/gitops/e2e/harness"
)

// Argo CD runs as well, but manages none of these objects.
var _ = Describe("docs/standalone.md", func() {
	It("works with its files and commands", func(ctx SpecContext) {
		const page = "docs/standalone.md"
		files, err := harness.YAMLFiles(page, "Three files")
		Expect(err).NotTo(HaveOccurred())
		Expect(files).To(HaveLen(3))
		repo, err := git.NewRepo(ctx, "standalone/fleet")
		Expect(err).NotTo(HaveOccurred())
		dir := GinkgoT().TempDir()
		for name, content := range files {
			files[name] = strings.ReplaceAll(content, "https://git.example.com/platform/fleet.git", repo.URL())
			Expect(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o750)).To(Succeed())
			Expect(os.WriteFile(filepath.Join(dir, name), []byte(files[name]), 0o600)).To(Succeed())
		}
		follow := func(heading string) string {
			GinkgoHelper()
			scripts, err := harness.CodeBlocks(page, heading, "sh")
			Expect(err).NotTo(HaveOccurred())
			out, err := h.Shell(ctx, dir, strings.Join(scripts, ""))
			Expect(err).NotTo(HaveOccurred())
			return out
		}
		_, err = repo.Commit(ctx, files, "three files")
		Expect(err).NotTo(HaveOccurred())
		Expect(follow("Install it")).
			To(And(ContainSubstring("1 stack, 1 install: ok"), ContainSubstring("# component: app"),
				ContainSubstring("Applied revision main@sha1:")))

		hello := &workloads.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "hello", Name: "hello"}}
		Expect(get(ctx, hello)).To(Succeed())
		Expect(hello.Status.AvailableReplicas).To(BeEquivalentTo(1))
		_, err = repo.Commit(ctx,
			map[string]string{"stacks/hello/app.yaml": strings.Replace(files["stacks/hello/app.yaml"], "6.9.1", "6.9.2",
				1)}, "another image")
		Expect(err).NotTo(HaveOccurred())
		follow("Change it")
		Eventually(ctx, func() (string, error) {
			err := get(ctx, hello)
			return hello.Spec.Template.Spec.Containers[0].Image, err
		}, soon).Should(HaveSuffix(":6.9.2"))
		follow("Remove it")
		Expect(absent(ctx, hello)).To(BeTrue())
	}, SpecTimeout(15*time.Minute))
})
