package faults_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/cluster"
)

// every calls f at each interval until stop is called. stop waits for f to return.
func every(d time.Duration, f func(n int)) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-done:
				return
			case <-tick.C:
				f(n)
			}
		}
	})
	var once sync.Once
	stop = func() { once.Do(func() { close(done) }); wg.Wait() }
	DeferCleanup(stop)
	return stop
}

// correctsDrift changes one object and waits until that is corrected.
func (f *installSet) correctsDrift(ctx context.Context, install string) {
	GinkgoHelper()
	var list corev1.ConfigMapList
	Expect(h.ControlPlane.Client().List(ctx, &list, client.InNamespace(f.ns), client.HasLabels{"ksctl.com/owner-id"})).
		To(Succeed())
	Expect(list.Items).NotTo(BeEmpty())
	patch := client.RawPatch(types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"drifted"}}}`, valueAnnotation))
	Expect(h.ControlPlane.Client().Patch(ctx, &list.Items[0], patch)).To(Succeed(), install)
	f.awaitConverged(ctx)
}

var _ = Describe("An outage of the control plane", func() {
	DescribeTable("during an install, a change or a removal only delays it",
		func(ctx SpecContext, outage func(context.Context)) {
			f := newInstallSet(ctx, map[string]int{"i": 120})
			p := newProxy()
			life := startController(ctx, f, p)
			Expect(life.WaitHealthy(ctx)).To(Succeed())
			// The outage starts after this number of writes.
			at := func(n int) <-chan struct{} {
				reached := make(chan struct{})
				seen, mu := 0, sync.Mutex{}
				p.Watch(func(q cluster.Request) {
					mu.Lock()
					defer mu.Unlock()
					if cluster.Write(q) && notLease(q) {
						if seen++; seen == n {
							close(reached)
						}
					}
				})
				return reached
			}
			for revision := 1; revision <= 2; revision++ {
				now := at(25)
				f.install(ctx, "i", revision)
				Eventually(ctx, now).WithTimeout(soon).Should(BeClosed())
				outage(ctx)
				f.awaitConverged(ctx)
				f.expectNoOrphans(ctx, fmt.Sprint("at revision ", revision))
			}
			now := at(25)
			f.remove(ctx, "i")
			Eventually(ctx, now).WithTimeout(soon).Should(BeClosed())
			outage(ctx)
			f.removeAll(ctx)
			Consistently(life.Done()).WithTimeout(100*time.Millisecond).
				ShouldNot(BeClosed(), "the controller keeps running")
		},
		Entry("when the API server is restarted", func(ctx context.Context) {
			Expect(h.ControlPlane.StopAPIServer()).To(Succeed())
			Expect(h.ControlPlane.StartAPIServer(ctx)).To(Succeed())
		}),
		Entry("when the API server crashes", func(ctx context.Context) {
			Expect(h.ControlPlane.KillAPIServer()).To(Succeed())
			Expect(h.ControlPlane.StartAPIServer(ctx)).To(Succeed())
		}),
		Entry("when etcd is restarted", func(ctx context.Context) {
			Expect(h.ControlPlane.StopEtcd()).To(Succeed())
			Expect(h.ControlPlane.StartEtcd(ctx)).To(Succeed())
		}),
		Entry("when etcd crashes", func(ctx context.Context) {
			Expect(h.ControlPlane.KillEtcd()).To(Succeed())
			Expect(h.ControlPlane.StartEtcd(ctx)).To(Succeed())
		}),
	)
})
