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

// objectCount is the number of objects for the measurement.
const objectCount = 10_000

var _ = Describe("An index of 10,000 objects", func() {
	It("needs little memory, also during the first list", Serial, func(ctx SpecContext) {
		namespace, err := plane.Namespace(ctx, "many")
		Expect(err).NotTo(HaveOccurred())
		owner := ownerKey(namespace)
		createObjects(ctx, namespace)

		base := heapBytes()
		peak := measureHeapGrowth()
		began := time.Now()
		ix, notified := startIndex(plane.Config(), live.Options{OwnerID: installation(namespace)})
		ix.SetOwnerKinds(owner, []*meta.RESTMapping{configMaps})
		Eventually(func() error { return ix.Synced(configMaps.GroupVersionKind.GroupKind()) }).
			WithTimeout(2*time.Minute).Should(Succeed(), "all objects are listed")
		took := time.Since(began)
		most := peak()
		perObject := (int64(heapBytes()) - int64(base)) / objectCount
		stats := ix.Stats()
		AddReportEntry("10,000 ConfigMaps of 2 KiB", fmt.Sprintf(
			"%d bytes per object in the heap (estimated %d); listed in %s; the heap in use rose by at most %.1f MiB",
			perObject, stats.Bytes/objectCount, took.Round(time.Millisecond), float64(most)/(1<<20)),
			ReportEntryVisibilityAlways)

		Expect(stats.Objects).To(Equal(objectCount))
		Expect(perObject).To(BeNumerically("<", 2048), "bytes per object")
		Expect(stats.Bytes/objectCount).
			To(BeNumerically("~", perObject, perObject), "the estimate has the right order of magnitude")
		// The objects take more than 30 MiB as JSON, and more than 100 MiB decoded.
		Expect(most).To(BeNumerically("<", 64<<20), "growth of the heap in bytes")
		Eventually(notified.count).WithArguments(owner).Should(Equal(1), "the owner is notified once, not per object")

		By("deleting a tenth of the objects in one request")
		Expect(resource(configMaps, namespace).
			DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "tenth=0"})).To(Succeed())
		Eventually(func() int { return ix.Stats().Objects }).WithTimeout(2*time.Minute).
			Should(Equal(objectCount-objectCount/10), "the deleted objects are removed from the index")
		Expect(ix.Stats().Confirms).
			To(And(BeNumerically(">=", objectCount/10), BeNumerically("<=", objectCount/10+objectCount/100)),
				"one GET per deleted object, and retries of failed ones")
	})
})

func createObjects(ctx context.Context, namespace string) {
	GinkgoHelper()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	filler := strings.Repeat("x", 2048)
	for i := range objectCount {
		group.Go(func() error {
			u := configMap(fmt.Sprintf("object-%05d", i), filler)
			u.SetLabels(map[string]string{"tenth": fmt.Sprint(i % 10)})
			u = marked(namespace, u)
			_, err := resource(configMaps, namespace).
				Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: live.FieldManager})
			return err
		})
	}
	Expect(group.Wait()).To(Succeed())
}

// heapBytes returns the size of the heap after garbage collection.
func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// measureHeapGrowth samples the heap in use. The returned function ends the sampling and returns
// the maximum growth in bytes.
func measureHeapGrowth() func() uint64 {
	percent := debug.SetGCPercent(20) // otherwise most of the growth would be garbage of other specs
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
