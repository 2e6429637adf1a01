// Package node_test installs the chart on a real node, with running pods, pulled images and two
// replicas with leader election.
package node_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/ksctl/gitops/e2e/cluster/registry"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/node/machine"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/e2e/tools"
	"github.com/ksctl/gitops/internal/release/chart"
	"github.com/ksctl/gitops/internal/release/image"
)

// waitTimeout bounds each wait, including image pulls and the expiry of leases.
const waitTimeout = 4 * time.Minute

// nodeVariable is the environment variable that enables the suite, which creates a bridge and
// packet filter rules. With the value "try" the suite is skipped on a machine that can't be a node.
const (
	nodeVariable = "KSCTL_E2E_NODE"
	tryValue     = "try"
)

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
	wanted := os.Getenv(nodeVariable)
	if wanted == "" {
		t.Skipf("this suite needs %s=1 (make node)", nodeVariable)
	}
	if lacking := machine.MissingRequirement(t.Context()); lacking != "" {
		if wanted == tryValue {
			t.Skipf("this machine can't be a node: %s", lacking)
		}
		t.Fatalf("%s is set, but this machine can't be a node: %s", nodeVariable, lacking)
	}
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
	node, err = machine.Start(ctx, h, pause)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error { return node.Stop(ctx) })
	registryAddress = proxyToLoopback(images.Host())
}, NodeTimeout(15*time.Minute))

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

// push compiles a program, builds an image as a release does, pushes it and returns its reference.
func push(ctx context.Context, program, pkg string) string {
	GinkgoHelper()
	binary := filepath.Join(GinkgoT().TempDir(), program)
	// The same flags as in the other suites, so that the build cache is used.
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", binary, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	content, err := os.ReadFile(binary)
	Expect(err).NotTo(HaveOccurred())
	built, err := image.Build(image.Content{Platform: v1.Platform{OS: "linux", Architecture: runtime.GOARCH},
		Programs: []image.Program{{Name: program, Content: content}}}, image.Options{})
	Expect(err).NotTo(HaveOccurred())
	tag, err := name.NewTag(images.Host() + "/" + program + ":e2e")
	Expect(err).NotTo(HaveOccurred())
	Expect(remote.Write(tag, built, remote.WithContext(ctx))).To(Succeed())
	digest, err := built.Digest()
	Expect(err).NotTo(HaveOccurred())
	return tag.Context().Digest(digest.String()).String()
}

// proxyToLoopback starts a proxy for a server on loopback and returns its address, which pods can
// reach.
func proxyToLoopback(host string) string {
	GinkgoHelper()
	listener, err := net.Listen("tcp4", net.JoinHostPort(machine.Address.String(), "0"))
	Expect(err).NotTo(HaveOccurred())
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second,
		Handler: httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: host})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	DeferCleanup(func() {
		_ = server.Close()
		<-served
	})
	return listener.Addr().String()
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
