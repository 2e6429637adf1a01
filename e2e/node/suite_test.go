// Package node_test installs the chart on a real node: pods that run, an image that
// is pulled, two replicas of which one leads.
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

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/registry"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/node/machine"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/e2e/tools"
	"github.com/ksctl/gitops/internal/release/chart"
	"github.com/ksctl/gitops/internal/release/image"
)

// soon is how long anything here may take: images are pulled, leases run out.
const soon = 4 * time.Minute

// on is set where the suite is wanted: it makes a bridge, and rules of the packet filter.
// Set to try, it skips the suite where no node can be made.
const (
	on  = "KSCTL_E2E_NODE"
	try = "try"
)

var (
	h      *harness.Harness
	images *registry.Server
	// outside is where pods reach the registry.
	outside string
	helm    string
	node    *machine.Node
	// packaged is the chart, before one of an older release, web an image in the registry.
	packaged, before, web string
)

func TestNode(t *testing.T) {
	wanted := os.Getenv(on)
	if wanted == "" {
		t.Skipf("a real node is made only with %s=1 (make node)", on)
	}
	if lacking := machine.Lacking(t.Context()); lacking != "" {
		if wanted == try {
			t.Skipf("no real node can be made here: %s", lacking)
		}
		t.Fatalf("%s is set, and no node can be made here: %s", on, lacking)
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
	web = push(ctx, "web", "github.com/ksctl/gitops/e2e/node/testdata/web")
	repository, digest, _ := strings.Cut(push(ctx, "controller", "github.com/ksctl/gitops/cmd/controller"), "@")
	before = older(repository, digest)
	packaged, err = chart.Package(chart.Options{Dir: "../../config/chart", Out: GinkgoT().TempDir(), Version: "0.1.0", Repository: repository, Digest: digest, Created: time.Unix(0, 0)})
	Expect(err).NotTo(HaveOccurred())

	disconnect, err := machine.Connect(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error { return disconnect(ctx) })
	h, err = harness.Plain(ctx, machine.ClusterOptions(cluster.Options{}))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return h.Stop() })
	node, err = machine.Start(ctx, h, pause)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error { return node.Stop(ctx) })
	outside = reachable(images.Host())
}, NodeTimeout(15*time.Minute))

var _ = JustAfterEach(func() {
	if CurrentSpecReport().Failed() {
		GinkgoWriter.Println(node.Tell())
		tell(node.Logs())
	}
})

// tell prints what pods have logged.
func tell(dir string) {
	logs, _ := filepath.Glob(filepath.Join(dir, "*", "*", "*.log"))
	for _, path := range logs {
		if content, err := os.ReadFile(path); err == nil {
			GinkgoWriter.Printf("%s:\n%s\n", path, content[max(0, len(content)-20<<10):])
		}
	}
}

// push compiles a program, makes an image of it as a release does, and pushes it.
func push(ctx context.Context, program, pkg string) string {
	GinkgoHelper()
	binary := filepath.Join(GinkgoT().TempDir(), program)
	// As the other suites build it, so that most is compiled already.
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", binary, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	content, err := os.ReadFile(binary)
	Expect(err).NotTo(HaveOccurred())
	built, err := image.Build(image.Binary{Platform: v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, Name: program, Content: content}, image.Options{})
	Expect(err).NotTo(HaveOccurred())
	tag, err := name.NewTag(images.Host() + "/" + program + ":e2e")
	Expect(err).NotTo(HaveOccurred())
	Expect(remote.Write(tag, built, remote.WithContext(ctx))).To(Succeed())
	digest, err := built.Digest()
	Expect(err).NotTo(HaveOccurred())
	return tag.Context().Digest(digest.String()).String()
}

// reachable lets pods reach what listens on loopback, and returns where.
func reachable(host string) string {
	GinkgoHelper()
	listener, err := net.Listen("tcp4", net.JoinHostPort(machine.Address.String(), "0"))
	Expect(err).NotTo(HaveOccurred())
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: host})}
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
	cmd := exec.CommandContext(ctx, program, append([]string{"--kubeconfig", h.Plane.Kubeconfig()}, args...)...)
	home := GinkgoT().TempDir()
	cmd.Env = append(os.Environ(), "HOME="+home)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	Expect(cmd.Run()).To(Succeed(), "%s %s: %s%s", filepath.Base(program), strings.Join(args, " "), &out, &said)
	return strings.TrimSpace(out.String())
}
