package source_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/framework"
)

// docCommands returns the commands of a page, one script per heading.
func docCommands(page string) map[string]string {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
	Expect(err).NotTo(HaveOccurred())
	scripts := map[string]string{}
	heading := regexp.MustCompile(`(?m)^##+ (.*)$`)
	found := heading.FindAllStringSubmatchIndex(string(text), -1)
	for i, at := range found {
		end := len(text)
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		for j, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").
			FindAllStringSubmatch(string(text[at[1]:end]), -1) {
			name := string(text[at[2]:at[3]])
			if j > 0 && name == "Anything else" {
				name = "generic"
			}
			scripts[name] += block[1]
		}
	}
	return scripts
}

// runScript runs a script like a user does, with kubectl in a namespace and the variables that
// the page expects.
func runScript(ctx context.Context, script, ns, host string) (string, error) {
	GinkgoHelper()
	kubeconfig, err := h.ControlPlane.WriteKubeconfig("docs-"+ns, h.ControlPlane.Config())
	Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", "kubectl() { '"+h.ControlPlane.Kubectl()+
		"' --namespace '"+ns+"' \"$@\"; }\n"+script)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "host="+host)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

var _ = Describe("docs/webhooks.md", func() {
	It("has working commands for each sender", func(ctx SpecContext) {
		for _, tool := range []string{"bash", "curl", "openssl"} {
			if _, err := exec.LookPath(tool); err != nil {
				Skip("the commands of the page need " + tool)
			}
		}
		receiver, err := cluster.FreeAddress()
		Expect(err).NotTo(HaveOccurred())
		framework.StartController(h, "--webhook-addr="+receiver)
		ns := framework.Namespace(ctx, h, "docs")
		r, err := repo.NewRepo(ctx, "platform/fleet")
		Expect(err).NotTo(HaveOccurred())
		_, err = r.Commit(ctx, stack("1"), "one")
		Expect(err).NotTo(HaveOccurred())
		scripts := docCommands("webhooks.md")
		// The path depends on the token: the source must exist first.
		setUp := strings.SplitAfterN(scripts["Set a source up"], "\"$token\"\n", 2)
		Expect(setUp).To(HaveLen(2))
		for heading, kind := range map[string]appsv1.WebhookType{"GitHub": appsv1.GitHubWebhook,
			"GitLab": appsv1.GitLabWebhook, "Gitea": appsv1.GiteaWebhook,
			"Anything else": appsv1.GenericHMACWebhook, "generic": appsv1.GenericWebhook} {
			By(heading)
			Expect(scripts[heading]).NotTo(BeEmpty())
			src := &appsv1.KsctlSource{}
			src.Namespace, src.Name = ns, "fleet"
			src.Spec.Git = &appsv1.GitSource{URL: r.URL()}
			src.Spec.Webhook = &appsv1.SourceWebhook{Type: kind}
			src.Spec.Webhook.SecretRef.Name = "fleet-webhook"
			Expect(h.ControlPlane.Client().Create(ctx, src)).To(Succeed())
			out, err := runScript(ctx, setUp[0]+setUp[1]+scripts[heading], ns, "http://"+receiver)
			Expect(err).NotTo(HaveOccurred(), out)
			Expect(out).To(ContainSubstring("the source is being reconciled"))
			Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(src), src)).To(Succeed())
			Expect(src.Annotations).To(HaveKey(appsv1.RequestedAtAnnotation))
			out, err = runScript(ctx, "kubectl delete ksctlsource/fleet secret/fleet-webhook --timeout=1m", ns, "")
			Expect(err).NotTo(HaveOccurred(), out)
		}
	})
})
