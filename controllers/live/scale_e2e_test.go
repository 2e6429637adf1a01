package live_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ksctl/gitops/controllers/live"
)

// many is how many objects an index is measured with.
const many = 10_000

var _ = Describe("An index of 10,000 objects", func() {
	It("is small, and small to start", Serial, func(ctx SpecContext) {
		namespace, err := plane.Namespace(ctx, "many")
		Expect(err).NotTo(HaveOccurred())
		owner := ownerKey(namespace)
		create(ctx, namespace)

		base := heap()
		peak := watchHeap()
		began := time.Now()
		ix, told := run(plane.Config(), live.Options{Owner: installation(namespace)})
		ix.Use(owner, []*meta.RESTMapping{configMaps})
		Eventually(func() error { return ix.Synced(configMaps.GroupVersionKind.GroupKind()) }).
			WithTimeout(2*time.Minute).Should(Succeed(), "all are listed")
		took := time.Since(began)
		most := peak()
		perObject := (int64(heap()) - int64(base)) / many
		stats := ix.Stats()
		AddReportEntry("10,000 ConfigMaps of 2 KiB", fmt.Sprintf(
			"%d bytes per object in the heap (estimated %d); listed in %s; the heap in use rose by at most %.1f MiB",
			perObject, stats.Bytes/many, took.Round(time.Millisecond), float64(most)/(1<<20)), ReportEntryVisibilityAlways)

		Expect(stats.Objects).To(Equal(many))
		Expect(perObject).To(BeNumerically("<", 2048), "bytes per object")
		Expect(stats.Bytes/many).To(BeNumerically("~", perObject, perObject), "the estimate is of that order")
		// The objects as JSON are over 30 MiB, decoded over 100 MiB.
		Expect(most).To(BeNumerically("<", 64<<20), "bytes that the heap rose by")
		Eventually(told.count).WithArguments(owner).Should(Equal(1), "the owner is told once, not per object")

		By("deleting a tenth of them at once")
		Expect(resource(configMaps, namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "tenth=0"})).To(Succeed())
		Eventually(func() int { return ix.Stats().Objects }).WithTimeout(2*time.Minute).Should(Equal(many-many/10), "they are gone")
		Expect(ix.Stats().Confirms).To(And(BeNumerically(">=", many/10), BeNumerically("<=", many/10+many/100)), "one GET each, and some again that failed")
	})
})

func create(ctx context.Context, namespace string) {
	GinkgoHelper()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	filler := strings.Repeat("x", 2048)
	for i := range many {
		group.Go(func() error {
			u := configMap(fmt.Sprintf("object-%05d", i), filler)
			u.SetLabels(map[string]string{"tenth": fmt.Sprint(i % 10)})
			u = marked(namespace, u)
			_, err := resource(configMaps, namespace).Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: live.FieldManager})
			return err
		})
	}
	Expect(group.Wait()).To(Succeed())
}

// heap is what the heap holds, garbage collected.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// watchHeap returns a function that ends the watching and returns by how much
// the heap in use rose at most.
func watchHeap() func() uint64 {
	percent := debug.SetGCPercent(20) // or most of it is garbage, as much as the other specs hold
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	base := m.HeapInuse
	var most atomic.Uint64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(2 * time.Millisecond)
		defer t.Stop()
		for {
			select {
			case <-stop:
				return
			case <-t.C:
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				if m.HeapInuse > base {
					most.Store(max(most.Load(), m.HeapInuse-base))
				}
			}
		}
	})
	return func() uint64 {
		close(stop)
		wg.Wait()
		debug.SetGCPercent(percent)
		return most.Load()
	}
}
