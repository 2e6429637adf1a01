// Package framework starts what Ginkgo suites share: a harness, further clusters, the controller
// and a Git server. Its functions fail the suite or the spec instead of returning an error, and
// stop what they started at its end.
package framework

import (
	"context"
	"io"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/leakscan"
	"github.com/ksctl/gitops/e2e/suite"
)

// Start starts a harness. Ginkgo prints the logs of controllers in this process.
func Start(ctx context.Context, o cluster.Options) *harness.Harness {
	GinkgoHelper()
	return start(ctx, o, GinkgoLogr)
}

// StartScanned is [Start] and [Scan] for a suite whose controllers run in this process: the scanner
// also records their logs and metrics.
func StartScanned(ctx context.Context, o cluster.Options, scanner *leakscan.Scanner) *harness.Harness {
	GinkgoHelper()
	h := start(ctx, o, zap.New(zap.UseDevMode(true), zap.WriteTo(io.MultiWriter(GinkgoWriter, scanner))))
	Scan(ctx, h, scanner)
	DeferCleanup(scanner.RecordProcessMetrics)
	return h
}

func start(ctx context.Context, o cluster.Options, log logr.Logger) *harness.Harness {
	GinkgoHelper()
	ctrl.SetLogger(log)
	h, err := harness.Start(ctx, o)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(h.Stop)
	return h
}

// Scan lets a scanner record the events and objects of the control plane. When the suite has
// stopped what it started later, it fails if an output of a controller contains a secret.
func Scan(ctx context.Context, h *harness.Harness, scanner *leakscan.Scanner) {
	GinkgoHelper()
	Expect(scanner.Watch(ctx, h.ControlPlane.Client())).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		// The specs that a focused run selects may neither have secrets nor cause output.
		Expect(scanner.Check(ctx, !suite.Filtered())).To(Succeed())
	})
}

// StartCluster starts a control plane without our CRDs.
func StartCluster(ctx context.Context, o cluster.Options) *cluster.Cluster {
	GinkgoHelper()
	c, err := cluster.Start(ctx, o)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(c.Stop)
	return c
}

// Controller is a controller in this process that specs may stop and start.
type Controller struct {
	*harness.Controller

	harness *harness.Harness
	flags   []string
}

// StartController starts a controller with additional flags, see [harness.Harness.StartController].
func StartController(h *harness.Harness, flags ...string) *Controller {
	GinkgoHelper()
	c := &Controller{harness: h, flags: flags}
	c.Start()
	DeferCleanup(func() error { return c.Stop() })
	return c
}

// Start starts the controller again after Stop, with an empty disk.
func (c *Controller) Start() {
	GinkgoHelper()
	var err error
	c.Controller, err = c.harness.StartController(c.flags...)
	Expect(err).NotTo(HaveOccurred())
}

// GitServer starts a Git server.
func GitServer(options ...gitserver.Option) *gitserver.Server {
	GinkgoHelper()
	s, err := gitserver.New(GinkgoT().TempDir(), options...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(s.Close)
	return s
}

// Namespace creates a namespace with an account for installs, see [harness.Harness.Namespace].
func Namespace(ctx context.Context, h *harness.Harness, prefix string) string {
	GinkgoHelper()
	ns, err := h.Namespace(ctx, prefix)
	Expect(err).NotTo(HaveOccurred())
	return ns
}
