// Package faults_test runs the controller as a process and injects faults: failing requests,
// broken watches, outages of API servers and disks, and kills at any moment.
package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/faults/proxy"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/leakscan"
	"github.com/ksctl/gitops/e2e/programs"
	"github.com/ksctl/gitops/e2e/suite"
)

// soon bounds every wait in these specs. An unloaded machine needs far less.
const soon = 5 * time.Minute

const (
	// seedVariable repeats a run: its value is the seed that the run printed.
	seedVariable = "KSCTL_E2E_SEED"
	// killsVariable is the number of kills.
	killsVariable = "KSCTL_E2E_KILLS"
)

var (
	h    *harness.Harness
	seed uint64
)

func TestFaults(t *testing.T) {
	suite.Run(t, "Faults")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	seed = rand.Uint64()
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		Expect(err).NotTo(HaveOccurred(), seedVariable)
	}
	AddReportEntry("repeat with", fmt.Sprintf("%s=%d", seedVariable, seed), ReportEntryVisibilityAlways)
	h = framework.Start(ctx, cluster.Options{Nodes: -1, NoScheduler: true})
	_, err := h.Build(ctx, programs.Controller)
	Expect(err).NotTo(HaveOccurred())
	framework.Scan(ctx, h, scanner)
})

// scanner collects the output of the suite's controllers and searches it for secrets.
var scanner = &leakscan.Scanner{}

// aSecret is the value in each Secret of the suite.
var aSecret = scanner.AddSecret("never-in-any-output")

// newProxy starts a proxy between the controllers of a spec and the API server.
func newProxy() *proxy.Proxy {
	GinkgoHelper()
	p, err := proxy.New(h.ControlPlane.Config(), seed)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(p.Close)
	return p
}

// startController starts a controller process for a set of installs, through a proxy unless that
// is nil.
func startController(ctx context.Context, f *installSet, through *proxy.Proxy, flags ...string) *harness.Process {
	GinkgoHelper()
	config := h.Config
	if through != nil {
		config = through.Config(config)
	}
	p, err := h.StartProcess(ctx, config,
		append([]string{"--log-level=debug", "--owner-id=" + f.ns, "--watch-label-selector=fleet=" + f.ns},
			slices.Concat(f.flags, flags)...)...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		if CurrentSpecReport().Failed() {
			GinkgoWriter.Println("the controller's log ends with:", tail(p.Log()))
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if metrics, err := p.Metrics(ctx); err == nil { // the process may have ended
			scanner.Record(leakscan.Metrics, metrics)
		}
		p.Kill()
		scanner.Record(leakscan.Log, p.Log())
	})
	return p
}

func tail(log string) string { return log[max(0, len(log)-20_000):] }
