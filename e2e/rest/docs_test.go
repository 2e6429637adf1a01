package rest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
)

var _ = Describe("docs/rest.md", func() {
	It("has working commands, with and without a repository", func(ctx SpecContext) {
		if _, err := exec.LookPath("curl"); err != nil {
			Skip("the commands of the page need curl")
		}
		blocks, err := harness.CodeBlocks("docs/rest.md", "Try it", "sh")
		Expect(err).NotTo(HaveOccurred())
		Expect(len(blocks)).To(BeNumerically(">=", 7))
		blocks = blocks[:len(blocks)-1] // the Go program is for another kind
		for name, e := range map[string]endpoint{"committing": committing, "passing": passing} {
			By(name)
			ns := framework.Namespace(ctx, h, "docs")
			bin := GinkgoT().TempDir()
			Expect(os.Symlink(plane.Kubectl(), filepath.Join(bin, "kubectl"))).To(Succeed())
			// The API server applies the role a moment later.
			script := fmt.Sprintf("PATH=%s:$PATH namespace=%s host=https://%s ca=%s\n%s\n"+
				"account=system:serviceaccount:$namespace:storefront\n"+
				"until kubectl auth can-i -n $namespace get shops.%s --as=$account; do :; done\n%s",
				bin, ns, e.addr, certFile, blocks[0], group, strings.Join(blocks[1:], "\n"))
			cmd := exec.CommandContext(ctx, "sh", "-euc", script)
			cmd.Env = append(os.Environ(), "KUBECONFIG="+plane.Kubeconfig())
			content, err := cmd.CombinedOutput()
			out := string(content)
			Expect(err).NotTo(HaveOccurred(), out)
			Expect(out).To(ContainSubstring(`"replicas":2`))
			Expect(out).To(ContainSubstring("/v1/shops." + group + "/{namespace}/{name}"))
			if name == "committing" {
				Expect(git(ctx, "log", "--format=%s", "main")).To(ContainSubstring("Two replicas"))
			}
		}
	})
})
