package faults_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/faults/proxy"
	"github.com/ksctl/gitops/e2e/harness"
)

// notLease matches requests other than for leases and events, which storms leave alone.
func notLease(q cluster.Request) bool { return q.Resource != "leases" && q.Resource != "events" }

// minFaults is the minimum number of faults per storm.
const minFaults = 20

// notWatch matches all requests except watches.
func notWatch(q cluster.Request) bool { return q.Verb != "watch" }

var _ = Describe("A storm of faults between controller and API server", func() {
	DescribeTable("delays the controller, and leaves no object missing or orphaned,",
		func(ctx SpecContext, rules ...proxy.Rule) {
			f := newInstallSet(ctx, map[string]int{"i": 40})
			p := newProxy()
			// The controller starts without faults. The storm is for the installs.
			Expect(startController(ctx, f, p).WaitHealthy(ctx)).To(Succeed())
			for i := range rules {
				rules[i].When = append(rules[i].When, notLease)
			}
			p.Set(rules...)
			// Repeat until the number of faults suffices: chance decides which requests are
			// affected.
			for revision := 1; revision <= 2 || p.FaultCount() < minFaults; revision++ {
				Expect(revision).To(BeNumerically("<=", 20), "too few requests are affected: %d faults", p.FaultCount())
				f.install(ctx, "i", revision)
				f.awaitConverged(ctx)
				f.expectNoOrphans(ctx, fmt.Sprint("at revision ", revision))
			}
			f.removeAll(ctx)
			AddReportEntry("faults", p.FaultCount(), ReportEntryVisibilityAlways)
		},
		Entry("with 429 and Retry-After",
			proxy.Rule{When: []cluster.RequestFilter{notWatch}, Chance: 0.2, Do: proxy.TooManyRequests(time.Second)}),
		Entry("with 409 for writes",
			proxy.Rule{When: []cluster.RequestFilter{cluster.Write}, Chance: 0.3, Do: proxy.Conflict}),
		Entry("with 500", proxy.Rule{When: []cluster.RequestFilter{notWatch}, Chance: 0.2, Do: proxy.InternalError}),
		Entry("with 502 without a Status",
			proxy.Rule{When: []cluster.RequestFilter{notWatch}, Chance: 0.2, Do: proxy.BadGateway}),
		Entry("with lost requests", proxy.Rule{When: []cluster.RequestFilter{notWatch}, Chance: 0.2, Do: proxy.Drop}),
		Entry("with lost responses",
			proxy.Rule{When: []cluster.RequestFilter{cluster.Write}, Chance: 0.3, Do: proxy.LoseResponse}),
		Entry("with all these faults",
			proxy.Rule{When: []cluster.RequestFilter{notWatch}, Chance: 0.05, Do: proxy.TooManyRequests(0)},
			proxy.Rule{When: []cluster.RequestFilter{cluster.Write}, Chance: 0.1, Do: proxy.Conflict},
			proxy.Rule{When: []cluster.RequestFilter{notWatch}, Chance: 0.1, Do: proxy.InternalError},
			proxy.Rule{When: []cluster.RequestFilter{notWatch}, Chance: 0.1, Do: proxy.Drop},
			proxy.Rule{When: []cluster.RequestFilter{cluster.Write}, Chance: 0.1, Do: proxy.LoseResponse},
			proxy.Rule{When: []cluster.RequestFilter{notWatch}, Chance: 0.3, Do: proxy.Delay(20 * time.Millisecond)}),
		Entry("with watches that end and expire",
			proxy.Rule{When: []cluster.RequestFilter{cluster.Watch}, Chance: 0.5, Do: proxy.Expired},
			proxy.Rule{When: []cluster.RequestFilter{cluster.Watch}, Chance: 0.3, Do: proxy.Drop},
			proxy.Rule{When: []cluster.RequestFilter{cluster.Verb("list")}, Chance: 0.2, Do: proxy.InternalError},
			proxy.Rule{When: []cluster.RequestFilter{cluster.Write}, Chance: 0.1, Do: proxy.InternalError}),
	)

	It("that cuts all connections and watches repeatedly does not stop the controller", func(ctx SpecContext) {
		f := newInstallSet(ctx, map[string]int{"i": 40})
		p := newProxy()
		Expect(startController(ctx, f, p).WaitHealthy(ctx)).To(Succeed())
		var cut atomic.Int64
		stop := every(200*time.Millisecond, func(n int) {
			if n%5 == 0 {
				p.Disconnect()
			} else {
				cut.Add(int64(p.Cut(cluster.Watch)))
			}
		})
		// Repeat until enough watches were cut: a fast machine is soon done.
		for revision := 1; revision <= 3 || cut.Load() <= 50; revision++ {
			Expect(revision).To(BeNumerically("<=", 50), "%d watches cut", cut.Load())
			f.install(ctx, "i", revision)
			f.awaitConverged(ctx)
		}
		f.correctsDrift(ctx, "i")
		f.removeAll(ctx)
		stop()
		AddReportEntry("watches cut", cut.Load(), ReportEntryVisibilityAlways)
	})

	It("that hangs a request delays no other install, and the request times out", func(ctx SpecContext) {
		f := newInstallSet(ctx, map[string]int{"i": 20, "other": 20})
		p := newProxy()
		Expect(startController(ctx, f, p).WaitHealthy(ctx)).To(Succeed())
		givenUp := make(chan struct{})
		swallow := func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			<-r.Context().Done()
			close(givenUp)
			proxy.Hang(w, r, next)
		}
		p.Set(proxy.Rule{When: []cluster.RequestFilter{cluster.Write, cluster.Resource("serviceaccounts"),
			cluster.InNamespace(f.ns)}, Times: 1, Do: swallow})
		f.install(ctx, "i", 1)
		Eventually(ctx, p.FaultCount).WithTimeout(soon).Should(Equal(1), "a request hangs")
		f.install(ctx, "other", 1)
		Eventually(ctx, func() (string, error) {
			in := harness.NewInstall(f.ns, "other")
			err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(in), in)
			return string(harness.ReadyCondition(in).Status), err
		}, soon, "50ms").Should(Equal("True"))
		Expect(givenUp).NotTo(BeClosed(), "the other install is ready while the request hangs")
		Eventually(ctx, givenUp, soon).Should(BeClosed(), "the request times out")
		f.awaitConverged(ctx)
		f.removeAll(ctx)
	})
})
