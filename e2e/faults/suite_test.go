// Package faults runs the controller as a process of its own and does to it
// what happens to processes: requests that fail, watches that break, API
// servers and disks that go away, and kills at any moment.
package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/faults/proxy"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/witness"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/internal/manager"
)

// soon is how long anything in these specs may take; it takes far less.
const soon = 5 * time.Minute

const (
	// seedVariable repeats a run: its value is the seed that the run printed.
	seedVariable = "KSCTL_E2E_SEED"
	// killsVariable is how often the controller is killed.
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
	ctrl.SetLogger(GinkgoLogr)
	seed = rand.Uint64()
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		Expect(err).NotTo(HaveOccurred(), seedVariable)
	}
	AddReportEntry("repeat with", fmt.Sprintf("%s=%d", seedVariable, seed), ReportEntryVisibilityAlways)
	var err error
	h, err = harness.Start(ctx, cluster.Options{Nodes: -1, NoScheduler: true})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return h.Stop() })
	_, err = h.Build(ctx)
	Expect(err).NotTo(HaveOccurred())
	scheme, err := manager.NewScheme()
	Expect(err).NotTo(HaveOccurred())
	watching, err := client.NewWithWatch(h.Plane.Config(), client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	Expect(heard.Watch(ctx, watching)).To(Succeed())
	DeferCleanup(nothingWasTold)
})

// heard is told what the controllers of the suite tell.
var heard = &witness.Witness{}

// aSecret is in each Secret of the suite.
var aSecret = heard.Secret("told-to-nobody-at-all")

// nothingWasTold fails when the secret stands in what was told.
func nothingWasTold(ctx SpecContext) {
	Expect(heard.Verdict(ctx)).To(Succeed())
}

// trouble is a proxy between the controllers of a spec and the API server.
func trouble() *proxy.Proxy {
	GinkgoHelper()
	p, err := proxy.New(h.Plane.Config(), seed)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(p.Close)
	return p
}

// start runs a life of the controller of a fleet, through a proxy if there is one.
func start(ctx context.Context, f *fleet, through *proxy.Proxy, flags ...string) *harness.Process {
	GinkgoHelper()
	config := h.Config
	if through != nil {
		config = through.Config(config)
	}
	p, err := h.StartProcess(ctx, config, append([]string{"--log-level=debug", "--owner-id=" + f.ns, "--watch-label-selector=fleet=" + f.ns}, flags...)...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		if CurrentSpecReport().Failed() {
			GinkgoWriter.Println("the log of the controller ends with:", tail(p.Log()))
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if told, err := p.Metrics(ctx); err == nil { // it may have ended
			heard.Hear(witness.Metrics, told)
		}
		p.Kill()
		heard.Hear(witness.Log, p.Log())
	})
	return p
}

func tail(log string) string { return log[max(0, len(log)-20_000):] }
