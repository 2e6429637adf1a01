// Package argocd runs our kinds under the real repo server and application controller
// of Argo CD: what they sync, judge, prune and wait for are KsctlSources, KsctlInstalls
// and KsctlRemoves of a real Git repository.
package argocd_test

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/witness"
	"github.com/ksctl/gitops/e2e/tools"
)

// soon is how long anything here may take.
const soon = 5 * time.Minute

const argoAccount = "argocd-application-controller"

// argoNamespace is where the Applications of a spec are.
var argoNamespace = "argocd"

var (
	h     *harness.Harness
	git   *gitserver.Server
	redis *miniredis.Miniredis
)

func TestArgoCD(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Argo CD")
}

// settings are what an installation of Argo CD begins with.
const settings = `
apiVersion: v1
kind: Namespace
metadata: {name: argocd}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: argocd-application-controller, namespace: argocd}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: argocd-application-controller}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: argocd-application-controller, namespace: argocd}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: argocd-cm, namespace: argocd, labels: {app.kubernetes.io/part-of: argocd}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: argocd-rbac-cm, namespace: argocd, labels: {app.kubernetes.io/part-of: argocd}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: argocd-tls-certs-cm, namespace: argocd, labels: {app.kubernetes.io/part-of: argocd}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: argocd-ssh-known-hosts-cm, namespace: argocd, labels: {app.kubernetes.io/part-of: argocd}}
---
apiVersion: v1
kind: Secret
metadata: {name: argocd-secret, namespace: argocd, labels: {app.kubernetes.io/part-of: argocd}}
stringData: {server.secretkey: e2e}
---
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: default, namespace: argocd}
spec:
  sourceRepos: ["*"]
  destinations: [{server: "*", namespace: "*"}]
  clusterResourceWhitelist: [{group: "*", kind: "*"}]
`

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
	paths, err := tools.Build(ctx, GinkgoWriter, tools.ArgoCD)
	Expect(err).NotTo(HaveOccurred())
	module, err := tools.ModuleDir(ctx, tools.ArgoCD)
	Expect(err).NotTo(HaveOccurred())
	crds, err := filepath.Glob(filepath.Join(module, "manifests", "crds", "*-crd.yaml"))
	Expect(err).NotTo(HaveOccurred())
	Expect(crds).NotTo(BeEmpty())
	h, err = harness.Start(ctx, cluster.Options{Audit: true, CRDPaths: crds})
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

	Expect(h.Plane.ApplyYAML(ctx, []byte(settings))).To(Succeed())
	kubectl(ctx, "apply", "--server-side", "--field-manager", "ksctl-gitops", "--namespace", argoNamespace, "-k", "../../config/argocd")
	kubectl(ctx, "apply", "--server-side", "--field-manager", "fleet", "--namespace", argoNamespace, "-f", "../../examples/argocd/argocd-cm.yaml")
	startArgoCD(ctx, paths[tools.ArgoCD], module)
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

// startController starts an application controller for the Applications of a namespace,
// with the settings there.
var startController func(ctx SpecContext, namespace, repo string)

// repoServer is the address of the repo server that all use.
var repoServer string

// startArgoCD starts the two programs that sync, with a redis in this process.
func startArgoCD(ctx SpecContext, binary, module string) {
	GinkgoHelper()
	redis = miniredis.NewMiniRedis()
	Expect(redis.StartAddr("127.0.0.1:0")).To(Succeed())
	DeferCleanup(redis.Close)
	dir := GinkgoT().TempDir()
	for _, folder := range []string{"bin", "tls", "ssh", "gpg", "gnupg", "plugins"} {
		Expect(os.Mkdir(filepath.Join(dir, folder), 0o755)).To(Succeed())
	}
	// It comes with the module, where nothing can be run.
	wrapper, err := os.ReadFile(filepath.Join(module, "hack", "git-verify-wrapper.sh"))
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(filepath.Join(dir, "bin", "git-verify-wrapper.sh"), wrapper, 0o755)).To(Succeed())
	env := []string{
		"PATH=" + filepath.Join(dir, "bin") + string(os.PathListSeparator) + os.Getenv("PATH"),
		"HOSTNAME=" + argoAccount + "-0",
		"ARGOCD_FAKE_IN_CLUSTER=true",
		"ARGOCD_GPG_ENABLED=false",
		"ARGOCD_TLS_DATA_PATH=" + filepath.Join(dir, "tls"),
		"ARGOCD_SSH_DATA_PATH=" + filepath.Join(dir, "ssh"),
		"ARGOCD_GPG_DATA_PATH=" + filepath.Join(dir, "gpg"),
		"ARGOCD_GNUPGHOME=" + filepath.Join(dir, "gnupg"),
		"ARGOCD_PLUGINSOCKFILEPATH=" + filepath.Join(dir, "plugins"),
		"ARGOCD_ASK_PASS_SOCK=" + filepath.Join(dir, "ask.sock"),
	}
	config, err := h.Plane.ConfigFor(ctx, argoNamespace, argoAccount)
	Expect(err).NotTo(HaveOccurred())
	start := func(name string, args ...string) {
		p, err := h.RunProgram(binary, config, slices.Concat(env, []string{"ARGOCD_BINARY_NAME=" + name}), args...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { _ = p.Stop() }) // it is told to end, and may say so with its status
		programs[name] = p
	}
	startController = func(ctx SpecContext, namespace, repo string) {
		GinkgoHelper()
		config, err := h.Plane.ConfigFor(ctx, namespace, argoAccount)
		Expect(err).NotTo(HaveOccurred())
		p, err := h.RunProgram(binary, config, slices.Concat(env, []string{"ARGOCD_BINARY_NAME=argocd-application-controller"}),
			"--redis", redis.Addr(), "--redis-compress", "none", "--loglevel", "warn", "--namespace", namespace, "--metrics-port", portOf(freeAddress()),
			"--repo-server", repo, "--repo-server-plaintext", "--app-resync", "3", "--app-resync-jitter", "0", "--self-heal-timeout-seconds", "1", "--persist-resource-health")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { _ = p.Stop() }) // it is told to end, and may say so with its status
		programs["argocd-application-controller of "+namespace] = p
	}
	address, metrics := freeAddress(), freeAddress()
	repoServer = address
	host, port, err := net.SplitHostPort(address)
	Expect(err).NotTo(HaveOccurred())
	shared := []string{"--redis", redis.Addr(), "--redis-compress", "none", "--loglevel", "warn"}
	start("argocd-repo-server", slices.Concat(shared, []string{"--address", host, "--port", port, "--metrics-address", host, "--metrics-port", portOf(metrics),
		"--disable-tls", "--client-ca-path=", "--revision-cache-expiration", "1s"})...)
	startController(ctx, argoNamespace, address)
}

func freeAddress() string {
	GinkgoHelper()
	addr, err := cluster.FreeAddress()
	Expect(err).NotTo(HaveOccurred())
	return addr
}

func portOf(address string) string {
	GinkgoHelper()
	_, port, err := net.SplitHostPort(address)
	Expect(err).NotTo(HaveOccurred())
	return port
}
