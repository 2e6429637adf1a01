// Package flux_test runs our kinds with the real source-controller and kustomize-controller of
// Flux, which fetch KsctlInstalls and KsctlRemoves from a Git repository or a registry, apply
// them, wait for them and prune them.
package flux_test

import (
	"os"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/leakscan"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/e2e/tools"
)

// soon bounds every wait in these specs.
const soon = 5 * time.Minute

// kindGroup is the API group in which the controller may serve kinds.
const kindGroup = "shops.example.com"

const (
	fluxNamespace = "flux-system"
	fluxAccount   = "kustomize-controller"
)

var (
	h   *harness.Harness
	git *gitserver.Server
	// receiver is the address of our controller's webhook receiver.
	receiver string
)

func TestFlux(t *testing.T) {
	suite.Run(t, "Flux")
}

// settings are the objects of a Flux installation. Kustomizations without a service account act
// as the account default, which is cluster-admin only in Flux's own namespace.
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

// lockdown are the flags, of Flux's controllers and of ours, that isolate tenants.
var lockdown = []string{"--no-cross-namespace-refs=true", "--default-service-account=default"}

// controllerLabel is the label of objects whose spec starts a controller of its own.
const controllerLabel = "e2e.ksctl.com/controller"

// scanner collects the output of our controllers and of Flux, and searches it for secrets.
var scanner = &leakscan.Scanner{}

// aSecret is the value of a Secret in a stack.
var aSecret = scanner.AddSecret("never-in-any-output")

var _ = BeforeSuite(func(ctx SpecContext) {
	paths, err := tools.Build(ctx, GinkgoWriter, tools.KustomizeController, tools.SourceController)
	Expect(err).NotTo(HaveOccurred())
	definitions, err := harness.FluxCRDPaths(ctx, GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	h = framework.StartScanned(ctx, cluster.Options{Audit: true, CRDPaths: definitions}, scanner)
	Expect(harness.AllowKinds(ctx, h.ControlPlane, kindGroup)).To(Succeed())
	flags := append(slices.Clone(lockdown), "--watch-label-selector=!"+controllerLabel, "--kind-groups="+kindGroup)
	if os.Getenv(pushesVariable) != "" {
		receiver = freeAddress()
		flags = append(flags, "--webhook-addr="+receiver)
	}
	framework.StartController(h, flags...)
	git = framework.GitServer()

	Expect(h.ControlPlane.ApplyYAML(ctx, []byte(settings))).To(Succeed())
	for _, account := range []string{"source-controller", fluxAccount, "default"} {
		Expect(h.ControlPlane.AwaitPermission(ctx, cluster.ServiceAccountUser(fluxNamespace, account),
			authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"})).To(Succeed())
	}
	storage := freeAddress()
	startFlux(ctx, "source-controller", paths[tools.SourceController],
		"--storage-path="+GinkgoT().TempDir(), "--storage-addr="+storage, "--storage-adv-addr="+storage)
	// Each waiting Kustomization occupies a worker.
	startFlux(ctx, fluxAccount, paths[tools.KustomizeController],
		append(lockdown, "--no-remote-bases=true", "--concurrent=20", "--feature-gates=ExternalArtifact=true")...)
})

// processes are those of Flux, by the name of their account, and replicas of our controller.
var processes = map[string]*harness.Process{}

func startFlux(ctx SpecContext, account, binary string, flags ...string) {
	GinkgoHelper()
	config, err := h.ControlPlane.ConfigFor(ctx, fluxNamespace, account)
	Expect(err).NotTo(HaveOccurred())
	p, err := h.StartProgram(binary, config,
		append([]string{"--watch-all-namespaces=true", "--enable-leader-election=false", "--requeue-dependency=1s"},
			flags...)...)
	Expect(err).NotTo(HaveOccurred())
	register(account, p)
}

// register registers a program, so that it is stopped at the end, and its log is printed on failure
// and searched for secrets.
func register(name string, p *harness.Process) {
	DeferCleanup(func() {
		_ = p.Stop() // its exit status reports the signal
		scanner.Record(leakscan.Log, p.Log())
	})
	processes[name] = p
}

var _ = JustAfterEach(func(ctx SpecContext) {
	if !CurrentSpecReport().Failed() {
		return
	}
	for name, p := range processes {
		GinkgoWriter.Println(name, "\n", p.Log())
	}
	installs := &appsv1.KsctlInstallList{}
	Expect(h.ControlPlane.Client().List(ctx, installs)).To(Succeed())
	for i := range installs.Items {
		GinkgoWriter.Println(installs.Items[i].Namespace, installs.Items[i].Name,
			harness.ReadyCondition(&installs.Items[i]))
	}
})

func freeAddress() string {
	GinkgoHelper()
	addr, err := cluster.FreeAddress()
	Expect(err).NotTo(HaveOccurred())
	return addr
}
