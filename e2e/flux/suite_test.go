// Package flux runs our kinds under the real source-controller and kustomize-controller
// of Flux: what they fetch from a Git repository and a registry, apply, wait for and
// prune are KsctlInstalls and KsctlRemoves.
package flux_test

import (
	"io"
	"os"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/witness"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/e2e/tools"
)

// soon is how long anything here may take.
const soon = 5 * time.Minute

const (
	fluxNamespace = "flux-system"
	fluxAccount   = "kustomize-controller"
)

var (
	h   *harness.Harness
	git *gitserver.Server
	// receiver is where our controller receives webhooks.
	receiver string
)

func TestFlux(t *testing.T) {
	suite.Run(t, "Flux")
}

// settings are what an installation of Flux begins with. The account default is whom
// Kustomizations that name none act as, which Flux' own may be.
const settings = `
apiVersion: v1
kind: Namespace
metadata: {name: flux-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: source-controller, namespace: flux-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: kustomize-controller, namespace: flux-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: cluster-reconciler}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects:
- {kind: ServiceAccount, namespace: flux-system, name: source-controller}
- {kind: ServiceAccount, namespace: flux-system, name: kustomize-controller}
- {kind: ServiceAccount, namespace: flux-system, name: default}
`

// lockdown is what keeps tenants apart, of Flux' controllers and of ours.
var lockdown = []string{"--no-cross-namespace-refs=true", "--default-service-account=default"}

// ownController labels objects that the suite's controller leaves to those of a spec.
const ownController = "e2e.ksctl.com/controller"

// heard is told what our controller tells.
var heard = &witness.Witness{}

// aSecret is in a Secret that is installed.
var aSecret = heard.Secret("told-to-nobody-at-all")

// nothingWasTold fails when the secret stands in what was told, also by Flux of our kinds.
func nothingWasTold(ctx SpecContext) {
	for _, p := range processes {
		heard.Hear(witness.Log, p.Log())
	}
	Expect(heard.Process()).To(Succeed())
	Expect(heard.Verdict(ctx)).To(Succeed())
}

var _ = BeforeSuite(func(ctx SpecContext) {
	ctrl.SetLogger(zap.New(zap.UseDevMode(true), zap.WriteTo(io.MultiWriter(GinkgoWriter, heard.Writer(witness.Log)))))
	paths, err := tools.Build(ctx, GinkgoWriter, tools.KustomizeController, tools.SourceController)
	Expect(err).NotTo(HaveOccurred())
	definitions, err := harness.FluxDefinitions(ctx, GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	h, err = harness.Start(ctx, cluster.Options{Audit: true, CRDPaths: definitions})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return h.Stop() })
	watching, err := client.NewWithWatch(h.Plane.Config(), client.Options{Scheme: h.Plane.Client().Scheme()})
	Expect(err).NotTo(HaveOccurred())
	Expect(heard.Watch(ctx, watching)).To(Succeed())
	DeferCleanup(nothingWasTold)
	flags := append(slices.Clone(lockdown), "--watch-label-selector=!"+ownController)
	if os.Getenv(pushes) != "" {
		receiver = freeAddress()
		flags = append(flags, "--webhook-addr="+receiver)
	}
	c, err := h.StartController(flags...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(c.Stop)
	git, err = gitserver.New(GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(git.Close)

	Expect(h.Plane.ApplyYAML(ctx, []byte(settings))).To(Succeed())
	for _, account := range []string{"source-controller", fluxAccount, "default"} {
		Expect(h.Plane.AwaitRight(ctx, cluster.ServiceAccountUser(fluxNamespace, account), authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"})).To(Succeed())
	}
	storage := freeAddress()
	startFlux(ctx, "source-controller", paths[tools.SourceController],
		"--storage-path="+GinkgoT().TempDir(), "--storage-addr="+storage, "--storage-adv-addr="+storage)
	// Each Kustomization that waits has one of the workers.
	startFlux(ctx, fluxAccount, paths[tools.KustomizeController], append(lockdown, "--no-remote-bases=true", "--concurrent=20", "--feature-gates=ExternalArtifact=true")...)
})

// processes of Flux, by the name of their account.
var processes = map[string]*harness.Process{}

func startFlux(ctx SpecContext, account, binary string, flags ...string) {
	GinkgoHelper()
	config, err := h.Plane.ConfigFor(ctx, fluxNamespace, account)
	Expect(err).NotTo(HaveOccurred())
	p, err := h.StartProgram(binary, config, append([]string{"--watch-all-namespaces=true", "--enable-leader-election=false", "--requeue-dependency=1s"}, flags...)...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { _ = p.Stop() }) // it is told to end, and says so with its status
	processes[account] = p
}

var _ = JustAfterEach(func(ctx SpecContext) {
	if !CurrentSpecReport().Failed() {
		return
	}
	for name, p := range processes {
		GinkgoWriter.Println(name, "\n", p.Log())
	}
	installs := &appsv1.KsctlInstallList{}
	Expect(h.Plane.Client().List(ctx, installs)).To(Succeed())
	for i := range installs.Items {
		GinkgoWriter.Println(installs.Items[i].Namespace, installs.Items[i].Name, harness.Ready(&installs.Items[i]))
	}
})

func freeAddress() string {
	GinkgoHelper()
	addr, err := cluster.FreeAddress()
	Expect(err).NotTo(HaveOccurred())
	return addr
}
