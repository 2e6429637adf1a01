// Package argocd_test runs our kinds with the real repo server and application controller of
// Argo CD, which sync KsctlSources, KsctlInstalls and KsctlRemoves from a real Git repository,
// compute their health, wait for them and prune them.
package argocd_test

import (
	"os/exec"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/argo"
	"github.com/ksctl/gitops/e2e/harness/leakscan"
	"github.com/ksctl/gitops/e2e/suite"
)

// soon bounds every wait in these specs.
const soon = 5 * time.Minute

// kindGroup is the API group in which the controller may serve kinds.
const kindGroup = "shops.example.com"

// argoNamespace is the namespace of the Applications of a spec.
var argoNamespace = argo.Namespace

var (
	h   *harness.Harness
	git *gitserver.Server
	// argoCD starts Argo CD's programs. repoServer is the address of the repo server.
	argoCD     *argo.Runner
	repoServer string
)

func TestArgoCD(t *testing.T) {
	suite.Run(t, "Argo CD")
}

// controllerLabel is the label of objects whose spec starts a controller of its own.
const controllerLabel = "e2e.ksctl.com/controller"

// scanner collects the output of our controllers and of Argo CD, and searches it for secrets.
var scanner = &leakscan.Scanner{}

// aSecret is the value of a Secret in a stack.
var aSecret = scanner.AddSecret("never-in-any-output")

var _ = BeforeSuite(func(ctx SpecContext) {
	definitions, err := argo.CRDPaths(ctx)
	Expect(err).NotTo(HaveOccurred())
	h = framework.StartScanned(ctx, cluster.Options{Audit: true, CRDPaths: definitions}, scanner)
	Expect(harness.AllowKinds(ctx, h.ControlPlane, kindGroup)).To(Succeed())
	framework.StartController(h, "--no-cross-namespace-refs=true", "--watch-label-selector=!"+controllerLabel,
		"--kind-groups="+kindGroup)
	git = framework.GitServer()

	Expect(argo.PrepareNamespace(ctx, h.ControlPlane, argoNamespace, nil)).To(Succeed())
	kubectl(ctx, "apply", "--server-side", "--field-manager", "ksctl-gitops", "--namespace", argoNamespace, "-k",
		"../../config/argocd")
	kubectl(ctx, "apply", "--server-side", "--field-manager", "fleet", "--namespace", argoNamespace, "-f",
		"../../examples/argocd/argocd-cm.yaml")
	startArgoCD(ctx)
})

// kubectl runs kubectl as the administrator.
func kubectl(ctx SpecContext, args ...string) {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, h.ControlPlane.Kubectl(),
		append([]string{"--kubeconfig", h.ControlPlane.Kubeconfig()}, args...)...).CombinedOutput()
	GinkgoWriter.Println(string(out))
	Expect(err).NotTo(HaveOccurred(), string(out))
}

// programs are those of Argo CD, by name, and replicas of our controller.
var programs = map[string]*harness.Process{}

var _ = JustAfterEach(func(ctx SpecContext) {
	if !CurrentSpecReport().Failed() {
		return
	}
	kubectl(ctx, "get", "--all-namespaces", "-o", "yaml", "ksctlsources,ksctlinstalls,ksctlremoves,ksctlkinds")
	for name, p := range programs {
		GinkgoWriter.Println(name, "\n", p.Log())
	}
})

// startArgoCD starts the repo server and an application controller.
func startArgoCD(ctx SpecContext) {
	GinkgoHelper()
	var err error
	argoCD, err = argo.New(ctx, h, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(argoCD.Close)
	p, address, err := argoCD.StartRepoServer(ctx, argoNamespace, "--revision-cache-expiration", "1s")
	Expect(err).NotTo(HaveOccurred())
	register("argocd-repo-server", p)
	repoServer = address
	startApplicationController(ctx, argoNamespace)
}

// startApplicationController starts an application controller for the Applications of a namespace,
// with the settings in that namespace.
func startApplicationController(ctx SpecContext, namespace string) {
	GinkgoHelper()
	p, err := argoCD.StartController(ctx, namespace, repoServer, "--app-resync", "3", "--app-resync-jitter", "0",
		"--self-heal-timeout-seconds", "1", "--persist-resource-health")
	Expect(err).NotTo(HaveOccurred())
	register("argocd-application-controller of "+namespace, p)
}

// register registers a program, so that it is stopped at the end, and its log is printed on failure
// and searched for secrets.
func register(name string, p *harness.Process) {
	DeferCleanup(func() {
		_ = p.Stop() // its exit status may report the signal
		scanner.Record(leakscan.Log, p.Log())
	})
	programs[name] = p
}
