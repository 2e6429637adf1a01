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

// notLease leaves leases and events alone: they are not what a storm is about.
func notLease(q cluster.Request) bool { return q.Resource != "leases" && q.Resource != "events" }

// stormy is the number of faults that make a storm.
const stormy = 20

// short requests are all but watches.
func short(q cluster.Request) bool { return q.Verb != "watch" }

var _ = Describe("A storm between controller and API server", func() {
	DescribeTable("delays it, and nothing is lost or left behind",
		func(ctx SpecContext, rules ...proxy.Rule) {
			f := newFleet(ctx, map[string]int{"i": 40})
			p := trouble()
			// A start needs a quiet moment; what is asked for meets the storm.
			Expect(start(ctx, f, p).Healthy(ctx)).To(Succeed())
			for i := range rules {
				rules[i].When = append(rules[i].When, notLease)
			}
			p.Set(rules...)
			// Until the storm was one: chance decides what it hits.
			for revision := 1; revision <= 2 || p.Faults() < stormy; revision++ {
				Expect(revision).To(BeNumerically("<=", 20), "nothing is hit: %d faults", p.Faults())
				f.install(ctx, "i", revision)
				f.stands(ctx)
				f.knowsAll(ctx, fmt.Sprint("at revision ", revision))
			}
			f.clears(ctx)
			AddReportEntry("faults", p.Faults(), ReportEntryVisibilityAlways)
		},
		Entry("of 429, with Retry-After", proxy.Rule{When: []cluster.Condition{short}, Chance: 0.2, Do: proxy.TooManyRequests(time.Second)}),
		Entry("of 409 to writes", proxy.Rule{When: []cluster.Condition{cluster.Write}, Chance: 0.3, Do: proxy.Conflict}),
		Entry("of 500", proxy.Rule{When: []cluster.Condition{short}, Chance: 0.2, Do: proxy.InternalError}),
		Entry("of 502 that are no Status", proxy.Rule{When: []cluster.Condition{short}, Chance: 0.2, Do: proxy.BadGateway}),
		Entry("of requests that get lost", proxy.Rule{When: []cluster.Condition{short}, Chance: 0.2, Do: proxy.Drop}),
		Entry("of answers that get lost", proxy.Rule{When: []cluster.Condition{cluster.Write}, Chance: 0.3, Do: proxy.LoseAnswer}),
		Entry("of all of it", proxy.Rule{When: []cluster.Condition{short}, Chance: 0.05, Do: proxy.TooManyRequests(0)},
			proxy.Rule{When: []cluster.Condition{cluster.Write}, Chance: 0.1, Do: proxy.Conflict},
			proxy.Rule{When: []cluster.Condition{short}, Chance: 0.1, Do: proxy.InternalError},
			proxy.Rule{When: []cluster.Condition{short}, Chance: 0.1, Do: proxy.Drop},
			proxy.Rule{When: []cluster.Condition{cluster.Write}, Chance: 0.1, Do: proxy.LoseAnswer},
			proxy.Rule{When: []cluster.Condition{short}, Chance: 0.3, Do: proxy.Delay(20 * time.Millisecond)}),
		Entry("of watches that end and expire", proxy.Rule{When: []cluster.Condition{cluster.Watch}, Chance: 0.5, Do: proxy.Expired},
			proxy.Rule{When: []cluster.Condition{cluster.Watch}, Chance: 0.3, Do: proxy.Drop},
			proxy.Rule{When: []cluster.Condition{cluster.Verb("list")}, Chance: 0.2, Do: proxy.InternalError},
			proxy.Rule{When: []cluster.Condition{cluster.Write}, Chance: 0.1, Do: proxy.InternalError}),
	)

	It("that cuts every connection and watch again and again does not stop it", func(ctx SpecContext) {
		f := newFleet(ctx, map[string]int{"i": 40})
		p := trouble()
		Expect(start(ctx, f, p).Healthy(ctx)).To(Succeed())
		var cut atomic.Int64
		stop := every(200*time.Millisecond, func(n int) {
			if n%5 == 0 {
				p.Disconnect()
			} else {
				cut.Add(int64(p.Cut(cluster.Watch)))
			}
		})
		// Until many were: a quick machine is soon done.
		for revision := 1; revision <= 3 || cut.Load() <= 50; revision++ {
			Expect(revision).To(BeNumerically("<=", 50), "%d watches cut", cut.Load())
			f.install(ctx, "i", revision)
			f.stands(ctx)
		}
		f.drifts(ctx, "i")
		f.clears(ctx)
		stop()
		AddReportEntry("watches cut", cut.Load(), ReportEntryVisibilityAlways)
	})

	It("that swallows a request keeps no other install waiting, and the request is given up", func(ctx SpecContext) {
		f := newFleet(ctx, map[string]int{"i": 20, "other": 20})
		p := trouble()
		Expect(start(ctx, f, p).Healthy(ctx)).To(Succeed())
		givenUp := make(chan struct{})
		swallow := func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			<-r.Context().Done()
			close(givenUp)
			proxy.Swallow(w, r, next)
		}
		p.Set(proxy.Rule{When: []cluster.Condition{cluster.Write, cluster.Resource("serviceaccounts"), cluster.In(f.ns)}, Times: 1, Do: swallow})
		f.install(ctx, "i", 1)
		Eventually(ctx, p.Faults).WithTimeout(soon).Should(Equal(1), "a request hangs")
		f.install(ctx, "other", 1)
		Eventually(ctx, func() (string, error) {
			in := harness.Install(f.ns, "other")
			err := h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(in), in)
			return string(harness.Ready(in).Status), err
		}, soon, "50ms").Should(Equal("True"))
		Expect(givenUp).NotTo(BeClosed(), "the other one is ready while the request hangs")
		Eventually(ctx, givenUp, soon).Should(BeClosed(), "it is given up")
		f.stands(ctx)
		f.clears(ctx)
	})
})
