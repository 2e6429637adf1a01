// Package argocd runs our kinds under the real repo server and application controller
// of Argo CD: what they sync, judge, prune and wait for are KsctlSources, KsctlInstalls
// and KsctlRemoves of a real Git repository.
package argocd_test

import (
	"io"
	"os/exec"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/argo"
	"github.com/ksctl/gitops/e2e/harness/witness"
	"github.com/ksctl/gitops/e2e/suite"
)

// soon is how long anything here may take.
const soon = 5 * time.Minute

// argoNamespace is where the Applications of a spec are.
var argoNamespace = argo.Namespace

var (
	h   *harness.Harness
	git *gitserver.Server
	// argoCD starts its programs, and repoServer is the address of the one that all use.
	argoCD     *argo.Programs
	repoServer string
)

func TestArgoCD(t *testing.T) {
	suite.Run(t, "Argo CD")
}

// ownController labels objects that the suite's controller leaves to those of a spec.
const ownController = "e2e.ksctl.com/controller"

// heard is told what our controller tells.
var heard = &witness.Witness{}

// aSecret is in a Secret that is installed.
var aSecret = heard.Secret("told-to-nobody-at-all")

// nothingWasTold fails when the secret stands in what was told, also by Argo CD of our kinds.
func nothingWasTold(ctx SpecContext) {
	for _, p := range programs {
		heard.Hear(witness.Log, p.Log())
	}
	Expect(heard.Process()).To(Succeed())
	Expect(heard.Verdict(ctx)).To(Succeed())
}

var _ = BeforeSuite(func(ctx SpecContext) {
	ctrl.SetLogger(zap.New(zap.UseDevMode(true), zap.WriteTo(io.MultiWriter(GinkgoWriter, heard.Writer(witness.Log)))))
	definitions, err := argo.Definitions(ctx)
	Expect(err).NotTo(HaveOccurred())
	h, err = harness.Start(ctx, cluster.Options{Audit: true, CRDPaths: definitions})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return h.Stop() })
	watching, err := client.NewWithWatch(h.Plane.Config(), client.Options{Scheme: h.Plane.Client().Scheme()})
	Expect(err).NotTo(HaveOccurred())
	Expect(heard.Watch(ctx, watching)).To(Succeed())
	DeferCleanup(nothingWasTold)
	c, err := h.StartController("--no-cross-namespace-refs=true", "--watch-label-selector=!"+ownController)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(c.Stop)
	git, err = gitserver.New(GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(git.Close)

	Expect(argo.Prepare(ctx, h.Plane, argoNamespace, nil)).To(Succeed())
	kubectl(ctx, "apply", "--server-side", "--field-manager", "ksctl-gitops", "--namespace", argoNamespace, "-k", "../../config/argocd")
	kubectl(ctx, "apply", "--server-side", "--field-manager", "fleet", "--namespace", argoNamespace, "-f", "../../examples/argocd/argocd-cm.yaml")
	startArgoCD(ctx)
})

// kubectl runs it as the administrator.
func kubectl(ctx SpecContext, args ...string) {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, h.Plane.Kubectl(), append([]string{"--kubeconfig", h.Plane.Kubeconfig()}, args...)...).CombinedOutput()
	GinkgoWriter.Println(string(out))
	Expect(err).NotTo(HaveOccurred(), string(out))
}

// programs of Argo CD, by name.
var programs = map[string]*harness.Process{}

var _ = JustAfterEach(func(ctx SpecContext) {
	if !CurrentSpecReport().Failed() {
		return
	}
	kubectl(ctx, "get", "--all-namespaces", "-o", "yaml", "ksctlsources,ksctlinstalls,ksctlremoves")
	for name, p := range programs {
		GinkgoWriter.Println(name, "\n", p.Log())
	}
})

// startArgoCD starts the two programs that sync.
func startArgoCD(ctx SpecContext) {
	GinkgoHelper()
	var err error
	argoCD, err = argo.New(ctx, h, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(argoCD.Close)
	p, address, err := argoCD.StartRepoServer(ctx, argoNamespace, "--revision-cache-expiration", "1s")
	Expect(err).NotTo(HaveOccurred())
	keep("argocd-repo-server", p)
	repoServer = address
	startController(ctx, argoNamespace)
}

// startController starts an application controller for the Applications of a namespace,
// with the settings there.
func startController(ctx SpecContext, namespace string) {
	GinkgoHelper()
	p, err := argoCD.StartController(ctx, namespace, repoServer, "--app-resync", "3", "--app-resync-jitter", "0",
		"--self-heal-timeout-seconds", "1", "--persist-resource-health")
	Expect(err).NotTo(HaveOccurred())
	keep("argocd-application-controller of "+namespace, p)
}

// keep has a program stopped in the end, and its log at hand until then.
func keep(name string, p *harness.Process) {
	DeferCleanup(func() { _ = p.Stop() }) // it is told to end, and may say so with its status
	programs[name] = p
}
