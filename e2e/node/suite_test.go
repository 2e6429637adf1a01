// Package node_test installs the chart on a real node, with running pods, pulled images and two
// replicas with leader election.
package node_test

import (
	"bytes"
	"context"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/ksctl/gitops/e2e/cluster/registry"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/node/machine"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/e2e/tools"
	"github.com/ksctl/gitops/internal/release/chart"
)

// waitTimeout bounds each wait, including image pulls and the expiry of leases.
const waitTimeout = 4 * time.Minute

var (
	h      *harness.Harness
	images *registry.Server
	// registryAddress is the address at which pods reach the registry.
	registryAddress string
	helm            string
	node            *machine.Node
	// newChart is the path of the chart, oldChart that of an earlier release. webImage is the
	// reference of an image in the registry.
	newChart, oldChart, webImage string
)

func TestNode(t *testing.T) {
	machine.Require(t)
	suite.Run(t, "Node")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	ctrl.SetLogger(GinkgoLogr)
	paths, err := tools.Build(ctx, GinkgoWriter, tools.Helm)
	Expect(err).NotTo(HaveOccurred())
	helm = paths[tools.Helm]
	images, err = registry.New()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return images.Close() })
	pause := push(ctx, "pause", "github.com/ksctl/gitops/e2e/node/testdata/pause")
	webImage = push(ctx, "web", "github.com/ksctl/gitops/e2e/node/testdata/web")
	repository, digest, _ := strings.Cut(push(ctx, "controller", "github.com/ksctl/gitops/cmd/controller"), "@")
	oldChart = packageOldChart(repository, digest)
	newChart, err = chart.Package(chart.Options{Dir: "../../config/chart", Out: GinkgoT().TempDir(), Version: "0.1.0",
		Repository: repository, Digest: digest, Created: time.Unix(0, 0)})
	Expect(err).NotTo(HaveOccurred())

	disconnect, err := machine.Connect(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error { return disconnect(ctx) })
	h, err = harness.StartControlPlane(ctx, machine.ClusterOptions())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return h.Stop() })
	node, err = machine.Start(ctx, h, machine.Options{Pause: pause})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error { return node.Stop(ctx) })
	registryAddress = proxyToLoopback(images.Host())
}, NodeTimeout(30*time.Minute))

var _ = JustAfterEach(func() {
	if CurrentSpecReport().Failed() {
		GinkgoWriter.Println(node.LogTails())
		printPodLogs(node.PodLogs())
	}
})

// printPodLogs prints the end of the pods' logs.
func printPodLogs(dir string) {
	logs, _ := filepath.Glob(filepath.Join(dir, "*", "*", "*.log"))
	for _, path := range logs {
		if content, err := os.ReadFile(path); err == nil {
			GinkgoWriter.Printf("%s:\n%s\n", path, content[max(0, len(content)-20<<10):])
		}
	}
}

// push pushes an image of a program, and returns its reference.
func push(ctx context.Context, program, pkg string) string {
	GinkgoHelper()
	ref, err := machine.PushProgram(ctx, images.Host()+"/"+program+":e2e", pkg)
	Expect(err).NotTo(HaveOccurred())
	return ref
}

// proxyToLoopback starts a proxy for a server on loopback and returns its address, which pods can
// reach.
func proxyToLoopback(host string) string {
	GinkgoHelper()
	address, stop, err := machine.Listen(httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: host}))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(stop)
	return address
}

// command runs helm or kubectl as the administrator.
func command(ctx context.Context, program string, args ...string) string {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, program, append([]string{"--kubeconfig", h.ControlPlane.Kubeconfig()}, args...)...)
	home := GinkgoT().TempDir()
	cmd.Env = append(os.Environ(), "HOME="+home)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	Expect(cmd.Run()).To(Succeed(), "%s %s: %s%s", filepath.Base(program), strings.Join(args, " "), &out, &stderr)
	return strings.TrimSpace(out.String())
}
